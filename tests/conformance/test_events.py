"""Events: one order per principal, without holes, and what retention leaves of it."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest

from ringback.domain.event import Event, EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.storage.rows import events
from tests.support.builders import make_event
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

ALL = EventFilter()


async def append(store: Store, principal: Principal = ALICE, **over: Any) -> Event:
    async def work(tx: Transaction) -> Event:
        event = make_event(principal=principal, seq=await tx.events.reserve_seqs(principal, 1), **over)
        await tx.events.insert([event])
        return event

    return await store.write(work)


async def read_seqs(store: Store, principal: Principal = ALICE, *, after: int = 0) -> list[int]:
    events = await store.read(lambda tx: tx.events.list_after(principal, after, ALL, limit=1000))
    return [event.seq for event in events]


async def test_an_event_is_read_back_as_it_was_written(store: Store) -> None:
    event = await append(store, data={"call_id": "call_1", "progress": {"total": None}}, correlation_id=None)

    assert await store.read(lambda tx: tx.events.list_after(ALICE, 0, ALL, limit=1)) == [event]


async def test_places_are_taken_one_after_the_other_in_each_log(store: Store) -> None:
    firsts = [
        await store.write(lambda tx, principal=principal, count=count: tx.events.reserve_seqs(principal, count))
        for principal, count in [(ALICE, 1), (ALICE, 3), (BOB, 2), (ALICE, 1)]
    ]

    assert firsts == [1, 2, 1, 5]
    assert await store.read(lambda tx: tx.event_log.get_head(ALICE)) == 5
    assert await store.write(lambda tx: tx.event_log.get_head(BOB, lock=True)) == 2
    assert await store.read(lambda tx: tx.event_log.get_head(Principal("nobody"))) == 0


async def test_two_hundred_writers_leave_no_hole_and_no_place_twice(store: Store) -> None:
    principals = [ALICE, BOB, Principal("carol")]

    async def writer(number: int) -> None:
        await append(store, principals[number % 3])
        if number % 5 == 0:
            with pytest.raises(ZeroDivisionError):
                await store.write(reserve_and_fail)

    async def reserve_and_fail(tx: Transaction) -> None:
        await tx.events.reserve_seqs(ALICE, 7)
        raise ZeroDivisionError

    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(writer(number))

    for principal in principals:
        seen = await read_seqs(store, principal)
        assert seen == list(range(1, len(seen) + 1))
        assert await store.read(lambda tx, principal=principal: tx.event_log.get_head(principal)) == len(seen)
    assert sum([len(await read_seqs(store, principal)) for principal in principals]) == 200


async def test_reading_goes_on_after_a_place_oldest_first_and_bounded(store: Store) -> None:
    for _ in range(5):
        await append(store)

    events = await store.read(lambda tx: tx.events.list_after(ALICE, 2, ALL, limit=2))

    assert [event.seq for event in events] == [3, 4]
    assert await read_seqs(store, after=5) == []


@pytest.mark.parametrize(
    "where",
    [
        EventFilter(name=EventName.CALL_PROGRESS),
        EventFilter(call_id=CallId("call_1")),
        EventFilter(client_session_id="s"),
        EventFilter(correlation_id="c"),
        EventFilter(upstream="stage"),
        EventFilter(tool="paint"),
        EventFilter(name=EventName.CALL_PROGRESS, call_id=CallId("call_1"), client_session_id="s", correlation_id="c"),
        EventFilter(call_id=CallId("call_1"), upstream="stage", tool="paint"),
    ],
)
async def test_a_log_is_narrowed_by_each_filter_and_by_all_together(store: Store, where: EventFilter) -> None:
    names: dict[str, Any] = {
        "name": EventName.CALL_PROGRESS,
        "call_id": "call_1",
        "client_session_id": "s",
        "correlation_id": "c",
        "upstream": "stage",
        "tool": "paint",
    }
    other = await append(store)
    wanted = await append(store, ALICE, **names)
    await append(store, BOB, **names)

    assert await store.read(lambda tx: tx.events.list_after(ALICE, 0, where, limit=10)) == [wanted]
    assert [where.matches(event) for event in (other, wanted)] == [False, True]


@pytest.mark.parametrize(
    ("uris", "seqs"), [(None, [1, 2, 3]), (frozenset({None}), [1]), (frozenset({"note://a"}), [2])]
)
async def test_changes_are_narrowed_by_their_uri(
    store: Store, uris: frozenset[str | None] | None, seqs: Sequence[int]
) -> None:
    for uri in (None, "note://a", "note://b"):
        data = {"upstream": "stage", "change": "tools"} if uri is None else {"upstream": "stage", "uri": uri}
        await append(store, name=EventName.UPSTREAM_CHANGED, data=data)
    where = EventFilter(name=EventName.UPSTREAM_CHANGED, resource_uris=uris)

    page = await store.read(lambda tx: tx.events.list_page(ALICE, 0, where, limit=2))
    rest = await store.read(lambda tx: tx.events.list_page(ALICE, page.next_position or 3, where, limit=2))

    assert [event.seq for event in (*page, *rest)] == seqs


async def test_an_event_is_found_by_its_id_among_the_positions_that_may_have_it(store: Store) -> None:
    events = [await append(store) for _ in range(4)]
    await append(store, BOB)

    async def find(event_id: str, after_seq: int, until_seq: int) -> Event | None:
        return await store.read(
            lambda tx: tx.event_log.find_event(ALICE, event_id, after_seq=after_seq, until_seq=until_seq)
        )

    assert await find(events[2].id, 0, 4) == events[2]
    assert await find(events[2].id, 2, 3) == events[2]
    assert await find(events[2].id, 3, 4) is None
    assert await find("evt_unknown", 0, 4) is None


async def test_old_events_are_removed_in_bounded_steps_and_raise_the_retention_floor(store: Store) -> None:
    for day in range(4):
        await append(store, created_at=START + timedelta(days=day))
    await append(store, BOB, created_at=START + timedelta(days=9))
    older_than = START + timedelta(days=3)
    assert await store.read(lambda tx: tx.event_log.get_retention_floor(ALICE)) == 0

    counts = [await store.write(lambda tx: tx.events.remove(cutoff=older_than, limit=2)) for _ in range(3)]

    assert counts == [2, 1, 0]
    assert await read_seqs(store) == [4]
    assert await store.read(lambda tx: tx.event_log.get_retention_floor(ALICE)) == 3
    assert await store.read(lambda tx: tx.event_log.get_bounds(ALICE)) == (3, 4)
    assert await store.read(lambda tx: tx.event_log.get_bounds(BOB)) == (0, 1)
    assert await store.read(lambda tx: tx.event_log.get_retention_floor(BOB)) == 0


async def test_a_place_is_never_taken_again_after_everything_was_removed(store: Store) -> None:
    await append(store)
    await store.write(lambda tx: tx.events.remove(cutoff=START + timedelta(days=1), limit=10))

    assert (await append(store)).seq == 2


async def test_the_last_place_before_an_instant_is_where_a_reader_since_then_begins(store: Store) -> None:
    for minutes in (0, 1, 1, 2):
        await append(store, created_at=START + timedelta(minutes=minutes))
    await append(store, BOB)

    async def last_before(minutes: float) -> int:
        instant = START + timedelta(minutes=minutes)
        return await store.read(lambda tx: tx.event_log.last_seq_before(ALICE, instant))

    assert [await last_before(minutes) for minutes in (0, 1, 1.5, 2, 60)] == [0, 1, 3, 3, 4]


async def test_a_place_gives_the_id_of_its_event_in_its_own_log_only(store: Store) -> None:
    event = await append(store)

    async def ids(tx: Transaction) -> list[str | None]:
        places = tx.event_log
        return [
            await places.get_event_id(ALICE, 1),
            await places.get_event_id(ALICE, 2),
            await places.get_event_id(BOB, 1),
        ]

    assert await store.read(ids) == [event.id, None, None]


async def test_a_log_is_read_backwards_by_its_places_with_any_filter(store: Store) -> None:
    call = CallId("call_1")
    for number in range(6):
        await append(
            store, call_id=call if number % 2 else None, name=EventName.CALL_PROGRESS if number == 3 else "order.paid"
        )
        await append(store, BOB)

    async def list_before(seq: int, where: EventFilter, limit: int = 10) -> tuple[list[int], int | None]:
        page = await store.read(lambda tx: tx.event_log.list_before(ALICE, seq, where, limit=limit))
        return [event.seq for event in page], page.next_position

    assert await list_before(2**62, ALL, 4) == ([6, 5, 4, 3], 3)
    assert await list_before(3, ALL, 4) == ([2, 1], None)
    assert await list_before(2**62, EventFilter(call_id=call), 2) == ([6, 4], 4)
    assert await list_before(2**62, EventFilter(call_id=call, name=EventName.CALL_PROGRESS)) == ([4], None)
    assert await list_before(2**62, EventFilter(name=EventName.CALL_PROGRESS)) == ([4], None)
    assert await list_before(2**62, EventFilter(client_session_id="none")) == ([], None)


async def test_a_page_backwards_visits_a_bounded_number_of_events(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "ROWS_SCANNED_MAX", 3)
    for _ in range(5):
        await append(store)
    none = EventFilter(client_session_id="none")

    first = await store.read(lambda tx: tx.event_log.list_before(ALICE, 2**62, none, limit=1))
    second = await store.read(lambda tx: tx.event_log.list_before(ALICE, first.next_position or 0, none, limit=1))

    assert (list(first), first.next_position) == ([], 3)
    assert (list(second), second.next_position) == ([], None)


async def test_a_page_has_fewer_events_if_their_data_is_large_and_the_list_goes_on_behind_it(store: Store) -> None:
    """A hundred events with 64 KiB of empty objects took 140 MB and a second."""
    large: dict[str, Any] = {"objects": [{}] * 21_000}
    appended = [await append(store, data=data) for data in ({}, large, large, {}, {}, large)]
    forwards, backwards, latest = list[list[Event]](), list[list[Event]](), list[list[Event]]()
    after, before, position = 0, 10, None

    while after is not None:
        page = await store.read(lambda tx, after=after: tx.events.list_page(ALICE, after, ALL, limit=10))
        forwards, after = [*forwards, list(page)], page.next_position
    while before is not None:
        page = await store.read(lambda tx, before=before: tx.event_log.list_before(ALICE, before, ALL, limit=10))
        backwards, before = [*backwards, list(page)], page.next_position
    while not latest or position is not None:
        newest = await store.read(lambda tx, at=position: tx.events.list_latest(ALL, position=at, limit=10))
        latest, position = [*latest, list(newest)], newest.next_position

    assert [len(each) for each in forwards] == [2, 3, 1]
    assert [len(each) for each in backwards] == [len(each) for each in latest] == [3, 1, 2]
    assert list(chain(*forwards)) == list(chain(*backwards))[::-1] == list(chain(*latest))[::-1] == appended
