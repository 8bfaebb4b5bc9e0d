"""Appends to logs: what they lock, the receivers of new events, and the rows that are written together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.call_rows import EndedCall
from ringback.domain.delivery import DeliveryKind, DeliveryState
from ringback.domain.event import EventName
from ringback.domain.ids import CallId
from ringback.domain.log_appends import CallLeaseKey, LeasedCalls, LogAppend, Receivers
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.storage.postgres import log_appends
from ringback.storage.postgres.statements import UnitConnection
from tests.support.builders import make_call, make_delivery, make_event, make_webhook
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

LATER = START.replace(year=START.year + 1)


def running_call(principal: Principal, token: str, *, phase: CallPhase = CallPhase.RUNNING) -> Call:
    return make_call(principal=principal, phase=phase, lease_owner="one", lease_token=token, lease_until=LATER)


async def insert_calls(store: Store, *calls: Call) -> None:
    async def insert(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    await store.write(insert)


async def lock(store: Store, *leases: CallLeaseKey) -> LeasedCalls:
    return await store.write(lambda tx: tx.log_appends.lock_leased_calls(leases))


async def test_calls_whose_leases_hold_get_places_in_the_logs_of_their_principals(store: Store) -> None:
    alices = [running_call(ALICE, "a"), running_call(ALICE, "b")]
    bobs = running_call(BOB, "c")
    lost, parked = running_call(ALICE, "new"), running_call(ALICE, "p", phase=CallPhase.PARKED)
    await insert_calls(store, *alices, bobs, lost, parked)
    leases = [CallLeaseKey(call.id, call.lease_token or "") for call in [*alices, bobs, parked]]
    leases += [
        CallLeaseKey(lost.id, "old"),
        CallLeaseKey(alices[0].id, "old"),
        leases[0],
        CallLeaseKey(CallId("call_0"), "a"),
    ]

    first, second = await lock(store, *leases), await lock(store, *leases)

    for locked, alices_seq, bobs_seq in [(first, 1, 1), (second, 3, 2)]:
        assert locked.calls == {call.id: call for call in [*alices, bobs]}
        assert {each: place.first_seq for each, place in locked.places.items()} == {ALICE: alices_seq, BOB: bobs_seq}
    assert await lock(store, CallLeaseKey(lost.id, "old")) == LeasedCalls({}, {})
    assert await store.read(lambda tx: tx.event_log.get_head(ALICE)) == 4


async def test_receivers_come_with_their_lowest_open_places_once_progress_is_superseded(store: Store) -> None:
    webhook, idle = make_webhook(), make_webhook()
    call_id = CallId("call_1")
    progress = {"kind": DeliveryKind.PROGRESS, "call_id": call_id, "webhook_id": webhook.id}
    leased = make_delivery(seq=4, state=DeliveryState.LEASED, lease_token="l", lease_until=LATER, **progress)
    logged = [make_event(principal=ALICE, seq=seq) for seq in range(1, 7)]

    async def insert(tx: Transaction) -> None:
        for each in (webhook, idle):
            await tx.webhooks.insert(each)
        await tx.events.insert(logged)
        held = make_delivery(seq=2, state=DeliveryState.HELD, **progress)
        other = make_delivery(seq=5, webhook_id=webhook.id)
        await tx.deliveries.insert([held, make_delivery(seq=3, **progress), leased, other])

    async def find(tx: Transaction) -> Receivers:
        first = make_event(principal=ALICE, seq=7, name=EventName.CALL_FINISHED, call_id=call_id)
        return await tx.log_appends.find_receivers([first, make_event(principal=ALICE, seq=8)])

    await store.write(insert)
    found = await store.write(find)

    assert {place: {each.id for each in webhooks} for place, webhooks in found.webhooks.items()} == {
        (ALICE, 7): {webhook.id, idle.id},
        (ALICE, 8): {webhook.id, idle.id},
    }
    assert found.lowest_open_seqs == {webhook.id: 4}
    assert found.earlier_events == {(ALICE, 3): logged[2].id, (ALICE, 6): logged[5].id}
    assert (await store.read(lambda tx: tx.deliveries.get(leased.id))) == leased


@pytest.mark.parametrize(
    "over", [{"expected": CallStatus.INPUT_REQUIRED}, {"lease_token": "old"}], ids=["status", "lease"]
)
async def test_nothing_is_written_with_an_end_that_is_refused(store: Store, over: dict[str, str]) -> None:
    call, ending = running_call(ALICE, "held"), running_call(ALICE, "held")
    await insert_calls(store, call, ending)
    ends: Sequence[EndedCall] = [
        EndedCall(call=replace(each, status=CallStatus.FAILED), expected=each.status, lease_token="held")
        for each in (call, ending)
    ]
    event, delivery = make_event(principal=ALICE, seq=1), make_delivery()
    append = LogAppend(
        ends=[ends[0], replace(ends[1], **over)], results={call.id: b"{}"}, events=[event], deliveries=[delivery]
    )

    with pytest.raises(RuntimeError, match="changed under the lock"):
        await store.write(lambda tx: tx.log_appends.write(append))

    assert await store.read(lambda tx: tx.calls.get(call.id)) == call
    assert await store.read(lambda tx: tx.deliveries.get(delivery.id)) is None
    await store.write(lambda tx: tx.log_appends.write(replace(append, ends=ends)))
    assert await store.read(lambda tx: tx.call_completions.get_result(call.id)) == b"{}"
    assert await store.read(lambda tx: tx.event_log.get_event_id(ALICE, 1)) == event.id
    assert await store.read(lambda tx: tx.deliveries.get(delivery.id)) == delivery


async def test_results_that_are_too_large_for_one_statement_are_written_with_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_appends, "RESULTS_TOGETHER_BYTES_MAX", 100)
    largest = 0
    fetch = UnitConnection.fetch

    async def note_largest(connection: UnitConnection, query: str, values: Sequence[Any]) -> Any:
        nonlocal largest
        bodies = [each for value in values if isinstance(value, list) for each in cast("list[Any]", value)]
        largest = max(largest, sum(len(each) for each in bodies if isinstance(each, bytes)))
        return await fetch(connection, query, values)

    monkeypatch.setattr(UnitConnection, "fetch", note_largest)
    calls = {size: running_call(ALICE, "held") for size in (60, 30, 200, 20, 5)}
    await insert_calls(store, *calls.values())
    results = {call.id: b"x" * size for size, call in calls.items()}

    await store.write(lambda tx: tx.log_appends.write(LogAppend(results=results)))

    assert largest <= 100
    for call_id, body in results.items():
        assert await store.read(lambda tx, call_id=call_id: tx.call_completions.get_result(call_id)) == body
