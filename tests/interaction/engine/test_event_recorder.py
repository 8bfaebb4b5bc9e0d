"""Pages of an upstream's events are written for many principals, without one transaction that locks all their logs."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from ringback.domain.errors import RowsLocked
from ringback.domain.event import ExternalEvent
from ringback.domain.event_types import DemandKey, EventDemand
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.notifier.recorder import RecordedEvent, Recorder
from ringback.services.limits.quotas import QuotaEnforcer, Quotas
from ringback.storage.rows.event_types import SqlEventDemands
from ringback.upstreams.events import event_recorder, following
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog
from ringback.upstreams.events.event_recorder import UpstreamEventRecorder
from ringback.upstreams.events.occurrences import FollowedEvents
from ringback.upstreams.principal_units import UNITS_AT_ONCE
from tests.support.builders import make_event
from tests.support.counting_store import CommitCountingStore
from tests.support.engine import Engine, wait_until
from tests.support.event_demands import remove_ended_demands
from tests.support.examples import ALICE, BOB
from tests.support.limits import WAIT_SECONDS
from tests.support.scripted_events import FOLLOWED, ScriptedEvents, make_occurrences


class PolledTypes:
    """A catalog in which no type has streams."""

    def find_event_type(self, name: str) -> Any:
        assert name == FOLLOWED.event_name


async def demand_events(engine: Engine, *principals: Principal, ended: bool = False) -> None:
    for principal in principals:
        demand = EventDemand(
            principal=principal,
            event_name=FOLLOWED.event_name,
            topic="",
            arguments={},
            polled_until=engine.clock.now() + timedelta(hours=-1 if ended else 1),
        )
        await engine.store.write(lambda tx, demand=demand: tx.event_demands.save(demand))


def make_recorder(
    engine: Engine,
    events: ScriptedEvents,
    store: Store,
    *,
    event_bytes: int = 1024**3,
    recorder: Recorder | None = None,
) -> UpstreamEventRecorder:
    return UpstreamEventRecorder(
        store=store,
        clock=engine.clock,
        ids=engine.ids,
        recorder=recorder or engine.recorder,
        connections={FOLLOWED.upstream: events},
        catalog=cast("UpstreamEventCatalog", PolledTypes()),
        event_quota=QuotaEnforcer(Quotas(event_bytes=event_bytes), clock=engine.clock),
    )


async def wait_for_cursor(engine: Engine, cursor: str) -> None:
    async def is_stored() -> bool:
        known = await engine.store.read(lambda tx: tx.event_followings.get(FOLLOWED.event_name, ""))
        return known is not None and known.cursor == cursor

    await wait_until(is_stored)


def recording(engine: Engine, events: ScriptedEvents, store: Store) -> AbstractAsyncContextManager[None]:
    return running(make_recorder(engine, events, store))


@asynccontextmanager
async def running(recorder: UpstreamEventRecorder) -> AsyncGenerator[None]:
    stop = asyncio.Event()
    run = asyncio.create_task(recorder.run(stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(run, WAIT_SECONDS)


async def test_ended_demands_are_removed_a_few_in_each_transaction(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand that ended while the service was away took one transaction 0.4 to 0.7 s."""
    monkeypatch.setattr(event_recorder, "REMOVED_DEMANDS_MAX", 2)
    monkeypatch.setattr(event_recorder, "REMOVAL_PAUSE_SECONDS", 0.0)
    await demand_events(engine, *(Principal(f"agent-{number}") for number in range(5)), ended=True)
    await demand_events(engine, ALICE)
    remove, removed = SqlEventDemands.remove_ended, list[int]()

    async def note_and_remove(self: SqlEventDemands, keys: Sequence[DemandKey], *, now: datetime) -> None:
        await remove(self, keys, now=now)
        removed.append(len(keys))

    async def have_all_ended() -> bool:
        return await engine.store.read(lambda tx: tx.event_demands.count_of_principal(Principal("agent-4"))) == 0

    monkeypatch.setattr(SqlEventDemands, "remove_ended", note_and_remove)
    async with running(make_recorder(engine, ScriptedEvents(), engine.store)):
        await wait_until(have_all_ended)

    assert removed == [2, 2, 1]
    assert await engine.store.read(lambda tx: tx.event_demands.count_of_principal(ALICE)) == 1


@pytest.mark.sqlite_only  # its clock jumps with each sleep, also with those of PostgreSQL's own tasks
async def test_events_are_recorded_for_demands_that_end_only_by_a_clock_that_is_far_ahead(
    still: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await demand_events(still, ALICE)
    confirmed, ahead = still.clock.now(), still.clock.now() + timedelta(days=30)
    monkeypatch.setattr(still.clock, "confirmed_now", lambda: confirmed)
    monkeypatch.setattr(still.clock, "now", lambda: ahead)
    events = ScriptedEvents({"events": make_occurrences(1), "cursor": "1", "hasMore": True})
    async with recording(still, events, still.store):
        await wait_for_cursor(still, "1")

    assert [event.id for event in await still.read_events(ALICE)] == ["github:e0"]


async def test_a_page_is_written_in_a_unit_for_each_principal_and_repeats_make_no_event(engine: Engine) -> None:
    principals = [Principal(f"agent-{number:02}") for number in range(2 * UNITS_AT_ONCE + 5)]
    await demand_events(engine, *principals)
    store = CommitCountingStore(engine.store)
    page = {"events": make_occurrences(2), "cursor": "1", "hasMore": True}
    events = ScriptedEvents(page, page | {"cursor": "2"})

    async with recording(engine, events, store):
        await wait_for_cursor(engine, "2")

    assert store.written.count("write_for_each") == 2 * len(principals)
    for principal in principals:
        assert [event.id for event in await engine.read_events(principal)] == ["github:e0", "github:e1"]


class LockableRecorder:
    """A recorder that finds the logs of some principals locked by another unit."""

    def __init__(self, recorder: Recorder, locked: set[Principal]) -> None:
        self._recorder = recorder
        self._locked = locked

    async def record_external_events(
        self, tx: Transaction, principal: Principal, events: Sequence[ExternalEvent]
    ) -> Sequence[RecordedEvent]:
        if principal in self._locked:
            raise RowsLocked("The log is locked.", waited_seconds=0.0)
        return await self._recorder.record_external_events(tx, principal, events)


@pytest.mark.requirement("R35")
async def test_logs_that_stay_locked_cost_no_other_principal_a_page(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All logs of a unit waited for a locked one, and their principals got the page when it was free again."""
    monkeypatch.setattr(following, "RETRY_SECONDS", 0.01)
    principals = [Principal(f"agent-{number:02}") for number in range(2 * UNITS_AT_ONCE + 5)]
    blocked = set(principals[: UNITS_AT_ONCE + 1])
    await demand_events(engine, *principals)
    page = {"events": make_occurrences(2), "cursor": "1"}
    lockable = cast("Recorder", LockableRecorder(engine.recorder, blocked))
    recorder = make_recorder(engine, ScriptedEvents(*[page] * 1000), engine.store, recorder=lockable)

    async def others_have_it() -> bool:
        return all([len(await engine.read_events(each)) == 2 for each in principals if each not in blocked])

    async with running(recorder):
        await wait_until(others_have_it)
        blocked.clear()
        await wait_for_cursor(engine, "1")

    for principal in principals:
        assert [event.id for event in await engine.read_events(principal)] == ["github:e0", "github:e1"]


@pytest.mark.sqlite_only  # its clock jumps with each sleep, also with those of PostgreSQL's own tasks
async def test_a_second_gap_is_recorded_after_the_interval_although_later_pages_are_whole(still: Engine) -> None:
    await demand_events(still, ALICE)
    lost: dict[str, Any] = {"events": [], "cursor": "1", "truncated": True, "nextPollMs": 1000}
    whole: dict[str, Any] = {"events": [], "cursor": "3", "nextPollMs": 60_000}
    events = ScriptedEvents(lost, lost | {"cursor": "2"}, whole, whole, whole)

    async with recording(still, events, still.store):
        await events.wait_until_asked(6)

    assert [event.name for event in await still.read_events()] == ["upstream.gap"] * 2


@pytest.mark.sqlite_only  # its clock jumps with each sleep, also with those of PostgreSQL's own tasks
async def test_events_that_the_quota_has_no_room_for_are_lost_between_two_gaps(still: Engine) -> None:
    other = Principal("other")
    await demand_events(still, ALICE, other)
    full = make_event(name="order.paid", call_id=None, data={"text": "x" * 500}, occurred_at=still.clock.now())
    await still.store.write(lambda tx: tx.events.reserve_seqs(ALICE, 1))
    await still.store.write(lambda tx: tx.events.insert([full]))
    pages = [
        {"events": [occurrence], "cursor": occurrence["eventId"], "nextPollMs": interval}
        for occurrence, interval in zip(make_occurrences(4), (1000, 60_000, 1000, 60_000), strict=True)
    ]
    lost: list[str] = []

    class Events(ScriptedEvents):
        async def send_request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
            if len(self.params) == 2:  # retention makes room before the third page
                lost.extend(event.name for event in await still.read_events())
                end = still.clock.now() + timedelta(days=1)
                await still.store.write(lambda tx: tx.events.remove(cutoff=end, limit=1))
            return await super().send_request(method, params)

    events = Events(*pages)

    async with running(make_recorder(still, events, still.store, event_bytes=500)):
        await events.wait_until_asked(5)

    assert lost == ["order.paid", "upstream.gap"]
    assert [event.id for event in await still.read_events() if event.name == FOLLOWED.event_name] == [
        "github:e2",
        "github:e3",
    ]
    assert [event.name for event in await still.read_events()][:2] == ["upstream.gap"] * 2
    assert len(await still.read_events(other)) == 4
    demand = await still.store.read(lambda tx: tx.event_demands.get(ALICE, FOLLOWED.event_name, ""))
    assert demand is not None
    assert demand.gap_seq == 3


@pytest.mark.sqlite_only  # its clock jumps with each sleep, also with those of PostgreSQL's own tasks
async def test_a_gap_that_waits_for_its_interval_is_recorded_by_the_process_after_a_crash(still: Engine) -> None:
    await demand_events(still, ALICE)
    lost: dict[str, Any] = {"events": [], "cursor": "1", "truncated": True, "nextPollMs": 1000}
    lost_again = lost | {"events": make_occurrences(1), "cursor": "2"}
    events, later = ScriptedEvents(lost, lost_again), ScriptedEvents(lost_again)

    async with recording(still, events, still.store):
        await events.wait_until_asked(3)
    async with recording(still, later, still.store):
        await later.wait_until_asked(2)

    assert later.params[0]["cursor"] == "1"  # the place before the gap: from there the upstream reports it again
    names = [event.name for event in await still.read_events()]
    assert names == ["upstream.gap", FOLLOWED.event_name, "upstream.gap"]


@pytest.mark.sqlite_only  # its clock jumps with each sleep, also with those of PostgreSQL's own tasks
async def test_a_leader_that_leads_again_stores_a_cursor_that_another_one_has_removed(still: Engine) -> None:
    await demand_events(still, ALICE)
    quiet: dict[str, Any] = {"events": [], "cursor": "1", "nextPollMs": 1000}
    events = ScriptedEvents(quiet)
    recorder = make_recorder(still, events, still.store)
    async with running(recorder):
        await events.wait_until_asked(2)
    await remove_ended_demands(still.store, now=still.clock.now() + timedelta(days=1))
    await demand_events(still, ALICE)

    events.results.append(quiet)
    async with running(recorder):
        await events.wait_until_asked(4)

    following = await still.store.read(lambda tx: tx.event_followings.get(FOLLOWED.event_name, ""))
    assert following is not None
    assert following.cursor == "1"


async def test_the_demands_of_many_principals_are_read_once_for_all_of_them(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each signal read all demands in a unit that writes: with 256 of each of a thousand principals it took seconds."""
    await demand_events(engine, ALICE, BOB)
    read = list[int]()
    select = event_recorder.select_followed

    def note(demands: Iterable[EventDemand]) -> set[FollowedEvents]:
        read.append(len(list(demands)))
        return select(demands)

    monkeypatch.setattr(event_recorder, "select_followed", note)
    events = ScriptedEvents({"events": [], "cursor": "1", "nextPollMs": 1000})

    async with recording(engine, events, engine.store):
        await events.wait_until_asked(1)

    assert set(read) == {1}
