"""One open session with an upstream: sends requests and notices its end.

Requests use the SDK's dispatcher, and get their `_meta` and headers from `protocol.request_envelope`. This module also removes
the `_meta` keys that the upstream must not receive: every request passes here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import anyio
import mcp_types
from mcp import ClientSession, MCPError
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions, ProgressFnT

from ringback import __version__
from ringback.domain.clock import Clock
from ringback.domain.meta import is_reserved_meta_key
from ringback.domain.upstreams import ToolInfo, UpstreamProfile
from ringback.protocol.errors import (
    CredentialsRejected,
    CredentialsRequired,
    LoginRequired,
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    ScopeRefused,
    SessionNotFound,
)
from ringback.protocol.legacy_session_transport import LegacySessionTransport
from ringback.protocol.request_envelope import add_envelope
from ringback.protocol.sessions import PING_METHOD, NegotiatedProtocol, OnStreamPosition
from ringback.protocol.transport_errors import to_request_error
from ringback.telemetry.spans import current_span
from ringback.upstreams.dispatch_records import DispatchRecord, get_dispatch_record
from ringback.upstreams.legacy_session import LegacySession
from ringback.upstreams.session_dispatcher import OnLogMessage, SessionDispatcher
from ringback.upstreams.stream_opener import StreamOpener
from ringback.upstreams.transports.child_process import ChildProcess
from ringback.upstreams.upstream_spans import (
    UNTRACED_METHODS,
    UpstreamPeer,
    add_trace_context,
    end_with_response,
    start_upstream_span,
)

log = logging.getLogger(__name__)

ABANDONED_REQUESTS_MAX: Final = 64
"""Requests without a response, after which a legacy HTTP session takes no new ones: as long as their tools may run, it is not
certain whose question the upstream asks outside a request (`elicitation_router`)."""
ACCEPTED_SECONDS: Final = 60.0
"""A session is closed because of refused credentials at this age at the earliest."""
RELISTEN_SECONDS: Final = 30.0
"""Between two attempts to open a stream for list changes. Lists are also fetched again by age."""
CLIENT_INFO: Final = mcp_types.Implementation(name="ringback", version=__version__)
_CLIENT_INFO_META: Final = CLIENT_INFO.model_dump(by_alias=True, mode="json", exclude_none=True)
_CALL_METHOD: Final = "tools/call"
_LIST_METHOD: Final = "tools/list"
_INTERRUPTED: Final = "Ringback ended the connection to the upstream. The tool may have run."


class UpstreamSession:
    """An open session. After it is closed to new requests, the requests in flight still end on it.

    An HTTP session has a `transport`, a stdio session a `child`; the other one is None. `forwards_meta_key` decides which
    `_meta` keys the upstream receives. `SessionOptions` documents the rest.
    """

    def __init__(
        self,
        session: ClientSession,
        dispatcher: SessionDispatcher,
        *,
        profile: UpstreamProfile,
        transport: LegacySessionTransport | None,
        child: ChildProcess | None,
        forwards_meta_key: Callable[[str], bool],
        is_dedicated: bool,
        request_id_prefix: str,
        upstream: str,
    ) -> None:
        self.profile = profile
        self._upstream = upstream
        self.child = child
        self._forwards_meta_key = forwards_meta_key
        self._session = session
        self._dispatcher = dispatcher
        self._end_reason: str | None = None
        """Why Ringback has ended the session; None if it has not."""
        self._unanswered: dict[anyio.CancelScope, DispatchRecord | None] = {}
        """The requests in flight, by the scope that `interrupt` ends. A tools/call has the record that says whether it waits
        unsent."""
        self.is_interrupted = False
        self.left = anyio.Event()
        """Set once the contexts of the session are left: its child has exited, or its connections are closed."""
        self._idle = anyio.Event()
        self.check_list: Callable[[Mapping[str, Any]], None] = lambda _: None
        """Called with each page of a list. What it raises ends the session."""
        self.find_tool: Callable[[str], ToolInfo | None] = lambda _: None
        """The tool as the upstream has listed it last, on whichever session. Its schema names the arguments to repeat in
        headers, and it says whether it runs as a task."""
        self.legacy_session = LegacySession(
            dispatcher,
            send=self._send_raw,
            protocol_version=session.protocol_version or "",
            transport=transport,
            is_dedicated=is_dedicated,
            request_id_prefix=request_id_prefix,
        )
        self._transport = transport
        self.protocol = _read_protocol(session)
        self.stream_opener = StreamOpener(
            dispatcher,
            is_modern=self.protocol.is_modern,
            add_envelope=self._add_envelope,
            send=self._send_raw,
        )
        self._opened_at = asyncio.get_running_loop().time()

    @property
    def age_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._opened_at

    @property
    def protocol_version(self) -> str | None:
        return self._session.protocol_version

    @property
    def received_count(self) -> int:
        """The messages of the upstream in this session: responses, notifications and its own requests."""
        return self._dispatcher.received_count

    @property
    def closed(self) -> anyio.Event:
        return self._dispatcher.ended

    def close_to_new_requests(self, *, end_reason: str | None = None) -> None:
        """Accept no further requests. `end_reason` is what requests report that lose their responses because of this end."""
        self._end_reason = self._end_reason or end_reason
        self.closed.set()

    def interrupt(self, reason: str) -> None:
        """Accept no further requests, and await no response to those in flight. Calls that wait unsent are still sent on it.

        Over a pipe, they end with the child, which `wait_drained` ends: what was not written to it is then known to be unsent.
        """
        self.close_to_new_requests(end_reason=reason)
        self.is_interrupted = True
        if self.child is not None:
            self._idle.set()
            return
        for scope, record in list(self._unanswered.items()):
            if record is None or not record.is_unsent:
                scope.cancel()

    def count_unsent_calls(self) -> int:
        """The calls in flight that wait before they are sent: after 429, for a token or for a connection."""
        return sum(record is not None and record.is_unsent for record in self._unanswered.values())

    async def wait_drained(self) -> None:
        while self._unanswered:
            if self.is_interrupted and self.child is not None:
                await self.child.end()
            await self._idle.wait()
            self._idle = anyio.Event()

    async def wait_replaceable(self) -> None:
        """Wait until another session may follow: a child that is being ended may hold a file or a port that the next needs."""
        if self.is_interrupted and self.child is not None:
            await self.left.wait()

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        client_capabilities: Mapping[str, Any] | None = None,
        on_progress: ProgressFnT | None = None,
        on_position: OnStreamPosition | None = None,
    ) -> dict[str, Any]:
        """Return the raw result; raises `RequestFailed`. `CallSessionPort.send_request` documents cancellation.

        The `_meta` of `params` comes from a client. `meta` and our own members are added to it.
        """
        stamped, options = self._add_envelope(method, params, client_capabilities or {}, meta)
        if on_progress is not None:
            options["on_progress"] = on_progress
        if on_position is not None and (name := self.legacy_session.session_id) is not None:
            return await self.legacy_session.send_resumable_request(name, method, stamped, options, on_position)
        return await self._send_raw(method, stamped, options)

    async def send_probe(self) -> None:
        """Send a request that a server answers at once; raises `RequestFailed`. MCP 2026-07-28 has no ping."""
        await self.send_request(_LIST_METHOD if self.protocol.is_modern else PING_METHOD, {})

    def receive_log_messages(self, on_message: OnLogMessage, *, is_dedicated: bool) -> AbstractContextManager[None]:
        """Receive log messages of the request made in this block, or of the whole session if it is dedicated."""
        # On a pipe, a modern upstream sends log messages only for requests that ask for them.
        return self._dispatcher.receive_log_messages(
            on_message, includes_unrelated=is_dedicated or (self.child is not None and self.protocol.is_modern)
        )

    async def _send_raw(self, method: str, stamped: dict[str, Any], options: CallOptions) -> dict[str, Any]:
        if (parent := current_span()) is None or method in UNTRACED_METHODS:
            return await self._send_untraced(method, stamped, options)
        span = start_upstream_span(parent, method, stamped, self._describe_peer())
        stamped, headers = add_trace_context(stamped, span, self._forwards_meta_key)
        options["headers"] = {**options.get("headers", {}), **headers}
        return await end_with_response(span, self._send_untraced(method, stamped, options))

    def _describe_peer(self) -> UpstreamPeer:
        return UpstreamPeer(
            name=self._upstream, protocol_version=self.protocol_version or "", is_stdio=self.child is not None
        )

    async def _send_untraced(self, method: str, stamped: dict[str, Any], options: CallOptions) -> dict[str, Any]:
        if self.protocol.is_modern:  # it asks in its response, and not with a request of its own
            return await self._send_once(method, stamped, options)
        router = self._dispatcher.elicitation_router
        try:
            with router.track_request(method, stamped) as note_result:
                result = await self._send_once(method, stamped, options)
                note_result(result)
                return result
        finally:
            if self.child is None and router.abandoned_count >= ABANDONED_REQUESTS_MAX:
                self.close_to_new_requests()

    async def _send_once(self, method: str, stamped: dict[str, Any], options: CallOptions) -> dict[str, Any]:
        # A ping belongs to what runs in the session already: it shows that an answer has arrived, and whether a child runs.
        if self.closed.is_set() and (self.is_interrupted or method != PING_METHOD):
            raise RequestNotSent("The connection to the upstream ended before the request was sent.")
        scope = anyio.CancelScope()
        self._unanswered[scope] = get_dispatch_record() if method == _CALL_METHOD else None
        try:
            with scope:
                return await self._dispatcher.send_raw_request(method, stamped, options)
            raise ResponseLost(self._end_reason or _INTERRUPTED)
        except MCPError as error:
            if error.code == mcp_types.CONNECTION_CLOSED and error.message == "Connection closed":
                self.close_to_new_requests()  # the dispatcher reports this a moment before it ends
            raise self._handle_failure(method, to_request_error(error.error)) from None
        finally:
            del self._unanswered[scope]
            self._idle.set()

    def _handle_failure(self, method: str, failure: RequestFailed) -> RequestFailed:
        """The error to raise. The caller has no variable for it: error and frame would refer to each other, with the call."""
        if method != PING_METHOD and (isinstance(failure, SessionNotFound) or self._is_doubted()):
            self.close_to_new_requests()  # the upstream answers no request of this session any more
        if self._end_reason and type(failure) is ResponseLost:
            return ResponseLost(self._end_reason)
        return failure

    def _is_doubted(self) -> bool:
        """A tool whose errors have this status must not end the session of all calls again and again."""
        return self._transport is not None and self._transport.is_doubted and self.age_seconds >= ACCEPTED_SECONDS

    async def follow_list_changes(self, clock: Clock, *, on_subscribed: Callable[[], Awaitable[None]]) -> bool:
        """Keep a stream for list changes open (2026-07-28). `handshake` forwards its notifications.

        Calls `on_subscribed` whenever a stream starts, because earlier changes were not reported. Returns False if the upstream
        starts no stream.
        """
        wanted = self._supported_list_changes()
        has_subscribed = False
        while self.protocol.is_modern and wanted and not self.closed.is_set():
            try:
                async with listen(
                    self._session,
                    tools_list_changed="tools" in wanted,
                    resources_list_changed="resources" in wanted,
                    prompts_list_changed="prompts" in wanted,
                ) as events:
                    await on_subscribed()
                    has_subscribed = True
                    async for _ in events:
                        pass
            except MCPError:
                if not has_subscribed:
                    break  # lists are fetched again by age
                log.debug("upstream.subscription_failed")  # it restarts, for example
            except SubscriptionLost:
                log.debug("upstream.subscription_lost")
            await clock.sleep(RELISTEN_SECONDS)
        return has_subscribed

    def _supported_list_changes(self) -> set[str]:
        """The lists for which the upstream declares change notifications."""
        offered = self.protocol.capabilities
        return {name for name in ("tools", "resources", "prompts") if offered.get(name, {}).get("listChanged") is True}

    def _add_envelope(
        self,
        method: str,
        params: Mapping[str, Any],
        client_capabilities: Mapping[str, Any],
        added_meta: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], CallOptions]:
        rest = {key: value for key, value in params.items() if key != "_meta"}
        meta = {**self._filter_meta(params.get("_meta", {})), **(added_meta or {})}
        tool = self.find_tool(params["name"]) if method == _CALL_METHOD else None
        stamped, headers = add_envelope(
            method,
            {**rest, "_meta": meta} if meta else rest,
            protocol_version=self.protocol_version or "",
            client_info=_CLIENT_INFO_META,
            client_capabilities=client_capabilities,
            tool_input_schema=tool.input_schema if tool is not None and tool.may_repeat_arguments else None,
        )
        return stamped, {"headers": headers}

    def _filter_meta(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: value for key, value in meta.items() if self._forwards_meta_key(key) and not is_reserved_meta_key(key)
        }


def concerns_session(failure: RequestNotSent, *, age_seconds: float) -> bool:
    """Whether a request was not sent because of its session, so that another session may take it. `age_seconds` is its age.

    A request that lacks a login or a scope is refused in every session. So is one whose credentials the upstream has accepted
    for the handshake a moment ago, and now refuses for one tool: such calls of one principal must not end the session of all
    others again and again.
    """
    if isinstance(failure, LoginRequired | ScopeRefused):
        return False
    return age_seconds >= ACCEPTED_SECONDS or not isinstance(failure, CredentialsRejected | CredentialsRequired)


def _read_protocol(session: ClientSession) -> NegotiatedProtocol:
    capabilities = session.server_capabilities
    return NegotiatedProtocol(
        protocol_version=session.protocol_version or "",
        capabilities={} if capabilities is None else capabilities.model_dump(by_alias=True, exclude_none=True),
    )
