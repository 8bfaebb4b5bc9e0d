"""Sessions with scripted responses, for tests of drivers."""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Any, Final

from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import LATEST_MODERN_VERSION

from ringback.domain.call import ServerFingerprint
from ringback.domain.upstreams import ToolInfo
from ringback.protocol.errors import RequestFailed
from ringback.protocol.sessions import LegacySessionId, NegotiatedProtocol, OnStreamPosition, StreamPosition
from ringback.upstreams.session_ports import LegacySessionPort, NotificationStreamPort, OnElicitation

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
Reply = dict[str, Any] | RequestFailed


class ScriptedSession:
    """A session with one reply after the other, and the last of them for ever; reports some progress before each."""

    def __init__(
        self,
        *replies: Reply,
        progress: tuple[tuple[float, float | None, str | None], ...] = (),
        negotiated: NegotiatedProtocol | None = None,
    ) -> None:
        self._replies = list(replies)
        self._progress = progress
        self.protocol = negotiated or NegotiatedProtocol(protocol_version=LATEST_MODERN_VERSION)
        self.server_fingerprint: ServerFingerprint | None = None
        self.requests: list[tuple[str, Mapping[str, Any]]] = []
        self.declared_capabilities: list[Mapping[str, Any] | None] = []
        self.scripted_legacy_session = ScriptedLegacySession(self)
        self.stream_positions: list[StreamPosition] = []
        """The stream places reported to the next request that accepts them."""

    def get_tool(self, name: str) -> ToolInfo | None:  # noqa: ARG002 - a Session's name
        return None

    @asynccontextmanager
    async def open_notification_stream(
        self,
        notification_filter: Mapping[str, Any],  # noqa: ARG002 - a Session's name
        *,
        client_capabilities: Mapping[str, Any],  # noqa: ARG002 - a Session's name
    ) -> AsyncGenerator[NotificationStreamPort | None]:
        yield None

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        client_capabilities: Mapping[str, Any] | None = None,
        on_progress: ProgressFnT | None = None,
        on_position: OnStreamPosition | None = None,
    ) -> dict[str, Any]:
        self.requests.append((method, params))
        self.declared_capabilities.append(client_capabilities)
        for progress in self._progress:
            assert on_progress is not None
            await on_progress(*progress)
        while on_position is not None and self.stream_positions:
            on_position(self.stream_positions.pop(0))
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, RequestFailed):
            raise reply
        return reply

    @property
    def legacy_session(self) -> LegacySessionPort:
        return self.scripted_legacy_session

    @asynccontextmanager
    async def rejoin_session(self, session_id: LegacySessionId) -> AsyncGenerator[LegacySessionPort]:
        self.scripted_legacy_session.session_id = session_id
        self.scripted_legacy_session.rejoin_count += 1
        yield self.scripted_legacy_session


class ScriptedLegacySession:
    """Implements `drivers.StatefulSession` over the replies of its session."""

    def __init__(self, session: ScriptedSession) -> None:
        self._session = session
        self.session_id: LegacySessionId | None = None
        self.rejoin_count = 0
        self.retry_seconds = 0.0
        self.resumed_positions: list[StreamPosition] = []
        self.sent_notifications: list[tuple[str, Mapping[str, Any]]] = []
        self.sent_responses: list[tuple[str, Mapping[str, Any]]] = []
        self.on_elicitation: OnElicitation | None = None
        self.answer_failures: list[RequestFailed] = []
        """What answers raise, one each."""

    def keep_alive(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def send_request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._session.send_request(method, params)

    async def resume_stream(
        self, position: StreamPosition, *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        self.resumed_positions.append(position)
        return await self._session.send_request("resume", {}, on_progress=on_progress)

    async def send_notification(self, method: str, params: Mapping[str, Any]) -> None:
        self.sent_notifications.append((method, params))

    @contextmanager
    def handle_elicitations(self, on_elicitation: OnElicitation) -> Generator[None]:
        self.on_elicitation = on_elicitation
        yield
        self.on_elicitation = None

    async def answer_elicitation(self, request_id: str, answer: Mapping[str, Any]) -> None:
        if self.answer_failures:
            raise self.answer_failures.pop(0)
        self.sent_responses.append((request_id, answer))
