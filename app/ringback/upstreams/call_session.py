"""What one call needs of a connection, whichever of its links serves just now."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, Protocol, TypedDict

import anyio
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import LOG_LEVEL_META_KEY

from ringback.domain.ids import CallId
from ringback.domain.upstreams import ToolInfo
from ringback.upstreams.errors import RequestFailed, RequestNotSent, UpstreamUnreachable
from ringback.upstreams.notification_hub import NotificationHub
from ringback.upstreams.session import UpstreamSession
from ringback.upstreams.session_ports import (
    LegacySessionId,
    LegacySessionPort,
    NegotiatedProtocol,
    NotificationStreamPort,
    OnStreamPosition,
)

# Log messages of running calls: asked for only while somebody wants them, and taken only if they are surely of that call.
#
#     2026-07-28                  the request says from which level on (`_meta`); they come on its own stream
#     before, session of a call   the level is set for the session, in which there is nothing else
#     before, shared session      nothing is set, because it would be set for all; what comes on the call's own stream is its own
#
# A message does not say what it belongs to. Over HTTP the SDK hands each on in the context of the request on whose stream it came
# (2.3.0: its streams carry contextvars), so the context says it. On a pipe all come together: there a message belongs to a call
# if only that one can have been asked for it. Everything else is dropped.

SET_LEVEL_TIMEOUT_SECONDS: Final = 2.0
"""The call waits for it, and would rather be without messages."""


class CallLogMessages:
    def __init__(self, call_id: CallId, notification_hub: NotificationHub) -> None:
        self._call_id = call_id
        self._notification_hub = notification_hub

    @asynccontextmanager
    async def receive_during(
        self, session: UpstreamSession, *, is_dedicated: bool
    ) -> AsyncGenerator[Mapping[str, Any]]:
        """While a tool is called on this link. Yields what is to be added to the request's `_meta`."""
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
    """What a conversation needs of its connection."""

    async def get_shared_session(self) -> UpstreamSession:
        """The link that is shared now; raises `UpstreamUnreachable`."""
        ...

    def open_dedicated_session(self, **options: Any) -> AbstractAsyncContextManager[UpstreamSession]:
        """A link of its own, opened so (`runner.opening.Opening`); raises `UpstreamUnreachable`."""
        ...


class _RequestOptions(TypedDict):
    """As in `drivers.Session.request`."""

    client_capabilities: Mapping[str, Any] | None
    on_progress: ProgressFnT | None
    on_position: OnStreamPosition | None


class CallSession:
    """Implements `drivers.Session`: requests of one call, over the next link if this one turned out to be gone."""

    def __init__(self, sessions: SessionSource, session: UpstreamSession, *, is_dedicated: bool) -> None:
        self._sessions = sessions
        self._session = session
        self._is_dedicated = is_dedicated
        self.log_messages: CallLogMessages | None = None
        """Those of the call, if it is one."""

    @property
    def protocol(self) -> NegotiatedProtocol:
        return self._session.protocol

    def get_tool(self, name: str) -> ToolInfo | None:
        return self._session.tools.get(name)

    def open_notification_stream(
        self, notification_filter: Mapping[str, Any], *, client_capabilities: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[NotificationStreamPort | None]:
        return self._session.open_notification_stream(notification_filter, client_capabilities=client_capabilities)

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        client_capabilities: Mapping[str, Any] | None = None,
        on_progress: ProgressFnT | None = None,
        on_position: OnStreamPosition | None = None,
    ) -> dict[str, Any]:
        """The raw result; raises `RequestFailed`. What was surely not taken is sent once more, on the next link."""
        options = _RequestOptions(
            client_capabilities=client_capabilities, on_progress=on_progress, on_position=on_position
        )
        try:
            return await self._send_once(method, params, options)
        except RequestNotSent as failure:
            self._session.close_to_new_requests()
            if self._is_dedicated:
                raise
            try:
                self._session = await self._sessions.get_shared_session()
            except UpstreamUnreachable:
                raise failure from None
        return await self._send_once(method, params, options)

    async def _send_once(self, method: str, params: Mapping[str, Any], options: "_RequestOptions") -> dict[str, Any]:
        if self.log_messages is None or method != "tools/call":
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
