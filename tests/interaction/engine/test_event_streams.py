"""Streams over the log: one reader for all streams of a principal, and what a slow stream or an old cursor gets."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from ringback.api.routes.events import EventStreamResponse
from ringback.domain.clock import Clock, SystemClock
from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.errors import StoreUnavailable
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal
from ringback.domain.signals import log_appended_topic
from ringback.services.events import log_tails
from ringback.services.events.event_polls import EventRequest
from ringback.services.events.event_streams import EventStreams, StreamPage
from ringback.services.events.events import EventPage, read_event_page
from ringback.services.events.log_tails import PENDING_EVENTS_MAX, LogTails
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer, Quotas
from tests.support.builders import make_call, make_event
from tests.support.clock import ManualClock
from tests.support.engine import Engine
from tests.support.examples import ALICE
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import wait_until_true

CALLER = Caller(principal=ALICE, scopes=DEFAULT_SCOPES)


class StreamStage:
    def __init__(self, engine: Engine, clock: Clock | None = None) -> None:
        self.engine = engine
        self.clock = clock or SystemClock()
        self.tails = LogTails(engine.store)
        self.lifecycle = Lifecycle()
        self.streams = EventStreams(
            store=engine.store,
            clock=self.clock,
            quotas=QuotaEnforcer(Quotas(), clock=self.clock),
            lifecycle=self.lifecycle,
            tails=self.tails,
        )

    @asynccontextmanager
    async def open(self, cursor: str | None = None, **filters: str) -> AsyncGenerator[AsyncGenerator[StreamPage]]:
        request = EventRequest(event_filter=EventFilter(**filters), cursor=cursor)  # pyright: ignore[reportArgumentType]
        async with aclosing(self.streams.follow_events(CALLER, request, heartbeat_seconds=WAIT_SECONDS)) as pages:
            yield pages


async def read_page(pages: AsyncGenerator[StreamPage]) -> StreamPage:
    async with asyncio.timeout(WAIT_SECONDS):
        return await anext(pages)


@pytest.fixture
def stage(still: Engine) -> StreamStage:
    return StreamStage(still)


async def test_streams_of_a_principal_share_one_reader_which_ends_with_the_last(stage: StreamStage) -> None:
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(stage.open(tool=tool)) for tool in ("a", "b", "a")]
        for pages in streams:
            await read_page(pages)
        waiting = [asyncio.create_task(read_page(pages)) for pages in streams]
        await wait_until_true(lambda: stage.tails.tail_count > 0)
        assert stage.tails.tail_count == 1
        for tool in ("a", "b"):
            await stage.engine.finish_call(make_call(tool=tool))
        found = [[event.tool for event in (await page).events] for page in waiting]

    assert found == [["a"], ["b"], ["a"]]
    assert stage.tails.tail_count == 0


async def test_streams_of_rest_and_mcp_share_one_reader(stage: StreamStage) -> None:
    over_rest = stage.streams.follow_log(CALLER, EventFilter(), cursor=None)
    async with aclosing(over_rest), stage.open() as over_mcp:
        for pages in (over_rest, over_mcp):
            await read_page(pages)
        waiting = [asyncio.create_task(read_page(pages)) for pages in (over_rest, over_mcp)]
        await wait_until_true(lambda: stage.tails.tail_count > 0)
        assert stage.tails.tail_count == 1
        await stage.engine.finish_call(make_call())
        found = [[event.seq for event in (await page).events] for page in waiting]

    assert found == [[1], [1]]


async def test_a_slow_stream_misses_nothing(stage: StreamStage) -> None:
    count = PENDING_EVENTS_MAX + 5
    seqs: list[int] = []
    async with stage.open() as pages:
        await read_page(pages)
        await stage.engine.finish_call(make_call())
        seqs += [event.seq for event in (await read_page(pages)).events]
        for _ in range(count):
            await stage.engine.finish_call(make_call())
        while len(seqs) < count + 1:
            seqs += [event.seq for event in (await read_page(pages)).events]

    assert seqs == list(range(1, count + 2))


async def test_a_slow_stream_holds_few_large_events_and_misses_none(stage: StreamStage) -> None:
    large: dict[str, Any] = {"objects": [{}] * 21_000}
    appended = [make_event(seq=seq, data=data) for seq, data in enumerate(({}, {}, large, {}), 1)]
    async with stage.tails.subscribe(ALICE, EventFilter()) as subscription:
        await wait_until_true(lambda: subscription.tail_has_started)
        held: list[int] = []
        for event in appended:
            await stage.engine.store.write(partial(append, event=event))
            await wait_until_true(lambda seq=event.seq: subscription.tail_position.seq == seq)
            held.append(0 if subscription.has_overflowed else event.seq)
        assert (held, list(subscription.pop_events())) == ([1, 2, 0, 0], [])

    async with stage.open(cursor=encode_log_position(LogPosition(0))) as pages:
        found: list[Event] = []
        while len(found) < len(appended):
            found += (await read_page(pages)).events
    assert found == appended


async def append(tx: Transaction, *, event: Event) -> None:
    assert await tx.events.reserve_seqs(event.principal, 1) == event.seq
    await tx.events.insert([event])
    tx.notify(log_appended_topic(event.principal))


async def test_a_stream_does_not_keep_its_first_page_in_memory(stage: StreamStage) -> None:
    """It kept the page, of two megabytes at most, until it ended a quarter of an hour later."""
    first = await stage.engine.finish_call(make_call(tool="first"))
    pages = stage.streams.follow_log(CALLER, EventFilter(), cursor=None)
    frames = aiter(EventStreamResponse(await read_page(pages), pages).body_iterator)
    assert first.id in "".join([str(await anext(frames)) for _ in range(2)])

    await stage.engine.finish_call(make_call(tool="second"))
    async with asyncio.timeout(WAIT_SECONDS), aclosing(pages):
        await anext(frames)
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, StreamPage)]

    assert [event.tool for page in kept for event in page.events] == ["second"]


async def test_a_busy_stream_has_heartbeats_too(still: Engine) -> None:
    clock, sizes = ManualClock(), list[int]()
    async with StreamStage(still, clock).open() as pages:
        await read_page(pages)
        for number in range(1, 5):
            await still.finish_call(make_call())
            while sum(sizes) < number:
                sizes.append(len((await read_page(pages)).events))
            clock.advance(WAIT_SECONDS * 0.6)

    assert sizes.count(0) > 0
    assert sizes.count(1) == 4


async def test_a_stream_that_began_just_before_the_store_went_away_has_heartbeats_and_then_misses_nothing(
    still: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tails, "RETRY_SECONDS", 0.01)
    clock, is_away, read_head = ManualClock(), True, log_tails._read_head  # pyright: ignore[reportPrivateUsage] - only it fails

    async def fail_or_read(tx: Transaction, principal: Principal) -> LogPosition:
        if is_away:
            raise StoreUnavailable("The database is away.")
        return await read_head(tx, principal)

    monkeypatch.setattr(log_tails, "_read_head", fail_or_read)
    stage = StreamStage(still, clock)
    async with stage.open() as pages:
        await read_page(pages)
        heartbeat = asyncio.create_task(read_page(pages))
        await wait_until_true(lambda: stage.tails.tail_count > 0)
        await still.finish_call(make_call())
        clock.advance(WAIT_SECONDS)
        stage.lifecycle.shutdown_flag.set()
        stage.lifecycle.shutdown_flag.clear()
        assert (await heartbeat).events == ()

        is_away = False
        found = [event.seq for event in (await read_page(pages)).events]

    assert found == [1]


async def test_a_stream_whose_store_is_away_ends_with_the_service(
    still: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> LogPosition:
        raise StoreUnavailable("The database is away.")

    monkeypatch.setattr(log_tails, "_read_head", fail)
    stage = StreamStage(still)
    async with stage.open() as pages:
        await read_page(pages)
        ending = asyncio.create_task(read_page(pages))
        await wait_until_true(lambda: stage.tails.tail_count > 0)
        stage.lifecycle.begin_shutdown()

        with pytest.raises(StopAsyncIteration):
            await ending


@pytest.mark.parametrize("cursor", ["no-cursor-of-ours", encode_log_position(LogPosition(99))])
async def test_an_unknown_cursor_is_no_error_and_truncated(stage: StreamStage, cursor: str) -> None:
    async with stage.open(cursor) as pages:
        first = await read_page(pages)

    assert first.is_truncated
    assert first.events == ()


async def test_streams_receive_events_again_after_a_read_that_failed_in_an_unexpected_way(
    stage: StreamStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([RuntimeError("a bug")])

    async def fail_once(*args: Any, **options: Any) -> EventPage:
        if (failure := next(failures, None)) is not None:
            raise failure
        return await read_event_page(*args, **options)

    monkeypatch.setattr(log_tails, "read_event_page", fail_once)
    async with stage.open() as pages:
        await read_page(pages)
        for _ in range(2):  # the stream reads the first by itself if the tail begins after it
            await stage.engine.finish_call(make_call())
            assert len((await read_page(pages)).events) == 1

    assert "events.log_not_read" in caplog.text
