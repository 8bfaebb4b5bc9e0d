"""Sessions that answer what a test wants, for drivers."""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Any, Final

from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import LATEST_MODERN_VERSION

from ringback.domain.upstreams import ToolInfo
from ringback.runner.drivers import NegotiatedProtocol, NotificationStreamPort
from ringback.runner.drivers.base import OnStreamPosition, OnElicitation, StreamPosition, LegacySessionId, LegacySessionPort
from ringback.runner.failures import RequestFailed

TASKS: Final = "io.modelcontextprotocol/tasks"
Reply = dict[str, Any] | RequestFailed


class Answering:
    """A session with one reply after the other, and the last of them for ever; tells some progress before each."""

    def __init__(
        self,
        *replies: Reply,
        progress: tuple[tuple[float, float | None, str | None], ...] = (),
        negotiated: NegotiatedProtocol | None = None,
    ) -> None:
        self._replies = list(replies)
        self._progress = progress
        self.negotiated = negotiated or NegotiatedProtocol(protocol_version=LATEST_MODERN_VERSION)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.declared: list[Mapping[str, Any] | None] = []
        self.held = Held(self)
        self.places: list[StreamPosition] = []
        """Told with the next request that wants to hear of places."""

    def tool(self, name: str) -> ToolInfo | None:  # noqa: ARG002 - a Session's name
        return None

    @asynccontextmanager
    async def listen(
        self,
        notifications: Mapping[str, Any],  # noqa: ARG002 - a Session's name
        *,
        declare: Mapping[str, Any],  # noqa: ARG002 - a Session's name
    ) -> AsyncGenerator[NotificationStreamPort | None]:
        yield None

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        declare: Mapping[str, Any] | None = None,
        on_progress: ProgressFnT | None = None,
        on_place: OnStreamPosition | None = None,
    ) -> dict[str, Any]:
        self.asked.append((method, params))
        self.declared.append(declare)
        for told in self._progress:
            assert on_progress is not None
            await on_progress(*told)
        while on_place is not None and self.places:
            on_place(self.places.pop(0))
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, RequestFailed):
            raise reply
        return reply

    @property
    def stateful(self) -> LegacySessionPort:
        return self.held

    @asynccontextmanager
    async def rejoined(self, name: LegacySessionId) -> AsyncGenerator[LegacySessionPort]:
        self.held.name = name
        self.held.rejoined += 1
        yield self.held


class Held:
    """Implements `drivers.StatefulSession` over the replies of its session."""

    def __init__(self, session: Answering) -> None:
        self._session = session
        self.name: LegacySessionId | None = None
        self.rejoined = 0
        self.resumed: list[StreamPosition] = []
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self.replied: list[tuple[str, Mapping[str, Any]]] = []
        self.on_question: OnElicitation | None = None

    def named(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._session.request(method, params)

    async def resume(self, place: StreamPosition, *, on_progress: ProgressFnT | None = None) -> dict[str, Any]:
        self.resumed.append(place)
        return await self._session.request("resume", {}, on_progress=on_progress)

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        self.told.append((method, params))

    @contextmanager
    def answering(self, on_question: OnElicitation) -> Generator[None]:
        self.on_question = on_question
        yield
        self.on_question = None

    async def reply(self, name: str, answer: Mapping[str, Any]) -> None:
        self.replied.append((name, answer))
