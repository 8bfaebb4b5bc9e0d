"""How the events of one type are read at an upstream: by poll, by stream, and when it sends more than was asked for."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from ringback.domain.clock import Clock
from ringback.protocol.errors import ResponseLost, UpstreamError
from ringback.protocol.mcp_events.names import EventNotification
from ringback.upstreams.events import stream_silence
from ringback.upstreams.events.event_frames import QUEUED_FRAMES_MAX, EventFrames
from ringback.upstreams.events.following import REJECTED_RETRY_SECONDS, RETRY_SECONDS, Following
from ringback.upstreams.events.occurrences import EVENTS_PER_PAGE
from ringback.upstreams.events.stream_silence import INTERVALS_MIN
from ringback.upstreams.transports.paced_streams import PacedStreams
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS
from tests.support.scripted_events import FOLLOWED, ScriptedEvents, make_occurrences


@asynccontextmanager
async def following(
    events: ScriptedEvents,
    *,
    streams: bool = False,
    cursor: str | None = None,
    is_resumed: bool = False,
    clock: Clock | None = None,
) -> AsyncGenerator[None]:
    running = asyncio.create_task(
        Following(
            FOLLOWED,
            cursor=cursor,
            is_resumed=is_resumed,
            streams=lambda: streams,
            connections={"github": events},
            store_page=events.store_page,
            wait_for_turn=events.wait_for_turn,
            clock=clock or FakeClock(),
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


class RecordedPauses(FakeClock):
    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await super().sleep(seconds)


async def test_polls_follow_each_other_as_the_upstream_asks_and_carry_the_cursor_of_the_last_result() -> None:
    events, clock = (
        ScriptedEvents(
            {"events": make_occurrences(1), "cursor": "1", "hasMore": True, "nextPollMs": 3000},
            {"events": make_occurrences(1, 1), "cursor": "2", "hasMore": False, "nextPollMs": 2000},
            {"events": [], "cursor": "3", "nextPollMs": 0},
            {"events": [], "cursor": "fresh", "truncated": True, "nextPollMs": 0},
            {"events": [], "cursor": None, "nextPollMs": 1000},
            {"events": [], "nextPollMs": 1000},
        ),
        RecordedPauses(),
    )
    async with following(events, clock=clock):
        await events.wait_until_asked(7)

    assert clock.pauses == [0.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    assert [each["cursor"] for each in events.params] == [None, "1", "2", "3", "fresh", None, None]


async def test_an_upstream_that_refuses_is_asked_again_after_half_a_minute_and_one_that_is_away_soon() -> None:
    refused, lost = UpstreamError({"code": -32602, "message": "no"}), ResponseLost("lost")
    events, clock = ScriptedEvents(refused, lost), RecordedPauses()

    async with following(events, clock=clock):
        await events.wait_until_asked(3)

    assert clock.pauses == [REJECTED_RETRY_SECONDS, RETRY_SECONDS]


async def test_a_stream_that_is_refused_or_terminated_is_opened_again_after_half_a_minute() -> None:
    events, clock = ScriptedEvents(), RecordedPauses()
    async with following(events, streams=True, clock=clock):
        refused = await events.next_stream()
        refused.failure = UpstreamError({"code": -32602, "message": "no"})
        refused.end()
        terminated = await events.next_stream()
        terminated.put_notification(EventNotification.TERMINATED, {"error": {}})
        (await events.next_stream()).end()
        await events.next_stream()

    assert clock.pauses == [REJECTED_RETRY_SECONDS, REJECTED_RETRY_SECONDS, RETRY_SECONDS]


async def test_malformed_events_wait_for_their_turn_as_others_do() -> None:
    events = ScriptedEvents({"events": [None] * (EVENTS_PER_PAGE + 1), "cursor": "after"})

    async with following(events):
        await events.wait_for_pages(2)

    assert events.turns == [EVENTS_PER_PAGE, 1]


# -- streams --


def put_event(frames: EventFrames, number: int) -> None:
    (occurrence,) = make_occurrences(1, number)
    frames.put_notification(EventNotification.EVENT, occurrence)


def put_active(frames: EventFrames, cursor: str | None = None) -> None:
    frames.put_notification(EventNotification.ACTIVE, {"cursor": cursor, "truncated": False})


async def test_a_response_waits_while_the_queue_of_its_stream_is_full() -> None:
    frames, paced = EventFrames(), PacedStreams()
    with paced.pace("ringback-events-1", frames.wait_for_space):
        for number in range(QUEUED_FRAMES_MAX):
            await asyncio.wait_for(paced.wait_for_space("ringback-events-1"), WAIT_SECONDS)
            put_event(frames, number)
        waiting = asyncio.create_task(paced.wait_for_space("ringback-events-1"))
        await asyncio.sleep(0)
        assert not waiting.done()

        await frames.next_frames(limit=1)

        await asyncio.wait_for(waiting, WAIT_SECONDS)
    assert frames.has_overflowed is False


async def test_a_response_does_not_wait_for_a_stream_that_has_ended() -> None:
    frames = EventFrames()
    for number in range(QUEUED_FRAMES_MAX):
        put_event(frames, number)

    frames.end()

    await asyncio.wait_for(frames.wait_for_space(), WAIT_SECONDS)


@pytest.mark.parametrize(("cursor", "is_gap"), [(None, True), ("7", False)])
async def test_the_time_between_two_streams_is_a_gap_of_an_upstream_that_gives_no_cursor(
    cursor: str | None,
    is_gap: bool,  # noqa: FBT001
) -> None:
    events = ScriptedEvents()
    async with following(events, streams=True):
        first = await events.next_stream()
        put_active(first, cursor)
        await events.wait_for_pages(1)
        first.end()
        put_active(await events.next_stream(), cursor)
        pages = await events.wait_for_pages(2)

    assert [page.is_truncated for page in pages] == [False, is_gap]
    assert [each["cursor"] for each in events.params] == [None, cursor]


@pytest.mark.parametrize(("cursor", "is_gap"), [(None, True), ("7", False)])
async def test_a_restart_is_a_gap_of_an_upstream_that_gives_no_cursor(
    cursor: str | None,
    is_gap: bool,  # noqa: FBT001
) -> None:
    events = ScriptedEvents()
    async with following(events, streams=True, cursor=cursor, is_resumed=True):
        put_active(await events.next_stream())
        (page,) = await events.wait_for_pages(1)

    assert page.is_truncated is is_gap


@pytest.mark.parametrize(("cursor", "is_gap"), [(None, True), ("7", False)])
async def test_a_stream_whose_heartbeats_end_is_opened_again_at_the_cursor_of_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
    cursor: str | None,
    is_gap: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(stream_silence, "SLACK_SECONDS", 0.1)
    events = ScriptedEvents()
    async with following(events, streams=True):
        first = await events.next_stream()
        for number in range(INTERVALS_MIN + 1):
            first.put_notification(EventNotification.HEARTBEAT, {"cursor": cursor})
            await events.wait_for_pages(number + 1)
        put_active(await events.next_stream(), cursor)
        pages = await events.wait_for_pages(INTERVALS_MIN + 2)

    assert pages[-1].is_truncated is is_gap
    assert [each["cursor"] for each in events.params] == [None, cursor]


async def test_a_stream_that_overflows_at_its_cursor_goes_on_from_now_with_a_gap() -> None:
    events = ScriptedEvents()
    async with following(events, streams=True, cursor="7", is_resumed=True):
        first = await events.next_stream()
        put_active(first, "7")
        number = 0
        while not first.has_overflowed:
            put_event(first, number)
            number += 1
        second = await events.next_stream()
        stored = len(events.pages)
        put_active(second, "900")
        pages = await events.wait_for_pages(stored + 1)

    assert [each["cursor"] for each in events.params] == ["7", None]
    assert pages[stored].is_truncated
