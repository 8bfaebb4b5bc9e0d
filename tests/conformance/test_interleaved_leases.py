"""Two nodes that lease, hold and recover the same calls and deliveries at the same time."""

import asyncio
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from ringback.domain.call import Call, CallPhase
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import seconds
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Transaction
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.runner.leasing import CallLeasing, RunnerConfig
from tests.support.builders import make_call, make_delivery, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import hold_nothing
from tests.support.examples import ALICE
from tests.support.interleaving import Node, Nodes
from tests.support.limits import WAIT_SECONDS


async def test_two_nodes_lease_different_calls(nodes: Nodes, clock: FakeClock) -> None:
    calls = [make_call() for _ in range(8)]

    async def insert(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    async def lease(owner: str, node: Node) -> list[Call]:
        return list(
            await node.store.write(
                lambda tx: tx.call_queue.lease_queued(
                    "git", owner=owner, token=owner, until=clock.now() + seconds(30), limit=4
                )
            )
        )

    await nodes.first.store.write(insert)
    one, two = await nodes.interleave(partial(lease, "one"), partial(lease, "two"))
    rest = await lease("rest", nodes.first)

    leased = [call.id for call in (*one, *two, *rest)]
    assert sorted(leased) == sorted(call.id for call in calls)
    assert len(one) == 4


async def test_scheduled_calls_that_another_node_queues_are_not_asked_for_without_a_pause(
    nodes: Nodes, clock: FakeClock
) -> None:
    """The runner waits until the returned time. One in the past made it ask again at once, while the rows were locked."""
    call = make_call(phase=CallPhase.SCHEDULED, not_before=clock.now())
    await nodes.first.store.write(lambda tx: tx.calls.insert(call))

    async def queue_due(node: Node) -> datetime | None:
        return await node.store.write(lambda tx: tx.scheduled_calls.queue_due(now=clock.now(), limit=10))

    one, two = await nodes.interleave(queue_due, queue_due)

    assert one is None
    assert two is None or two > clock.now()
    assert await queue_due(nodes.second) is None


async def test_a_node_does_not_wait_for_a_rate_that_another_node_uses(nodes: Nodes) -> None:
    """It leases the deliveries of all other webhooks. Waiting, it leased none of them while the row stayed locked."""
    webhook = make_webhook(rate_per_second=1.0)
    await nodes.first.store.write(lambda tx: tx.webhooks.insert(webhook))

    async def lock(node: Node) -> float | None:
        return await node.store.write(lambda tx: tx.webhook_rates.lock(webhook.id))

    assert await lock(nodes.first) == 0.0
    assert await nodes.interleave(lock, lock) == (0.0, 0.0 if nodes.first.store.is_exclusive else None)
    assert await lock(nodes.second) == 0.0


def make_call_leasing(owner: str, clock: FakeClock, *, capacity: int) -> CallLeasing:
    return CallLeasing(
        ids=IdGenerator(clock=clock),
        clock=clock,
        config=RunnerConfig(owner=owner),
        get_capacity=lambda: {"git": capacity},
        can_send_at_once=lambda _: False,
        hold_call=hold_nothing,
        is_shared=True,
    )


async def test_a_node_that_leases_as_many_calls_as_it_takes_wakes_the_others(nodes: Nodes, clock: FakeClock) -> None:
    calls = [make_call() for _ in range(3)]

    async def insert(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    async def lease(leasing: CallLeasing, node: Node) -> list[str]:
        leased = await node.store.write(lambda tx: leasing.lease_queued(tx, "git", trusted_until=0.0))
        return [call.id for call in leased]

    await nodes.first.store.write(insert)
    first, second, third = (make_call_leasing(name, clock, capacity=1) for name in ("one", "two", "three"))
    with nodes.second.store.signals.listen(CALL_QUEUED_TOPIC) as waiter:
        one, two = await nodes.interleave(partial(lease, first), partial(lease, second))
        assert await waiter.wait(WAIT_SECONDS)
    two = two or await lease(second, nodes.second)
    three = await lease(third, nodes.first)

    assert [len(each) for each in (one, two, three)] == [1, 1, 1]
    assert sorted([*one, *two, *three]) == sorted(call.id for call in calls)


@pytest.mark.postgres_only
async def test_a_lease_does_not_wait_for_a_first_turn_that_another_node_is_counting(
    nodes: Nodes, clock: FakeClock
) -> None:
    """That node may be frozen. The lease waited for ten seconds, and with it the calls of all principals."""
    call, until = make_call(principal=ALICE), clock.now() + seconds(30)
    counting = nodes.first.store.hold_next_write()
    counted = asyncio.create_task(
        nodes.first.store.write(lambda tx: tx.call_queue.take_turn(call.upstream, call.principal))
    )
    await asyncio.wait_for(counting.has_run.wait(), WAIT_SECONDS)
    await nodes.second.store.write(lambda tx: tx.calls.insert(call))

    leased = await nodes.second.store.write(
        lambda tx: tx.call_queue.lease_queued(call.upstream, owner="two", token="two", until=until, limit=1)
    )
    is_waiting = not counted.done()
    counting.released.set()

    assert ([each.id for each in leased], is_waiting, await counted) == ([call.id], True, True)


@pytest.mark.postgres_only
async def test_nor_does_a_start_wait_for_a_first_turn_that_another_node_is_counting(nodes: Nodes) -> None:
    counting = nodes.first.store.hold_next_write()
    counted = asyncio.create_task(nodes.first.store.write(lambda tx: tx.call_queue.take_turn("git", ALICE)))
    await asyncio.wait_for(counting.has_run.wait(), WAIT_SECONDS)

    assert await nodes.second.store.write(lambda tx: tx.call_queue.take_turn("git", ALICE))
    counting.released.set()
    assert await counted


async def test_two_nodes_lease_different_deliveries(nodes: Nodes, clock: FakeClock) -> None:
    webhook = make_webhook(principal=ALICE)
    deliveries = [make_delivery(webhook_id=webhook.id, seq=seq) for seq in range(1, 9)]

    async def insert(tx: Transaction) -> None:
        await tx.webhooks.insert(webhook)
        await tx.deliveries.insert(deliveries)

    async def lease(owner: str, node: Node) -> list[Any]:
        return list(
            await node.store.write(
                lambda tx: tx.delivery_queue.lease_due(
                    webhook.id,
                    now=clock.now(),
                    owner=owner,
                    token=owner,
                    until=clock.now() + seconds(30),
                    limit=4,
                    ordered=False,
                )
            )
        )

    await nodes.first.store.write(insert)
    one, two = await nodes.interleave(partial(lease, "one"), partial(lease, "two"))
    rest = await lease("rest", nodes.first)

    assert sorted(each.id for each in (*one, *two, *rest)) == sorted(each.id for each in deliveries)
    assert {each.lease_owner for each in two} <= {"two"}


async def test_two_nodes_do_not_send_deliveries_of_one_order_key_at_once(nodes: Nodes, clock: FakeClock) -> None:
    webhook = make_webhook(principal=ALICE, ordered=True)
    deliveries = [make_delivery(webhook_id=webhook.id, seq=seq, order_key="key") for seq in (1, 2)]

    async def insert(tx: Transaction) -> None:
        await tx.webhooks.insert(webhook)
        await tx.deliveries.insert(deliveries)

    async def lease(owner: str, node: Node) -> list[str]:
        leased = await node.store.write(
            lambda tx: tx.delivery_queue.lease_due(
                webhook.id,
                now=clock.now(),
                owner=owner,
                token=owner,
                until=clock.now() + seconds(30),
                limit=4,
                ordered=True,
            )
        )
        return [each.id for each in leased]

    await nodes.first.store.write(insert)
    one, two = await nodes.interleave(partial(lease, "one"), partial(lease, "two"))

    assert (one, two) == ([deliveries[0].id], [])


async def test_a_holder_whose_lease_was_taken_meanwhile_writes_nothing(nodes: Nodes, clock: FakeClock) -> None:
    call = make_call(phase=CallPhase.RUNNING, lease_owner="one", lease_token="old", lease_until=clock.now())

    async def recover(tx: Transaction) -> bool:
        (lost,) = await tx.call_queue.find_lease_expired(now=clock.now(), limit=10)
        queued = replace(lost, phase=CallPhase.QUEUED, lease_owner=None, lease_token=None, lease_until=None)
        return await tx.calls.update(queued, CallChange.QUEUED, expected=lost.status, lease_token=None)

    async def write_progress(tx: Transaction) -> bool:
        latest = await tx.calls.get(call.id)
        assert latest is not None
        return await tx.calls.update(latest, CallChange.HANDLE, expected=latest.status, lease_token="old")

    await nodes.first.store.write(lambda tx: tx.calls.insert(call))
    recovered, written = await nodes.interleave(
        lambda node: node.store.write(recover), lambda node: node.store.write(write_progress)
    )

    assert (recovered, written) == (True, False)


async def test_two_janitors_share_expired_leases(nodes: Nodes, clock: FakeClock) -> None:
    calls = [
        make_call(phase=CallPhase.RUNNING, lease_owner="dead", lease_token="t", lease_until=clock.now())
        for _ in range(4)
    ]

    async def insert(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    async def recover(tx: Transaction) -> list[str]:
        found = await tx.call_queue.find_lease_expired(now=clock.now(), limit=2)
        for lost in found:
            queued = replace(lost, phase=CallPhase.QUEUED, lease_owner=None, lease_token=None, lease_until=None)
            assert await tx.calls.update(queued, CallChange.QUEUED, expected=lost.status, lease_token=None)
        return [each.id for each in found]

    await nodes.first.store.write(insert)
    one, two = await nodes.interleave(lambda node: node.store.write(recover), lambda node: node.store.write(recover))

    assert len(one) == 2
    assert not set(one) & set(two)
