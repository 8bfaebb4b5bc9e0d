"""What one call needs of a connection, whichever of its links serves just now."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypedDict

from mcp.shared.dispatcher import ProgressFnT

from ringback.domain.upstreams import ToolInfo
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.drivers import NegotiatedProtocol, NotificationStreamPort
from ringback.runner.drivers.base import OnStreamPosition, LegacySessionId, LegacySessionPort
from ringback.runner.failures import RequestNotSent
from ringback.runner.link import UpstreamSession
from ringback.runner.messages import CallLogMessages


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

    declare: Mapping[str, Any] | None
    on_progress: ProgressFnT | None
    on_place: OnStreamPosition | None


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
        self, notifications: Mapping[str, Any], *, client_capabilities: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[NotificationStreamPort | None]:
        return self._session.open_notification_stream(notifications, declare=client_capabilities)

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
        options = _RequestOptions(declare=client_capabilities, on_progress=on_progress, on_place=on_position)
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
        async with self.log_messages.receive_during(self._session, own=self._is_dedicated) as meta:
            return await self._session.send_request(method, params, meta=meta, **options)

    @property
    def legacy_session(self) -> LegacySessionPort:
        return self._session.legacy_session

    @asynccontextmanager
    async def rejoin_session(self, name: LegacySessionId) -> AsyncGenerator[LegacySessionPort]:
        async with self._sessions.open_dedicated_session(own=True, rejoin=name) as session:
            yield session.legacy_session
