"""An upstream with events of its own, as a following sees it: scripted results of polls, and streams that the test fills."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self, cast

import anyio

from ringback.upstreams.events.event_frames import EventFrames
from ringback.upstreams.events.occurrences import FollowedEvents, UpstreamEventPage
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.session import UpstreamSession
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS

FOLLOWED: Final = FollowedEvents("github", "pr.opened", "{}")


def make_occurrences(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"eventId": f"e{number}", "name": "pr.opened", "data": {}} for number in range(first, first + count)]


class ScriptedEvents:
    """A connection, its session and its upstream: it answers each poll from a list, and keeps what is stored."""

    def __init__(self, *results: Mapping[str, Any] | Exception) -> None:
        self.results = list(results)
        self.params: list[Mapping[str, Any]] = []
        """Of each request."""
        self.pages: list[UpstreamEventPage] = []
        self.turns: list[int] = []
        self.streams: asyncio.Queue[EventFrames] = asyncio.Queue()
        """The streams that were opened and that the test has not taken."""
        self.faults = FaultCounter("github", clock=FakeClock())
        self.replaced = anyio.Event()
        self.closed = anyio.Event()
        self._changed = asyncio.Event()

    async def get_shared_session(self, *, started_here: bool) -> UpstreamSession:
        assert started_here is False
        return cast("UpstreamSession", self)

    async def send_request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        assert method == "events/poll"
        self.params.append(params)
        self._changed.set()
        if not self.results:
            await asyncio.Event().wait()
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return dict(result)

    @property
    def stream_opener(self) -> Self:
        return self

    @asynccontextmanager
    async def open_event_stream(self, params: Mapping[str, Any]) -> AsyncGenerator[EventFrames]:
        self.params.append(params)
        frames = EventFrames()
        self.streams.put_nowait(frames)
        yield frames

    async def store_page(self, followed: FollowedEvents, page: UpstreamEventPage) -> None:
        assert followed == FOLLOWED
        self.pages.append(page)
        self._changed.set()

    async def wait_for_turn(self, event_count: int) -> None:
        self.turns.append(event_count)

    async def wait_until_asked(self, count: int) -> None:
        await self._wait_until(lambda: len(self.params) >= count)

    async def wait_for_pages(self, count: int) -> Sequence[UpstreamEventPage]:
        await self._wait_until(lambda: len(self.pages) >= count)
        return self.pages

    async def _wait_until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def next_stream(self) -> EventFrames:
        return await asyncio.wait_for(self.streams.get(), WAIT_SECONDS)
