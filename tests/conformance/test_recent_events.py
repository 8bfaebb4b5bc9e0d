"""The latest events of a log, for a model that was woken: few are read, whatever the events before them are."""

from typing import Any

import pytest

from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.services.events.event_lookups import EventLookups
from ringback.storage.rows.columns import RECORDS
from ringback.storage.rows.paging import ROWS_SCANNED_MAX
from tests.support.builders import make_event
from tests.support.examples import ALICE

CALLER = Caller(principal=ALICE, scopes=frozenset({Scope.READ}))
CALL = CallId("call_00000000000000000000000001")
OTHER_CALL = CallId("call_00000000000000000000000002")


async def append(store: Store, count: int, **over: Any) -> None:
    async def work(tx: Transaction) -> None:
        first = await tx.events.reserve_seqs(ALICE, count)
        await tx.events.insert([make_event(principal=ALICE, seq=first + number, **over) for number in range(count)])

    await store.write(work)


async def test_few_events_are_read_although_many_match(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await append(store, 500, client_session_id="busy")
    await append(store, 60, client_session_id="other")
    await append(store, 5, client_session_id="busy")
    decode, decoded = RECORDS.event.decode, list[Event]()

    def decode_and_count(row: Any) -> Event:
        decoded.append(decode(row))
        return decoded[-1]

    monkeypatch.setattr(RECORDS.event, "decode", decode_and_count)
    found = await EventLookups(store=store).list_recent(CALLER, EventFilter(client_session_id="busy"), limit=10)

    assert [event.seq for event in found] == [565, 564, 563, 562, 561, 500, 499, 498, 497, 496]
    assert 0 < len(decoded) <= 2 * len(found)


async def test_the_events_of_a_call_are_found_however_many_others_follow(store: Store) -> None:
    await append(store, 2, call_id=CALL)
    await append(store, ROWS_SCANNED_MAX, call_id=OTHER_CALL)

    found = await EventLookups(store=store).list_recent(CALLER, EventFilter(call_id=CALL), limit=10)

    assert [event.seq for event in found] == [2, 1]
