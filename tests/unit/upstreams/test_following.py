"""How the events of one type are read at an upstream: by poll, by stream, and when the upstream sends more than was asked for."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import anyio

from ringback.upstreams.events.event_frames import EventFrames
from ringback.upstreams.events.following import Following
from ringback.upstreams.events.occurrences import EVENTS_PER_PAGE, FollowedEvents, OccurrencePage
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.session import UpstreamSession
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS

FOLLOWED: Final = FollowedEvents("github", "pr.opened", "{}")


def make_occurrences(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"eventId": f"e{number}", "name": "pr.opened", "data": {}} for number in range(first, first + count)]


class ScriptedEvents:
    """A connection, its session and its upstream: it answers each poll from a list, and keeps what is stored."""

    def __init__(self, *results: Mapping[str, Any]) -> None:
        self.results = list(results)
        self.params: list[Mapping[str, Any]] = []
        """Of each request."""
        self.pages: list[OccurrencePage] = []
        self.turns: list[int] = []
        self.streams: asyncio.Queue[EventFrames] = asyncio.Queue()
        """The streams that were opened and that the test has not taken."""
        self.faults = FaultCounter("github", clock=FakeClock())
        self.replaced = anyio.Event()
        self.closed = anyio.Event()
        self._stored = asyncio.Event()

    async def get_shared_session(self, *, started_here: bool) -> UpstreamSession:
        assert started_here is False
        return cast("UpstreamSession", self)

    async def send_request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        assert method == "events/poll"
        self.params.append(params)
        if not self.results:
            await asyncio.Event().wait()
        return dict(self.results.pop(0))

    @asynccontextmanager
    async def open_event_stream(self, params: Mapping[str, Any]) -> AsyncGenerator[EventFrames]:
        self.params.append(params)
        frames = EventFrames()
        self.streams.put_nowait(frames)
        yield frames

    async def store_page(self, followed: FollowedEvents, page: OccurrencePage) -> None:
        assert followed == FOLLOWED
        self.pages.append(page)
        self._stored.set()

    async def wait_for_turn(self, event_count: int) -> None:
        self.turns.append(event_count)

    async def wait_until_asked(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.params) < count:
                await asyncio.sleep(0)

    async def wait_for_pages(self, count: int) -> Sequence[OccurrencePage]:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.pages) < count:
                self._stored.clear()
                await self._stored.wait()
        return self.pages

    async def next_stream(self) -> EventFrames:
        return await asyncio.wait_for(self.streams.get(), WAIT_SECONDS)


@asynccontextmanager
async def following(
    events: ScriptedEvents, *, streams: bool = False, cursor: str | None = None
) -> AsyncGenerator[None]:
    running = asyncio.create_task(
        Following(
            FOLLOWED,
            cursor=cursor,
            streams=lambda: streams,
            connections={"github": events},
            store_page=events.store_page,
            wait_for_turn=events.wait_for_turn,
            clock=FakeClock(),
        ).run()
    )
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_result_of_any_length_is_stored_in_pages_with_a_turn_each() -> None:
    count = 2 * EVENTS_PER_PAGE + 5
    events = ScriptedEvents({"events": make_occurrences(count), "cursor": "after", "truncated": True})

    async with following(events, cursor="before"):
        pages = await events.wait_for_pages(3)
        await events.wait_until_asked(2)

    assert [len(page.events) for page in pages] == events.turns == [EVENTS_PER_PAGE, EVENTS_PER_PAGE, 5]
    assert [event.id for page in pages for event in page.events] == [f"github:e{number}" for number in range(count)]
    assert [page.cursor for page in pages] == ["before", "before", "after"]
    assert [page.is_truncated for page in pages] == [True, False, False]
    assert events.params[1]["cursor"] == "after"


async def test_malformed_events_wait_for_their_turn_as_others_do() -> None:
    events = ScriptedEvents({"events": [None] * (EVENTS_PER_PAGE + 1), "cursor": "after"})

    async with following(events):
        await events.wait_for_pages(2)

    assert events.turns == [EVENTS_PER_PAGE, 1]
