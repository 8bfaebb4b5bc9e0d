"""Client sessions as their calls show them, and counts of open work."""

from datetime import timedelta
from typing import Final

import pytest

from ringback.domain.call import CallPhase, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_resumes import CallResume, ResumeSurface
from ringback.domain.delivery import DeliveryState
from ringback.domain.ids import WebhookId
from ringback.domain.insights import ClientSession, OpenWork
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import WebhookOrigin, WebhookState
from tests.support.builders import make_call, make_delivery, make_webhook
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

SESSIONS: Final = ("a/1", None, "b", "a/1", None, None, None, "c", "b", "a/1", None, None, None, None)
"""Of the calls, oldest first."""


@pytest.fixture(autouse=True)
def small_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.storage.rows.paging.ROWS_SCANNED_MAX", 3)


async def insert_calls(tx: Transaction) -> None:
    for number, session in enumerate(SESSIONS):
        is_ended = number % 3 == 0
        call = make_call(
            client_session_id=session,
            created_at=START + timedelta(seconds=number),
            status=CallStatus.COMPLETED if is_ended else CallStatus.WORKING,
            outcome=CallOutcome.RESULT if is_ended else None,
            phase=CallPhase.ENDED if is_ended else CallPhase.QUEUED,
        )
        await tx.calls.insert(call)
        if session == "b":
            times = (START, START + timedelta(seconds=1))
            resumes = [
                CallResume(call_id=call.id, resumed_at=time, surface=ResumeSurface.REST_RESUME) for time in times
            ]
            await tx.call_resumes.add(resumes)
    await tx.calls.insert(make_call(principal=BOB, client_session_id="a/1", phase=CallPhase.QUEUED))


async def list_sessions(store: Store, principal: Principal | None) -> list[ClientSession]:
    found: list[ClientSession] = []
    position: str | None = None
    while True:
        page = await store.read(lambda tx, at=position: tx.client_sessions.list_page(principal, position=at, limit=2))
        found += page
        if page.next_position is None:
            return found
        position = page.next_position


async def test_each_session_is_listed_once_in_the_order_of_its_newest_calls(store: Store) -> None:
    await store.write(insert_calls)
    listed = await list_sessions(store, ALICE)
    of_all = await list_sessions(store, None)

    assert [(each.client_session_id, each.first_call_at, each.last_call_at) for each in listed] == [
        ("a/1", START, START + timedelta(seconds=9)),
        ("b", START + timedelta(seconds=2), START + timedelta(seconds=8)),
        ("c", START + timedelta(seconds=7), START + timedelta(seconds=7)),
    ]
    assert [(each.principal, each.client_session_id) for each in of_all] == [
        (BOB, "a/1"),
        *((ALICE, each.client_session_id) for each in listed),
    ]


async def test_the_newest_calls_of_a_session_are_counted_up_to_the_limit(store: Store) -> None:
    await store.write(insert_calls)
    counts = await store.read(lambda tx: tx.client_sessions.count_calls(ALICE, "a/1", limit=3))
    limited = await store.read(lambda tx: tx.client_sessions.count_calls(ALICE, "a/1", limit=2))
    resumed = await store.read(lambda tx: tx.client_sessions.count_calls(ALICE, "b", limit=3))
    unknown = await store.read(lambda tx: tx.client_sessions.count_calls(ALICE, "none", limit=3))

    assert counts is not None
    assert limited is not None
    assert resumed is not None
    assert (counts.calls, counts.is_complete, counts.resumed_calls) == (3, True, 0)
    assert (counts.calls_by_status, counts.calls_by_outcome) == (
        {CallStatus.COMPLETED: 3},
        {CallOutcome.RESULT: 3},
    )
    assert (limited.calls, limited.is_complete, limited.first_call_at) == (2, False, START)
    assert (resumed.calls, resumed.resumed_calls, unknown) == (2, 2, None)


async def test_open_work_is_counted_for_one_principal_and_for_all(store: Store) -> None:
    async def insert_deliveries(tx: Transaction) -> None:
        for owner, name in ((ALICE, "wh_alice"), (BOB, "wh_bob")):
            webhook = make_webhook(id=WebhookId(name), principal=owner, origin=WebhookOrigin.REST, last_error="timeout")
            await tx.webhooks.insert(webhook)
            for state in (DeliveryState.HELD, DeliveryState.PENDING, DeliveryState.PENDING, DeliveryState.DEAD):
                finished_at = START if state is DeliveryState.DEAD else None
                await tx.deliveries.insert(
                    [make_delivery(principal=owner, webhook_id=webhook.id, state=state, finished_at=finished_at)]
                )
        disabled = make_webhook(principal=BOB, state=WebhookState.DISABLED, last_error="timeout")
        await tx.webhooks.insert(disabled)

    async def count_open(principal: Principal | None) -> OpenWork:
        return await store.read(lambda tx: tx.open_work.count_open(principal))

    await store.write(insert_calls)
    await store.write(insert_deliveries)
    alice, bob, everyone = await count_open(ALICE), await count_open(BOB), await count_open(None)

    states = {DeliveryState.HELD: 1, DeliveryState.PENDING: 2, DeliveryState.LEASED: 0}
    assert alice.open_calls == {CallStatus.WORKING: 9, CallStatus.INPUT_REQUIRED: 0}
    assert (alice.queued_calls, bob.queued_calls, everyone.queued_calls) == (9, 1, 10)
    assert alice.open_deliveries == bob.open_deliveries == states
    assert everyone.open_deliveries == {state: 2 * number for state, number in states.items()}
    assert (alice.dead_deliveries, bob.dead_deliveries, everyone.dead_deliveries) == (1, 1, 2)
    assert (alice.failing_webhooks, bob.failing_webhooks, everyone.failing_webhooks) == (1, 1, 2)
