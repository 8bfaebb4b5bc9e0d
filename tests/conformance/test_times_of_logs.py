"""The events of a log are created in the order of their places, so that a reader finds all events since an instant."""

import asyncio
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Store, Transaction
from tests.support.builders import make_event
from tests.support.clock import START, FakeClock
from tests.support.examples import ALICE
from tests.support.interleaving import Nodes
from tests.support.limits import WAIT_SECONDS


async def append(tx: Transaction, count: int = 1) -> datetime:
    first, created_at = await tx.events.reserve_places(ALICE, count)
    await tx.events.insert(
        [make_event(principal=ALICE, seq=seq, created_at=created_at) for seq in range(first, first + count)]
    )
    return created_at


async def read_times(store: Store) -> list[datetime]:
    events = await store.read(lambda tx: tx.events.list_after(ALICE, 0, EventFilter(), limit=10_000))
    return [event.created_at for event in events]


@given(steps=st.lists(st.tuples(st.integers(-5_000, 5_000), st.integers(1, 3)), min_size=1, max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
async def test_whatever_the_clock_does_every_event_since_an_instant_comes_after_the_place_that_is_found(
    store: Store, clock: FakeClock, steps: list[tuple[int, int]]
) -> None:
    for milliseconds, count in steps:
        clock._now += timedelta(milliseconds=milliseconds)  # pyright: ignore[reportPrivateUsage] - a clock that is set back
        await store.write(lambda tx, count=count: append(tx, count))
    times = await read_times(store)

    assert times == sorted(times)
    for instant in {*times, START}:
        place = await store.read(lambda tx, instant=instant: tx.event_log.last_seq_before(ALICE, instant))
        assert [seq for seq, time in enumerate(times, 1) if time >= instant] == list(range(place + 1, len(times) + 1))


async def test_events_after_one_that_a_clock_far_ahead_dated_have_their_own_times(
    store: Store, clock: FakeClock
) -> None:
    """Otherwise each callback would name an instant in forty days, for forty days."""

    async def append_end(tx: Transaction) -> datetime:
        places = await tx.log_appends.reserve_places({ALICE: 1})
        event = make_event(principal=ALICE, seq=places[ALICE].first_seq, created_at=places[ALICE].created_at)
        await tx.events.insert([event])
        return event.created_at

    for _ in range(3):
        clock.advance(1)
        await store.write(append)
    clock._now += timedelta(days=40)  # pyright: ignore[reportPrivateUsage]
    await store.write(append)
    clock._now -= timedelta(days=40)  # pyright: ignore[reportPrivateUsage]
    clock.advance(1)
    corrected = clock.now()

    assert await store.write(append) - corrected < timedelta(seconds=1)
    clock.advance(1)
    assert await store.write(append_end) - clock.now() < timedelta(seconds=1)
    place = await store.read(lambda tx: tx.event_log.last_seq_before(ALICE, corrected))
    assert place in {3, 4}, "a reader since then gets all later events"


@pytest.mark.postgres_only
async def test_an_event_whose_unit_began_earlier_is_not_created_before_the_one_at_the_place_before_it(
    nodes: Nodes, clock: FakeClock
) -> None:
    began, may_append = asyncio.Event(), asyncio.Event()

    async def append_late(tx: Transaction) -> datetime:
        began.set()
        while not may_append.is_set():
            await tx.pause()
        return await append(tx)

    async with asyncio.timeout(WAIT_SECONDS):
        late = asyncio.create_task(nodes.first.store.write(append_late))
        await began.wait()
        clock.advance(5.0)
        between = await nodes.second.store.write(append)
        may_append.set()

        assert await late == between == START + timedelta(seconds=5)
