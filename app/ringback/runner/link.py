"""One live session with an upstream: spoken through, and seen to end.

Requests go through the SDK's dispatcher and not through `ClientSession.send_request`, which drops nulls from arguments and keys
it does not know from results, and refuses results that a host could still use. So what a modern request carries around its
parameters (spec 2026-07-28: `_meta` and headers) is put on here. Here, too, those keys of a client's `_meta` are left out that
the upstream is not to be told: every request comes by, whoever makes it and in whichever round.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from itertools import count
from typing import Any, Final

import anyio
import mcp_types
from mcp import ClientSession, MCPError
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ringback import __version__
from ringback.domain.clock import Clock
from ringback.domain.meta import is_reserved
from ringback.domain.upstreams import Profile, ToolInfo
from ringback.runner.child import Child
from ringback.runner.dispatcher import LinkDispatcher, OnMessage, ToldStream
from ringback.runner.drivers.base import Negotiated, OnPlace, Told
from ringback.runner.failures import Forgotten, NotSent
from ringback.runner.session_transport import SessionTransport
from ringback.runner.stateful import Stateful
from ringback.runner.transport import failure_of

log = logging.getLogger(__name__)

LISTEN_AGAIN_SECONDS: Final = 30.0
"""Between two attempts to hear of changes; a list is asked for again now and then anyway."""
ABANDONED_MAX: Final = 64
"""Cancelled requests that one HTTP session of the old protocol may leave open before it is replaced."""
CLIENT_INFO: Final = mcp_types.Implementation(name="ringback", version=__version__)
_LISTEN: Final = "subscriptions/listen"
_TASK_METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")
_NAMED_BY: Final = {**NAME_BEARING_METHODS, **dict.fromkeys(_TASK_METHODS, "taskId")}
"""The parameter that a modern request repeats in a header."""


class Link:
    """A live session. It is left when the upstream ends it, or when it was retired; requests in flight then still end on it."""

    def __init__(
        self,
        session: ClientSession,
        dispatcher: LinkDispatcher,
        *,
        profile: Profile,
        transport: SessionTransport | None,
        child: Child | None,
        passes_meta: Callable[[str], bool],
        own: bool,
        mark: str,
    ) -> None:
        """`transport` is that of HTTP, `child` that of a pipe; the other is None.

        `passes_meta` says it of a key. The rest is as in `Opening`.
        """
        self.profile = profile
        self.child = child
        self._passes_meta = passes_meta
        self._session = session
        self._is_pipe = transport is None
        self._keeps_abandoned = transport is not None and session.protocol_version not in MODERN_PROTOCOL_VERSIONS
        self._abandoned = 0
        self._dispatcher = dispatcher
        self._in_flight = 0
        self._unused = anyio.Event()
        self._listens = count(1)
        self._not_honoured: set[str] = set()
        self.tools: Mapping[str, ToolInfo] = {}
        """As listed on this session: some of a tool's arguments may have to be repeated in headers."""
        self.stateful = Stateful(
            dispatcher,
            send=self._send,
            protocol_version=session.protocol_version or "",
            transport=transport,
            own=own,
            mark=mark,
        )
        capabilities = session.server_capabilities
        self.negotiated = Negotiated(
            protocol_version=session.protocol_version or "",
            capabilities={} if capabilities is None else capabilities.model_dump(by_alias=True, exclude_none=True),
        )

    @property
    def protocol_version(self) -> str | None:
        return self._session.protocol_version

    @property
    def left(self) -> anyio.Event:
        return self._dispatcher.ended

    def retire(self) -> None:
        """Take no further requests."""
        self.left.set()

    async def drained(self) -> None:
        while self._in_flight:
            await self._unused.wait()
            self._unused = anyio.Event()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        declare: Mapping[str, Any] | None = None,
        on_progress: ProgressFnT | None = None,
        on_place: OnPlace | None = None,
    ) -> dict[str, Any]:
        """The result as it came; raises `RequestFailed`. Cancelling it tells the upstream to stop, unless a place was told.

        What stands in the `_meta` of `params` is a client's; `meta` is added to it, and ours.
        """
        stamped, options = self._stamp(method, params, declare or {}, meta or {})
        if on_progress is not None:
            options["on_progress"] = on_progress
        if on_place is not None and (name := self.stateful.name) is not None:
            return await self.stateful.begin(name, method, stamped, options, on_place)
        return await self._send(method, stamped, options)

    def overhearing(self, on_message: OnMessage, *, own: bool) -> AbstractContextManager[None]:
        """Hear the log messages of the request that is made in here, or (with `own`) of all that goes on here."""
        # On a pipe only a modern upstream says with its silence that it was not asked for messages of any other request.
        return self._dispatcher.overhearing(on_message, anywhere=own or (self._is_pipe and self.negotiated.modern))

    @asynccontextmanager
    async def listen(
        self, notifications: Mapping[str, Any], *, declare: Mapping[str, Any]
    ) -> AsyncGenerator[Told | None]:
        """A stream of what was asked for; None when the upstream does not honour all of it, or did not last time."""
        if not self.negotiated.modern:
            with self._dispatcher.hearing(notifications.get("taskIds", ())) as stream:
                yield stream
            return
        if self._not_honoured & set(notifications):
            yield None
            return
        async with self.stream(notifications, declare=declare) as stream:
            honoured = await stream.honoured()
            if honoured is not None and not set(notifications) <= set(honoured):
                self._not_honoured |= set(notifications) - set(honoured)
                honoured = None
            yield None if honoured is None else stream

    @asynccontextmanager
    async def stream(
        self, notifications: Mapping[str, Any], *, declare: Mapping[str, Any]
    ) -> AsyncGenerator[ToldStream]:
        """A `subscriptions/listen` stream with this filter, whatever of it the upstream honours (2026-07-28)."""
        request_id = f"ringback-listen-{next(self._listens)}"
        stream = self._dispatcher.streams[request_id] = ToldStream()
        stamped, options = self._stamp(_LISTEN, {"notifications": dict(notifications)}, declare, {})
        options["request_id"] = request_id
        listening = asyncio.create_task(self._send(_LISTEN, stamped, options))
        listening.add_done_callback(stream.end)
        try:
            yield stream
        finally:
            del self._dispatcher.streams[request_id]
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _send(self, method: str, stamped: dict[str, Any], options: CallOptions) -> dict[str, Any]:
        if self.left.is_set():
            raise NotSent("The connection to the upstream ended before the request was sent.")
        self._in_flight += 1
        try:
            return await self._dispatcher.send_raw_request(method, stamped, options)
        except asyncio.CancelledError:
            self._abandon()
            raise
        except MCPError as error:
            if error.code == mcp_types.CONNECTION_CLOSED and error.message == "Connection closed":
                self.retire()  # the dispatcher says so a moment before it ends
            failure = failure_of(error.error)
            if isinstance(failure, Forgotten):
                self.retire()  # in a session that the upstream has forgotten nobody is answered any more
            raise failure from None
        finally:
            self._in_flight -= 1
            self._unused.set()

    def _abandon(self) -> None:
        """On the old protocol the SDK keeps a cancelled POST open, for ever if the upstream never answers it."""
        self._abandoned += 1
        if self._keeps_abandoned and self._abandoned >= ABANDONED_MAX:
            self.retire()

    async def hear_changes(self, clock: Clock, *, look: Callable[[], Awaitable[None]]) -> bool:
        """On 2026-07-28 changes are told only on a stream that asks for them; the session hands them on (`opening`).

        `look` is called whenever such a stream begins: what changed before was not told. False when there never was one.
        """
        wanted = self._listed_changes()
        heard = False
        while self.negotiated.modern and wanted:
            try:
                async with listen(
                    self._session,
                    tools_list_changed="tools" in wanted,
                    resources_list_changed="resources" in wanted,
                    prompts_list_changed="prompts" in wanted,
                ) as events:
                    await look()
                    heard = True
                    async for _ in events:
                        pass
            except MCPError:
                break  # refused, or away: the age of the list decides when it is asked for again
            except SubscriptionLost:
                log.debug("upstream.subscription_lost")
            await clock.sleep(LISTEN_AGAIN_SECONDS)
        return heard

    def _listed_changes(self) -> set[str]:
        """The lists of which the upstream says that it tells when they change."""
        offered = self.negotiated.capabilities
        return {name for name in ("tools", "resources", "prompts") if offered.get(name, {}).get("listChanged") is True}

    def _stamp(
        self, method: str, params: Mapping[str, Any], declare: Mapping[str, Any], ours: Mapping[str, Any]
    ) -> tuple[dict[str, Any], CallOptions]:
        version = self.protocol_version or ""
        headers = {MCP_PROTOCOL_VERSION_HEADER: version}
        rest = {key: value for key, value in params.items() if key != "_meta"}
        meta = {**self._passing(params.get("_meta", {})), **ours}
        if version not in MODERN_PROTOCOL_VERSIONS:
            return {**rest, "_meta": meta} if meta else rest, {"headers": headers}
        envelope = {
            mcp_types.PROTOCOL_VERSION_META_KEY: version,
            mcp_types.CLIENT_INFO_META_KEY: CLIENT_INFO.model_dump(by_alias=True, mode="json", exclude_none=True),
            mcp_types.CLIENT_CAPABILITIES_META_KEY: dict(declare),
        }
        headers[MCP_METHOD_HEADER] = method
        if method == "tools/call":
            headers |= self._tool_headers(params["name"], params["arguments"])
        elif (name := _NAMED_BY.get(method)) is not None:
            headers[MCP_NAME_HEADER] = encode_header_value(params[name])
        return {**rest, "_meta": {**meta, **envelope}}, {"headers": headers}

    def _passing(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in meta.items() if self._passes_meta(key) and not is_reserved(key)}

    def _tool_headers(self, name: str, arguments: Mapping[str, Any]) -> dict[str, str]:
        headers = {MCP_NAME_HEADER: encode_header_value(name)}
        if tool := self.tools.get(name):
            headers |= mcp_param_headers(x_mcp_header_map(tool.input_schema), arguments)
        return headers
