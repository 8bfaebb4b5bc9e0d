"""Ends of leased calls, in batches, while another node changes what they depend on and has not committed.

A batch is three statements on PostgreSQL. Each test holds the other node's unit at a moment at which one of these statements
has begun, and waits for a row that this unit has locked, or skips it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from ringback.domain.call import Call, CallPhase
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import seconds
from ringback.domain.delivery import DeliveryKind, DeliveryState, RetryDecision, build_delivery_update
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.notifier.call_ends import LeasedCompletion
from ringback.services.webhooks.registrations import WebhookRegistration
from tests.support.builders import make_attempt, make_call, make_delivery, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import ALICE, BOB
from tests.support.interleaving import CALLER, Node, Nodes
from tests.support.limits import WAIT_SECONDS
from tests.support.stored_work import COMPLETED_RESULT

URL = "http://127.0.0.1:1/callback"


def running_call(clock: FakeClock, principal: Principal = ALICE) -> Call:
    until = clock.now() + seconds(30)
    return make_call(
        principal=principal, phase=CallPhase.RUNNING, lease_owner="one", lease_token="held", lease_until=until
    )


async def end_calls(clock: FakeClock, calls: Sequence[Call], node: Node) -> list[Call | None]:
    """End these calls as the runner of this node does."""
    recorder = Engine(node.store, clock).recorder
    ends = [
        LeasedCompletion(
            call_id=call.id, principal=call.principal, lease_token="held", completion=COMPLETED_RESULT, progress=None
        )
        for call in calls
    ]
    return list(await node.store.write(lambda tx: recorder.finish_leased_calls(tx, ends)))


async def list_log(nodes: Nodes, principal: Principal = ALICE) -> list[tuple[int, str | None]]:
    """The places and the calls of the principal's events."""
    events = await nodes.first.store.read(lambda tx: tx.events.list_after(principal, 0, EventFilter(), limit=100))
    return [(event.seq, event.call_id) for event in events]


async def test_an_end_whose_lease_is_taken_while_it_waits_gets_no_place_in_the_log(
    nodes: Nodes, clock: FakeClock
) -> None:
    calls = [running_call(clock) for _ in range(3)]
    lost = calls[1]

    async def requeue(tx: Transaction) -> None:
        latest = await tx.calls.get(lost.id)
        assert latest is not None
        queued = replace(latest, phase=CallPhase.QUEUED, lease_owner=None, lease_token=None, lease_until=None)
        assert await tx.calls.update(queued, CallChange.QUEUED, expected=latest.status, lease_token="held")

    await Engine(nodes.first.store, clock).insert_calls(*calls)
    _, ended = await nodes.interleave(lambda node: node.store.write(requeue), partial(end_calls, clock, calls))

    assert [call and call.id for call in ended] == [calls[0].id, None, calls[2].id]
    assert await list_log(nodes) == [(1, calls[0].id), (2, calls[2].id)]
    stored = await nodes.second.store.read(lambda tx: tx.calls.get(lost.id))
    assert stored is not None
    assert stored.phase is CallPhase.QUEUED


async def test_two_batches_with_the_same_calls_in_other_orders_end_each_once(nodes: Nodes, clock: FakeClock) -> None:
    calls = [running_call(clock, principal) for principal in (BOB, ALICE, BOB, ALICE)]
    await Engine(nodes.first.store, clock).insert_calls(*calls)

    one, two = await nodes.interleave(
        partial(end_calls, clock, calls), partial(end_calls, clock, [*reversed(calls), calls[0]])
    )

    assert None not in one
    assert set(two) == {None}
    assert await list_log(nodes, BOB) == [(1, calls[0].id), (2, calls[2].id)]
    assert await list_log(nodes, ALICE) == [(1, calls[1].id), (2, calls[3].id)]


async def test_a_batch_finds_the_webhook_whose_registration_has_not_committed(nodes: Nodes, clock: FakeClock) -> None:
    call = running_call(clock)
    await Engine(nodes.first.store, clock).insert_calls(call)

    registered, _ = await nodes.interleave(
        lambda node: node.services.registrations.register_webhook(CALLER, WebhookRegistration(url=URL)),
        partial(end_calls, clock, [call]),
    )

    deliveries = await Engine(nodes.second.store, clock).read_deliveries()
    assert [(each.webhook_id, each.call_id) for each in deliveries] == [(registered.webhook.id, call.id)]


@pytest.mark.postgres_only
async def test_a_batch_that_waits_for_one_log_has_locked_no_later_one(nodes: Nodes, clock: FakeClock) -> None:
    calls = [running_call(clock, principal) for principal in (BOB, ALICE)]
    await Engine(nodes.first.store, clock).insert_calls(*calls)
    held = nodes.first.store.hold_next_write()
    locking = asyncio.create_task(nodes.first.store.write(lambda tx: tx.event_log.get_head(ALICE, lock=True)))
    async with asyncio.timeout(WAIT_SECONDS):
        await held.has_run.wait()
        ending = asyncio.create_task(end_calls(clock, calls, nodes.second))
        await nodes.wait_until_blocked()
        await nodes.second.store.write(lambda tx: tx.event_log.get_head(BOB, lock=True))
        held.released.set()
        await locking

    assert None not in await ending


async def test_progress_that_is_being_sent_stays_open_and_no_end_waits_for_it(nodes: Nodes, clock: FakeClock) -> None:
    call, webhook = running_call(clock), make_webhook()
    engine = Engine(nodes.first.store, clock)
    await engine.insert_calls(call)
    await engine.insert_webhooks(webhook)
    progress = [
        make_delivery(seq=-number, kind=DeliveryKind.PROGRESS, call_id=call.id, webhook_id=webhook.id)
        for number in (1, 2)
    ]
    await nodes.first.store.write(lambda tx: tx.deliveries.insert(progress))

    leased, _ = await nodes.interleave(
        lambda node: node.store.write(
            lambda tx: tx.delivery_queue.lease(
                [progress[0].id], owner="one", token="t", until=clock.now() + seconds(30)
            )
        ),
        partial(end_calls, clock, [call]),
    )

    assert [each.id for each in leased] == [progress[0].id]
    states = {each.id: each.state for each in await engine.read_deliveries()}
    assert states.pop(progress[0].id) is DeliveryState.LEASED
    assert states.pop(progress[1].id) is DeliveryState.CANCELLED
    assert list(states.values()) == [DeliveryState.PENDING]


async def test_an_attempt_whose_lease_is_released_while_it_waits_is_not_recorded(
    nodes: Nodes, clock: FakeClock
) -> None:
    leased = make_delivery(
        state=DeliveryState.LEASED, attempts=1, lease_owner="one", lease_token="held", lease_until=clock.now()
    )
    update = build_delivery_update(
        leased, RetryDecision(state=DeliveryState.DELIVERED), category=leased.last_category, now=clock.now()
    )
    await nodes.first.store.write(lambda tx: tx.deliveries.insert([leased]))

    released, updated = await nodes.interleave(
        lambda node: node.store.write(
            lambda tx: tx.delivery_maintenance.release_expired_leases(now=clock.now(), limit=10)
        ),
        lambda node: node.store.write(lambda tx: tx.delivery_queue.apply_updates([update], [make_attempt(leased)])),
    )

    assert (released, list(updated)) == (1, [])
    assert await nodes.first.store.read(lambda tx: tx.deliveries.list_attempts(leased.id)) == []
    (stored,) = await Engine(nodes.second.store, clock).read_deliveries()
    assert stored.state is DeliveryState.PENDING
