"""Erasures of one node beside units of another: nothing erased is sent, and no erasure waits for a delivery."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from ringback.domain.call import CallStatus
from ringback.domain.call_rows import REMOVED_BYTES_MAX
from ringback.domain.delivery import DeliveryState
from ringback.domain.delivery_rows import RedeliveryFilter
from ringback.domain.erasure import ErasedDeliveryBatch, Erasure, ErasureState
from ringback.domain.errors import CallRunning, Unauthenticated
from ringback.domain.ids import KeyId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import ALL_SCOPES, Caller, Principal
from ringback.domain.webhook import Webhook
from ringback.services.calls.reports import CallReport
from ringback.services.deliveries.replays import ReplayRequest
from ringback.services.events.event_publishing import PublishedEvent
from ringback.services.webhooks.registrations import WebhookRegistration
from tests.conformance.test_lock_order import held
from tests.support.builders import (
    make_call,
    make_call_erasure,
    make_delivery,
    make_event,
    make_identity_erasure,
    make_webhook,
)
from tests.support.clock import START, FakeClock
from tests.support.databases import query_rows
from tests.support.dead_deliveries import URL, insert_dead_delivery
from tests.support.examples import ALICE, BOB
from tests.support.interleaving import CALLER, Node, Nodes
from tests.support.stored_work import COMPLETED_RESULT

REPORT = CallReport(key="one", upstream="git", tool="git_log")


async def redeliver_all(node: Node, webhook: Webhook) -> None:
    where = RedeliveryFilter(state=DeliveryState.DEAD)
    await node.services.bulk_redeliveries.redeliver(CALLER, where, position=None, dry_run=False)


async def replay_webhook(node: Node, webhook: Webhook) -> None:
    await node.services.replays.replay_webhook(CALLER, webhook.id, ReplayRequest(only_dead=True))


async def redeliver_one(node: Node, webhook: Webhook) -> None:
    (delivery_id,) = await node.store.read(lambda tx: list_delivery_ids(tx, webhook))
    await node.services.replays.redeliver_delivery(CALLER, delivery_id)


async def list_delivery_ids(tx: Transaction, webhook: Webhook) -> list[str]:
    return [each.id for each in await tx.webhook_deliveries.list_dead(webhook.id, limit=10, after="")]


@pytest.mark.parametrize("replay", [redeliver_all, replay_webhook, redeliver_one])
async def test_a_replay_and_an_erasure_at_the_same_time_leave_no_delivery(
    nodes: Nodes, clock: FakeClock, replay: Callable[[Node, Webhook], Awaitable[None]]
) -> None:
    webhook, call = await insert_dead_delivery(nodes, clock)

    replayed, erasure = await nodes.interleave(
        lambda node: replay(node, webhook),
        lambda node: node.services.erasures.erase_call(CALLER, call.id, cancel=False),
    )

    assert replayed is None
    assert erasure.state is ErasureState.FINISHED
    assert query_rows(nodes.folder, "SELECT id FROM deliveries") == []


@pytest.mark.postgres_only
@pytest.mark.parametrize("replay", [redeliver_all, replay_webhook, redeliver_one])
async def test_a_replay_that_waits_for_a_batch_of_an_erasure_finds_nothing_to_send(
    nodes: Nodes, clock: FakeClock, replay: Callable[[Node, Webhook], Awaitable[None]]
) -> None:
    webhook, call = await insert_dead_delivery(nodes, clock)

    async def erase(tx: Transaction) -> None:
        await tx.event_log.get_head(ALICE, lock=True)
        await tx.erased_deliveries.delete_of_calls([call.id], limit=10)

    await nodes.interleave(lambda node: node.store.write(erase), lambda node: replay(node, webhook))

    assert query_rows(nodes.folder, "SELECT id FROM deliveries") == []


@pytest.mark.postgres_only
async def test_an_erasure_waits_for_no_locked_delivery_and_finishes_later(nodes: Nodes, clock: FakeClock) -> None:
    webhook, call = await insert_dead_delivery(nodes, clock)
    due = make_delivery(
        webhook_id=webhook.id, principal=ALICE, call_id=call.id, due_at=clock.now(), give_up_at=clock.now()
    )
    await nodes.first.store.write(lambda tx: tx.deliveries.insert([due]))

    async with held(nodes, lambda tx: tx.delivery_queue.give_up_expired(webhook.id, now=tx.now(), limit=10)):
        first = await nodes.second.services.erasures.erase_call(CALLER, call.id, cancel=False)
        left = query_rows(nodes.folder, "SELECT id FROM deliveries")
    again = await nodes.second.services.erasures.erase_call(CALLER, call.id, cancel=False)

    assert (first.state, [row[0] for row in left]) == (ErasureState.ERASING, [due.id])
    assert (again.id, again.state, again.deliveries) == (first.id, ErasureState.FINISHED, 2)


@pytest.mark.parametrize("which", ["calls", "webhooks", "principal"])
async def test_an_erasure_deletes_large_bodies_a_few_at_a_time(store: Store, which: str) -> None:
    """200 bodies of 256 KiB were one transaction."""
    webhook, call = make_webhook(principal=ALICE), make_call(principal=ALICE)
    body = b"x" * (REMOVED_BYTES_MAX // 3)
    of_call = {"principal": ALICE, "webhook_id": webhook.id, "call_id": call.id, "body": body}
    await store.write(lambda tx: tx.webhooks.insert(webhook))
    await store.write(lambda tx: tx.deliveries.insert([make_delivery(**of_call) for _ in range(3)]))

    async def delete(tx: Transaction) -> ErasedDeliveryBatch:
        if which == "calls":
            return await tx.erased_deliveries.delete_of_calls([call.id], limit=200)
        if which == "webhooks":
            return await tx.erased_deliveries.delete_of_webhooks([webhook.id], limit=200)
        return await tx.erased_deliveries.delete_of_principal(make_identity_erasure(ALICE), limit=200)

    assert [await store.write(delete) for _ in range(2)] == [
        ErasedDeliveryBatch(2, is_done=False),
        ErasedDeliveryBatch(1, is_done=True),
    ]


async def test_an_erasure_deletes_large_events_a_few_at_a_time(store: Store) -> None:
    data = {"text": "x" * (REMOVED_BYTES_MAX // 3)}
    await store.write(lambda tx: tx.events.reserve_seqs(ALICE, 3))
    events = [make_event(principal=ALICE, seq=seq, data=data) for seq in (1, 2, 3)]
    await store.write(lambda tx: tx.events.insert(events))
    erasure = replace(make_identity_erasure(ALICE), head=3)

    counts = [await store.write(lambda tx: tx.erased_deliveries.delete_events(erasure, limit=200)) for _ in range(3)]

    assert counts == [2, 1, 0]


# -- turns ------------------------------------------------------------------------------------------------------------------


async def insert_erasures(store: Store, *principals: Principal, **over: Any) -> list[Erasure]:
    """One for each, in the order of their last batches."""
    erasures = [
        make_call_erasure(make_call(principal=principal), worked_at=START + timedelta(seconds=second), **over)
        for second, principal in enumerate(principals)
    ]

    async def insert(tx: Transaction) -> None:
        for erasure in reversed(erasures):
            await tx.erasures.insert(erasure)

    await store.write(insert)
    return erasures


async def find_next(store: Store, after: str) -> Erasure | None:
    return await store.write(lambda tx: tx.erasures.find_next(after=after))


async def find_waiting(store: Store, after: str, worked_before: datetime | None = None) -> Erasure | None:
    return await store.write(lambda tx: tx.erasures.find_waiting(after=after, worked_before=worked_before))


async def test_principals_take_turns_with_their_erasures_and_the_oldest_of_each_comes_first(store: Store) -> None:
    alice, _, bob = await insert_erasures(store, ALICE, ALICE, BOB)

    assert await find_next(store, "") == alice
    assert await find_next(store, ALICE) == bob
    assert await find_next(store, BOB) == alice
    assert await find_waiting(store, "") is None


async def test_erasures_that_wait_for_calls_take_turns_among_themselves(store: Store) -> None:
    alice, _, bob = await insert_erasures(store, ALICE, ALICE, BOB, is_waiting=True)

    assert await find_next(store, "") is None
    assert await find_waiting(store, "") == alice
    assert await find_waiting(store, ALICE) == bob
    assert await find_waiting(store, ALICE, worked_before=bob.worked_at) == alice
    assert await find_waiting(store, "", worked_before=alice.worked_at) is None


async def test_no_erasure_is_next_when_all_have_finished(store: Store) -> None:
    await insert_erasures(store, ALICE, finished_at=START)

    assert (await find_next(store, ""), await find_waiting(store, "")) == (None, None)


# -- requests that were authenticated before the erasure of their principal --------------------------------------------------


async def create_caller(nodes: Nodes) -> Caller:
    """A caller whose key the erasure of its principal deletes."""
    key, _ = await nodes.first.services.api_keys.create_key(ALICE, name="", scopes=ALL_SCOPES, upstreams=None)
    return key.to_caller()


async def report_call(node: Node, caller: Caller) -> object:
    return await node.services.reports.record_report(caller, REPORT)


async def report_ended_call(node: Node, caller: Caller) -> object:
    return await node.services.reports.record_report(caller, replace(REPORT, completion=COMPLETED_RESULT))


async def register_webhook(node: Node, caller: Caller) -> object:
    return await node.services.registrations.register_webhook(caller, WebhookRegistration(url=URL))


async def erase_principal(node: Node, *, cancel: bool = True) -> Erasure:
    return await node.services.erasures.erase_principal(CALLER, ALICE, cancel=cancel)


async def publish_event(node: Node, caller: Caller) -> object:
    return await node.services.event_publishing.publish_events(caller, [PublishedEvent(name="order.paid", data={})])


def list_rows(nodes: Nodes) -> Sequence[tuple[Any, ...]]:
    return query_rows(
        nodes.folder, "SELECT id FROM calls UNION ALL SELECT id FROM webhooks UNION ALL SELECT id FROM events"
    )


@pytest.mark.parametrize("store_row", [report_ended_call, register_webhook, publish_event])
async def test_a_request_that_comes_after_the_erasure_of_its_principal_stores_nothing(
    nodes: Nodes, store_row: Callable[[Node, Caller], Awaitable[object]]
) -> None:
    caller = await create_caller(nodes)

    erasure, stored = await nodes.interleave(erase_principal, lambda node: store_row(node, caller))

    assert erasure.state is ErasureState.FINISHED
    assert isinstance(stored, Unauthenticated)
    assert list_rows(nodes) == []


@pytest.mark.parametrize("store_row", [report_ended_call, register_webhook, publish_event])
async def test_what_a_request_stores_before_the_erasure_of_its_principal_is_erased(
    nodes: Nodes, store_row: Callable[[Node, Caller], Awaitable[object]]
) -> None:
    caller = await create_caller(nodes)

    stored, erasure = await nodes.interleave(lambda node: store_row(node, caller), erase_principal)

    assert not isinstance(stored, Exception)
    assert erasure.state is ErasureState.FINISHED
    assert list_rows(nodes) == []


async def test_an_erasure_without_cancellation_is_refused_for_a_call_that_it_waited_for(nodes: Nodes) -> None:
    caller = await create_caller(nodes)

    _, refused = await nodes.interleave(
        lambda node: report_call(node, caller), lambda node: erase_principal(node, cancel=False)
    )

    assert isinstance(refused, CallRunning)
    assert await nodes.first.store.write(lambda tx: tx.api_keys.hold(caller.key_id or KeyId(""))), "the key is left"


async def test_a_call_that_is_stored_is_erased_although_its_nodes_clock_is_ahead(
    nodes: Nodes, clock: FakeClock
) -> None:
    ahead = make_call(principal=ALICE, status=CallStatus.COMPLETED, created_at=clock.now() + timedelta(milliseconds=5))
    await nodes.first.store.write(lambda tx: tx.calls.insert(ahead))

    erasure = await erase_principal(nodes.second)

    assert (erasure.state, erasure.calls) == (ErasureState.FINISHED, 1)
    assert list_rows(nodes) == []


async def test_an_erased_session_includes_a_call_that_the_clock_of_another_node_dates_later(
    nodes: Nodes, clock: FakeClock
) -> None:
    dated_later = clock.now() + timedelta(milliseconds=30)
    call = make_call(principal=ALICE, status=CallStatus.COMPLETED, client_session_id="session", created_at=dated_later)
    await nodes.first.store.write(lambda tx: tx.calls.insert(call))

    erasure = await nodes.second.services.erasures.erase_session(CALLER, "session", cancel=True)

    assert erasure.state is ErasureState.FINISHED
    assert query_rows(nodes.folder, "SELECT id FROM calls") == []
