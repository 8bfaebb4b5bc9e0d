"""The session of one call. Its requests go over the current session of a connection, which may change during the call."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, Protocol, TypedDict

import anyio
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import LOG_LEVEL_META_KEY

from ringback.domain.call import ServerFingerprint
from ringback.domain.ids import CallId
from ringback.domain.upstreams import ToolInfo
from ringback.protocol.errors import LoginRequired, RequestFailed, RequestNotSent, TokenReplaced, TokensUnreadable
from ringback.protocol.sessions import LegacySessionId, NegotiatedProtocol, OnStreamPosition
from ringback.upstreams.dispatch_records import get_dispatch_record, recording_slow_wait
from ringback.upstreams.elicitation_router import CallOwner, own_requests
from ringback.upstreams.errors import UpstreamLoginRequired, UpstreamTokensUnreadable, UpstreamUnreachable
from ringback.upstreams.notification_hub import NotificationHub
from ringback.upstreams.session import UpstreamSession, concerns_session
from ringback.upstreams.session_ports import LegacySessionPort, NotificationStreamPort

# Log messages of a running call are requested only while a listener wants them, and forwarded only if they certainly belong to
# that call.
#
#     modern                      the request names the level (`_meta`); messages come on the stream of the request
#     legacy, dedicated session   logging/setLevel sets the level of the session, which serves only this call
#     legacy, shared session      no level is set, because it would apply to all calls; messages on the call's stream are used
#
# A message does not name its request. Over HTTP the SDK (2.3.0) handles a message in the context of the request on whose stream
# it came, because its streams carry contextvars. On a pipe all messages come together: a message belongs to a call if only that
# call can have requested it. All other messages are dropped.

_TOOL_CALL: Final = "tools/call"
SET_LEVEL_TIMEOUT_SECONDS: Final = 2.0
"""Short, because the call waits for it; after the timeout the call runs without log messages."""


class CallLogMessages:
    def __init__(self, call_id: CallId, notification_hub: NotificationHub) -> None:
        self._call_id = call_id
        self._notification_hub = notification_hub

    @property
    def are_wanted(self) -> bool:
        return self._notification_hub.get_log_level(self._call_id) is not None

    @asynccontextmanager
    async def receive_during(
        self, session: UpstreamSession, *, is_dedicated: bool
    ) -> AsyncGenerator[Mapping[str, Any]]:
        """Forward messages during a tool call on this session. Yields the additions to the `_meta` of the request."""
        if (level := self._notification_hub.get_log_level(self._call_id)) is None:
            yield {}
            return
        if is_dedicated and not session.protocol.is_modern and "logging" in session.protocol.capabilities:
            with suppress(RequestFailed), anyio.move_on_after(SET_LEVEL_TIMEOUT_SECONDS):
                await session.send_request("logging/setLevel", {"level": level})
        with session.receive_log_messages(
            lambda params: self._notification_hub.publish_log_message(self._call_id, params), is_dedicated=is_dedicated
        ):
            yield {LOG_LEVEL_META_KEY: level} if session.protocol.is_modern else {}


class SessionSource(Protocol):
    """What a call session needs of its connection."""

    async def get_shared_session(self) -> UpstreamSession:
        """Wait for the current shared session; raises `UpstreamUnreachable`."""
        ...

    def open_dedicated_session(self, **options: Any) -> AbstractAsyncContextManager[UpstreamSession]:
        """Open a session for one call with fields of `handshake.SessionOptions`; raises `UpstreamUnreachable`."""
        ...


class _RequestOptions(TypedDict):
    """The options of `CallSessionPort.send_request`."""

    client_capabilities: Mapping[str, Any] | None
    on_progress: ProgressFnT | None
    on_position: OnStreamPosition | None


class CallSession:
    """Implements `session_ports.CallSessionPort`. A request that was not sent goes to the next shared session."""

    def __init__(
        self, sessions: SessionSource, session: UpstreamSession, *, is_dedicated: bool, owner: CallOwner | None = None
    ) -> None:
        """`owner` is None if the session serves no call."""
        self._sessions = sessions
        self._session = session
        self._is_dedicated = is_dedicated
        self._owner = owner
        self.server_fingerprint: ServerFingerprint | None = None
        """None if the session serves no call."""
        self.log_messages: CallLogMessages | None = None
        """Forwards log messages; None if the session serves no call."""
        self.awaits_session = False
        """Whether a tools/call that was not sent waits for the next session."""

    def is_in(self, session: UpstreamSession) -> bool:
        """Whether the requests of the call go over this session now."""
        return self._session is session

    @property
    def protocol(self) -> NegotiatedProtocol:
        return self._session.protocol

    def get_tool(self, name: str) -> ToolInfo | None:
        return self._session.find_tool(name)

    def open_notification_stream(
        self, notification_filter: Mapping[str, Any], *, client_capabilities: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[NotificationStreamPort | None]:
        opener = self._session.stream_opener
        return opener.open_notification_stream(notification_filter, client_capabilities=client_capabilities)

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        client_capabilities: Mapping[str, Any] | None = None,
        on_progress: ProgressFnT | None = None,
        on_position: OnStreamPosition | None = None,
    ) -> dict[str, Any]:
        """Return the raw result; raises `RequestFailed`. A request that was not sent is sent once more, on the next session.

        If only the credentials of this request are refused, the session stays open: it serves other calls, too. If its
        token was replaced both times, `LoginRequired` has no version of tokens: the call is queued again if any are stored.
        """
        options = _RequestOptions(
            client_capabilities=client_capabilities, on_progress=on_progress, on_position=on_position
        )
        try:
            return await self._send_once(method, params, options)
        except TokenReplaced:
            pass
        except RequestNotSent as failure:
            if not concerns_session(failure, age_seconds=self._session.age_seconds):
                raise
            self._session.close_to_new_requests()
            if self._is_dedicated:
                raise
            try:
                self._session = await self._wait_for_next_session(method)
            except UpstreamLoginRequired as problem:  # the login has ended, or another one replaces it
                kind = TokensUnreadable if isinstance(problem, UpstreamTokensUnreadable) else LoginRequired
                raise kind(str(problem), scope=problem.scope, tokens_version=problem.tokens_version) from None
            except UpstreamUnreachable:
                raise failure from None
        try:
            return await self._send_once(method, params, options)
        except TokenReplaced as failure:  # new tokens are refused and replaced all the time
            raise LoginRequired(str(failure)) from None

    async def _wait_for_next_session(self, method: str) -> UpstreamSession:
        """Raises `UpstreamUnreachable`. That may take 30 s, in which a tools/call counts as unsent."""
        record = get_dispatch_record() if method == _TOOL_CALL else None
        self.awaits_session = method == _TOOL_CALL
        try:
            async with recording_slow_wait(record):
                session = await self._sessions.get_shared_session()
        finally:
            self.awaits_session = False
        if record is not None:
            await record.record_dispatch()
        return session

    async def _send_once(self, method: str, params: Mapping[str, Any], options: "_RequestOptions") -> dict[str, Any]:
        with own_requests(self._owner):
            if self.log_messages is None or not self.log_messages.are_wanted or method != _TOOL_CALL:
                return await self._session.send_request(method, params, **options)
            async with self.log_messages.receive_during(self._session, is_dedicated=self._is_dedicated) as meta:
                return await self._session.send_request(method, params, meta=meta, **options)

    @property
    def legacy_session(self) -> LegacySessionPort:
        return self._session.legacy_session

    @asynccontextmanager
    async def rejoin_session(self, session_id: LegacySessionId) -> AsyncGenerator[LegacySessionPort]:
        async with self._sessions.open_dedicated_session(is_dedicated=True, rejoined_session=session_id) as session:
            yield session.legacy_session
