"""Hourly counts: each start, end, delivery and attempt counts once, however the counting is interrupted or repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import StoreUnavailable
from ringback.domain.event import EventName, build_call_event
from ringback.domain.ids import EventId, IdGenerator
from ringback.domain.insight_rows import FactBatch, FactStream, HourRange
from ringback.domain.insights import HOUR, HourInsights, describe_hour, hour_of
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal
from ringback.domain.roles import COUNT_DUTY
from ringback.domain.suspension import FREEZE_SECONDS
from ringback.janitor import hour_counter
from ringback.janitor.hour_counter import SETTLE_SECONDS, HourCounter
from ringback.leadership import Leadership
from ringback.services.insights import tails
from ringback.services.insights.overviews import OverviewReader
from ringback.services.insights.tails import TAIL_TTL_SECONDS
from ringback.storage.rows.insights import SqlInsights
from tests.support.builders import make_attempt, make_call, make_delivery, make_identity_erasure
from tests.support.clock import START, FakeClock
from tests.support.examples import ALICE, BOB
from tests.support.stores import StoreWrapper

T = TypeVar("T")

UPSTREAMS = ("git", "time")
RANGE = HourRange(since=hour_of(START), until=hour_of(START) + HOUR)
CALLS_OF_ALICE, CALLS_OF_BOB = 9, 3
OUTCOMES = (CallOutcome.RESULT, CallOutcome.TIMED_OUT, CallOutcome.TOOL_ERROR)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hour_counter, "BATCH_SIZE", 4)


@pytest.fixture
async def work(store: Store, clock: FakeClock) -> None:
    """Twelve ended calls of two principals; for each a delivery that has ended, and two attempts of it."""
    await store.write(lambda tx: insert_work(tx, ALICE, CALLS_OF_ALICE))
    await store.write(lambda tx: insert_work(tx, BOB, CALLS_OF_BOB))
    clock.advance(2 * SETTLE_SECONDS)


async def insert_work(tx: Transaction, principal: Principal, count: int) -> None:
    for number in range(count):
        call = make_ended_call(number, principal)
        await tx.calls.insert(call)
        first, _ = await tx.events.reserve_places(principal, 2)
        await tx.events.insert(
            [
                build_call_event(name, call, event_id=EventId(f"evt_{call.id}{name}"), seq=first + place, now=START)
                for place, name in enumerate((EventName.CALL_PROGRESS, EventName.CALL_FINISHED))
            ]
        )
        delivery = make_delivery(
            principal=principal,
            call_id=call.id,
            state=DeliveryState.DEAD if number % 3 == 1 else DeliveryState.DELIVERED,
            finished_at=START + timedelta(seconds=number),
        )
        await tx.deliveries.insert([delivery])
        categories = (AttemptCategory.HTTP_5XX, AttemptCategory.DELIVERED)
        await tx.delivery_queue.insert_attempts([make_attempt(delivery, category=each) for each in categories])


def make_ended_call(number: int, principal: Principal, **over: Any) -> Call:
    outcome = OUTCOMES[number % 3]
    ended: dict[str, Any] = {
        "principal": principal,
        "upstream": UPSTREAMS[number % 2],
        "status": CallStatus.FAILED if outcome is CallOutcome.TIMED_OUT else CallStatus.COMPLETED,
        "phase": CallPhase.ENDED,
        "outcome": outcome,
        "dispatched_at": START,
        "finished_at": START,
    }
    return make_call(**ended | over)


def make_counter(store: Store, clock: FakeClock) -> HourCounter:
    leadership = Leadership(store=store, clock=clock, owner="alone", duty=COUNT_DUTY)
    return HourCounter(store=store, clock=clock, leadership=leadership)


async def count_all(counter: HourCounter) -> None:
    while await counter.run_once():
        pass


async def read_hour(store: Store, principal: Principal | None) -> HourInsights:
    counts = await store.read(lambda tx: tx.insights.list_hours(principal, RANGE))
    return describe_hour(RANGE.since, counts.get(RANGE.since, {}))


async def read_overview_hour(store: Store, clock: FakeClock, principal: Principal) -> HourInsights:
    return await read_hour_again(OverviewReader(store=store, clock=clock), principal)


async def read_hour_again(reader: OverviewReader, principal: Principal) -> HourInsights:
    caller = Caller(principal=principal, scopes=DEFAULT_SCOPES)
    overview = await reader.read_overview(caller, hours=1, upstreams=UPSTREAMS)
    assert sum(each.calls_started for each in overview.upstreams) == overview.hours[0].calls_started
    return overview.hours[0]


async def insert_calls_now(store: Store, clock: FakeClock, count: int) -> None:
    ids = IdGenerator(clock)
    calls = [
        make_call(id=ids.new_call_id(), created_at=clock.now(), principal=ALICE, upstream="git") for _ in range(count)
    ]

    async def insert(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    await store.write(insert)


def require_all_counted(hour: HourInsights, calls: int) -> None:
    assert hour.calls_started == hour.calls_ended == hour.call_duration.total == calls
    assert hour.calls_by_outcome == dict.fromkeys(OUTCOMES, calls // 3)
    assert (hour.deliveries_delivered, hour.deliveries_dead) == (calls - calls // 3, calls // 3)
    assert hour.delivery_latency.total == hour.deliveries_delivered
    assert hour.attempts_by_category == {AttemptCategory.HTTP_5XX: calls, AttemptCategory.DELIVERED: calls}


async def test_a_duration_is_without_the_time_in_the_queue_and_calls_that_were_never_sent_have_none(
    store: Store, clock: FakeClock
) -> None:
    waited = {"created_at": START - timedelta(hours=6), "not_before": START - timedelta(hours=1)}
    calls = [
        make_ended_call(0, ALICE, **waited, dispatched_at=START - timedelta(seconds=2)),
        make_ended_call(1, ALICE, **waited, dispatched_at=None),
    ]

    async def insert(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)
            seq, _ = await tx.events.reserve_places(ALICE, 1)
            event_id = EventId(f"evt_{call.id}")
            await tx.events.insert(
                [build_call_event(EventName.CALL_FINISHED, call, event_id=event_id, seq=seq, now=START)]
            )

    await store.write(insert)
    clock.advance(2 * SETTLE_SECONDS)
    await count_all(make_counter(store, clock))

    hour = await read_hour(store, ALICE)
    longest_ms = hour.call_duration.percentile_ms(1.0)
    assert (hour.calls_ended, hour.call_duration.total) == (2, 1)
    assert longest_ms is not None
    assert 2_000 <= longest_ms < 4_000


@pytest.mark.usefixtures("work")
async def test_everything_counts_once_for_its_principal_and_for_all_also_when_counted_again(
    store: Store, clock: FakeClock
) -> None:
    before = await read_overview_hour(store, clock, ALICE)
    await count_all(make_counter(store, clock))
    await count_all(make_counter(store, clock))

    require_all_counted(await read_hour(store, ALICE), CALLS_OF_ALICE)
    require_all_counted(await read_hour(store, BOB), CALLS_OF_BOB)
    require_all_counted(await read_hour(store, None), CALLS_OF_ALICE + CALLS_OF_BOB)
    assert before == await read_overview_hour(store, clock, ALICE), "readers count what is not written yet"


@pytest.mark.usefixtures("work")
async def test_a_reader_counts_nothing_twice_while_the_counter_writes(store: Store, clock: FakeClock) -> None:
    reader = OverviewReader(store=store, clock=clock)
    counter = make_counter(store, clock)
    has_more = True
    while has_more:
        require_all_counted(await read_hour_again(reader, ALICE), CALLS_OF_ALICE)
        has_more = await counter.run_once()

    clock.advance(2 * TAIL_TTL_SECONDS)
    require_all_counted(await read_hour_again(reader, ALICE), CALLS_OF_ALICE)


async def test_a_reader_counts_the_newest_rows_of_a_busy_minute_and_those_that_are_committed_late(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "PAGE_ROWS", 100)
    reader = OverviewReader(store=store, clock=clock)
    await insert_calls_now(store, clock, 110)
    assert (await read_hour_again(reader, ALICE)).calls_started == 110
    clock.advance(2 * TAIL_TTL_SECONDS)
    late = FakeClock(clock.now() - timedelta(seconds=1))
    await insert_calls_now(store, clock, 5)
    assert (await read_hour_again(reader, ALICE)).calls_started == 115

    await insert_calls_now(store, late, 1)
    clock.advance(2 * TAIL_TTL_SECONDS)
    assert (await read_hour_again(reader, ALICE)).calls_started == 116
    clock.advance(2 * TAIL_TTL_SECONDS)
    assert (await read_hour_again(reader, ALICE)).calls_started == 116, "rows that are read again count once"


async def test_a_reader_counts_a_backlog_in_bounded_steps_and_says_while_it_is_not_complete(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tails, "PAGE_ROWS", 10)
    reader, caller = OverviewReader(store=store, clock=clock), Caller(principal=ALICE, scopes=DEFAULT_SCOPES)
    await insert_calls_now(store, clock, 65)
    seen: list[tuple[int, bool]] = []
    while not seen or not seen[-1][1]:
        overview = await reader.read_overview(caller, hours=1, upstreams=UPSTREAMS)
        seen.append((overview.hours[0].calls_started, overview.is_complete))

    assert seen == [(20, False), (40, False), (60, False), (65, True)]


@pytest.mark.usefixtures("work")
async def test_two_counters_at_once_and_one_that_dies_between_reading_and_writing_count_once(
    store: Store, clock: FakeClock
) -> None:
    dying = make_counter(LosingStore(store), clock)
    with pytest.raises(StoreUnavailable):
        await dying.run_once()
    await asyncio.gather(count_all(make_counter(store, clock)), count_all(make_counter(store, clock)))
    await count_all(make_counter(store, clock))

    require_all_counted(await read_hour(store, ALICE), CALLS_OF_ALICE)
    require_all_counted(await read_hour(store, None), CALLS_OF_ALICE + CALLS_OF_BOB)


@pytest.mark.usefixtures("work")
async def test_a_clock_that_was_set_back_counts_nothing_twice_and_young_rows_wait(
    store: Store, clock: FakeClock
) -> None:
    await count_all(make_counter(store, clock))
    clock.suspend(-24 * 3600)
    await count_all(make_counter(store, clock))
    clock.suspend(24 * 3600)
    young = make_call(id=IdGenerator(clock).new_call_id(), created_at=clock.now())
    await store.write(lambda tx: tx.calls.insert(young))
    await count_all(make_counter(store, clock))

    require_all_counted(await read_hour(store, ALICE), CALLS_OF_ALICE)


@pytest.mark.usefixtures("work")
async def test_counting_goes_on_after_a_clock_that_was_days_ahead_is_corrected(store: Store, clock: FakeClock) -> None:
    await count_all(make_counter(store, clock))
    before = (await read_hour(store, None)).calls_started
    clock.suspend(5 * 86_400)
    await insert_calls_now(store, clock, 3)
    clock.advance(2 * SETTLE_SECONDS)
    await count_all(make_counter(store, clock))

    clock.suspend(-5 * 86_400)
    await count_all(make_counter(store, clock))
    await insert_calls_now(store, clock, 4)
    clock.advance(2 * SETTLE_SECONDS)
    await count_all(make_counter(store, clock))

    assert (await read_hour(store, None)).calls_started == before + 4


async def test_calls_of_nodes_behind_a_step_of_the_stores_clock_are_counted(store: Store, clock: FakeClock) -> None:
    nodes = FakeClock(clock.now())
    clock.advance(10 * SETTLE_SECONDS)
    counter = make_counter(store, nodes)
    for _ in range(3):
        await insert_calls_now(store, nodes, 1)
        await count_all(counter)
        await insert_calls_now(store, nodes, 1)
        nodes.advance(2 * SETTLE_SECONDS)
        await count_all(counter)

    assert (await read_hour(store, ALICE)).calls_started == 6


@pytest.mark.usefixtures("work")
async def test_the_counts_of_an_upstream_have_its_calls_only(store: Store, clock: FakeClock) -> None:
    await count_all(make_counter(store, clock))

    counted = await store.read(lambda tx: tx.insights.list_upstream_hours(ALICE, ["git", "none"], RANGE))

    assert list(counted) == ["git"]
    assert counted["git"]["started"] == 5
    assert sum(number for label, number in counted["git"].items() if label.startswith("outcome:")) == 5


@pytest.mark.usefixtures("work")
async def test_an_erased_principal_has_no_counts_and_rows_that_were_read_before_count_for_all_only(
    store: Store, clock: FakeClock
) -> None:
    erasure = make_identity_erasure(BOB, requested_at=clock.now())

    async def erase_identity(tx: Transaction) -> None:
        await tx.erasures.insert(erasure)
        while await tx.erased_deliveries.delete_identity(erasure, limit=1):
            pass

    await count_all(make_counter(store, clock))
    await store.write(erase_identity)
    await store.write(lambda tx: insert_work(tx, BOB, CALLS_OF_BOB))
    clock.advance(2 * SETTLE_SECONDS)
    await count_all(make_counter(store, clock))

    assert (await read_hour(store, BOB)).calls_ended == 0
    require_all_counted(await read_hour(store, ALICE), CALLS_OF_ALICE)
    assert (await read_hour(store, None)).calls_ended == CALLS_OF_ALICE + 2 * CALLS_OF_BOB


@pytest.mark.usefixtures("work")
async def test_hours_before_the_cutoff_are_removed_in_batches(store: Store, clock: FakeClock) -> None:
    await count_all(make_counter(store, clock))

    kept = await store.write(lambda tx: tx.insights.remove(cutoff=RANGE.since, limit=100))
    removed = await store.write(lambda tx: tx.insights.remove(cutoff=RANGE.until, limit=2))

    assert (kept, removed) == (0, 2)


@pytest.mark.usefixtures("work")
async def test_a_step_that_takes_too_long_is_followed_by_one_of_half_its_rows(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step was of the same rows, so that nothing was counted any more, of no stream."""
    list_facts, limits = SqlInsights.list_facts, list[int]()

    async def list_slowly_at_first(self: SqlInsights, *arguments: Any, limit: int, **named: Any) -> FactBatch:
        limits.append(limit)
        if len(limits) == 1:
            clock.advance(2 * FREEZE_SECONDS)
            raise StoreUnavailable("The database cannot be used now: canceling statement due to statement timeout.")
        return await list_facts(self, *arguments, limit=limit, **named)

    monkeypatch.setattr(SqlInsights, "list_facts", list_slowly_at_first)
    counter = make_counter(store, clock)
    with pytest.raises(StoreUnavailable):
        await counter.run_once()
    await count_all(counter)

    assert limits[:3] == [4, 2, 4], "the first stream again, and the second one"
    assert limits[len(FactStream) + 1] == 3, "of the first stream, after a success"


class LosingStore(StoreWrapper):
    """Reads, and is unavailable for each write."""

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        del work
        raise StoreUnavailable("The disk is full.")
