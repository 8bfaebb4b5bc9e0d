"""Units lock webhooks before logs, and wait for no locked turn or delivery, so that no two wait for each other.

Each test holds one unit after its locks, starts the other one, and finds out by a third unit what the other one has locked.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ringback.domain.call import Call
from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery
from ringback.domain.ports import Transaction
from ringback.measurements import Measurements
from ringback.notifier.unsendable_deliveries import UnsendableDeliveries
from ringback.services.webhooks.registrations import WebhookRegistration
from ringback.services.webhooks.webhook_updates import remove_webhook_batch
from tests.support.builders import make_call, make_delivery, make_webhook
from tests.support.clock import FakeClock
from tests.support.examples import ALICE, BOB
from tests.support.interleaving import CALLER, Nodes
from tests.support.limits import WAIT_SECONDS

URL = "http://127.0.0.1:1/callback"

pytestmark = pytest.mark.postgres_only


@asynccontextmanager
async def held(nodes: Nodes, work: Callable[[Transaction], Awaitable[Any]]) -> AsyncGenerator[None]:
    """The unit has run on the first node, and is not committed before the end of the context."""
    unit = nodes.first.store.hold_next_write()
    task = asyncio.create_task(nodes.first.store.write(work))
    async with asyncio.timeout(WAIT_SECONDS):
        await unit.has_run.wait()
        try:
            yield
        finally:
            unit.released.set()
            await task


async def test_a_removal_waits_for_no_delivery_that_a_unit_gives_up(nodes: Nodes, clock: FakeClock) -> None:
    webhook = (await nodes.first.services.registrations.register_webhook(CALLER, WebhookRegistration(url=URL))).webhook
    delivery = make_delivery(webhook_id=webhook.id, principal=ALICE, due_at=clock.now(), give_up_at=clock.now())
    await nodes.first.store.write(lambda tx: tx.deliveries.insert([delivery]))

    async with held(nodes, lambda tx: tx.delivery_queue.give_up_expired(webhook.id, now=tx.now(), limit=10)):
        await nodes.second.services.webhooks.remove_webhook(CALLER, webhook.id)


async def test_a_repeated_registration_waits_for_the_webhook_without_the_lock_of_the_log(nodes: Nodes) -> None:
    registration = WebhookRegistration(url=URL, expires_in_seconds=60.0)
    webhook = await nodes.first.services.registrations.register_once(CALLER, registration)

    async with held(nodes, lambda tx: tx.webhooks.get(webhook.id)):
        repeated = asyncio.create_task(
            nodes.second.services.registrations.register_once(CALLER, replace(registration, expires_in_seconds=600.0))
        )
        await nodes.wait_until_blocked()
        await nodes.second.store.write(lambda tx: tx.event_log.get_head(ALICE, lock=True))

    assert (await repeated).id == webhook.id


async def test_a_start_that_does_not_go_first_locks_no_turn_before_it_leases_of_the_queue(
    nodes: Nodes, clock: FakeClock
) -> None:
    queued = [make_call(principal=principal) for principal in (ALICE, BOB)]
    upstream = queued[0].upstream
    await nodes.first.store.write(partial(take_turn_of_bob, upstream=upstream))
    for call in queued:
        await nodes.first.store.write(partial(insert_call, call=call))

    async with held(nodes, partial(take_turn_of_bob, upstream=upstream)):
        leased = await nodes.second.store.write(partial(lease_queued, upstream=upstream, clock=clock))

    assert {call.id for call in leased} == {call.id for call in queued}


async def test_a_lease_waits_for_no_turn_that_another_unit_counts(nodes: Nodes, clock: FakeClock) -> None:
    """The unit may wait for rows of its principal, or its node is frozen. Waiting, a node leased no call of anybody."""
    queued = [make_call(principal=principal) for principal in (ALICE, BOB)]
    upstream = queued[0].upstream
    await nodes.first.store.write(partial(take_turn_of_bob, upstream=upstream))

    async with held(nodes, partial(take_turn_of_bob, upstream=upstream)):
        for call in queued:
            await nodes.second.store.write(partial(insert_call, call=call))
        leased = await nodes.second.store.write(partial(lease_queued, upstream=upstream, clock=clock))

    assert {call.id for call in leased} == {call.id for call in queued}


async def lease_queued(tx: Transaction, *, upstream: str, clock: FakeClock) -> Sequence[Call]:
    until = clock.now() + seconds(30)
    return await tx.call_queue.lease_queued(upstream, owner="two", token="two", until=until, limit=10)


async def insert_call(tx: Transaction, *, call: Call) -> None:
    await tx.calls.insert(call)


async def take_turn_of_bob(tx: Transaction, *, upstream: str) -> bool:
    return await tx.call_queue.take_turn(upstream, BOB)


async def test_two_nodes_that_lease_of_an_ordered_webhook_do_not_wait_for_each_other(
    nodes: Nodes, clock: FakeClock
) -> None:
    webhook = make_webhook(principal=ALICE, ordered=True)
    delivery = make_delivery(webhook_id=webhook.id, principal=ALICE, due_at=clock.now(), order_key="session")
    await nodes.first.store.write(lambda tx: tx.webhooks.insert(webhook))
    await nodes.first.store.write(lambda tx: tx.deliveries.insert([delivery]))

    async def lease_due(tx: Transaction, *, owner: str) -> list[str]:
        until = clock.now() + seconds(30)
        page = await tx.delivery_queue.lease_due(
            webhook.id, now=tx.now(), owner=owner, token=owner, until=until, limit=10, ordered=True
        )
        return [each.id for each in page]

    async with held(nodes, partial(lease_due, owner="one")):
        assert await nodes.second.store.write(partial(lease_due, owner="two")) == []


@pytest.mark.parametrize("rate_per_second", [None, 5.0])
async def test_a_lease_that_drops_unreadable_deliveries_and_the_removal_of_their_webhook_both_end(
    nodes: Nodes, clock: FakeClock, rate_per_second: float | None
) -> None:
    """The lease locks deliveries and then the webhook. The removal has locked the webhook, and skips locked deliveries.

    With a rate, the lease has locked that too, and the removal deletes it: then one of the units runs again.
    """
    webhook = make_webhook(principal=ALICE, rate_per_second=rate_per_second)
    delivery = make_delivery(webhook_id=webhook.id, principal=ALICE, due_at=clock.now(), seq=7)
    await nodes.first.store.write(lambda tx: tx.webhooks.insert(webhook))
    await nodes.first.store.write(lambda tx: tx.deliveries.insert([delivery]))
    if rate_per_second is not None:
        await nodes.first.store.write(lambda tx: tx.webhook_rates.lock(webhook.id))
    unsendable = UnsendableDeliveries(Measurements(), on_given_up=lambda _: None)
    has_locked, goes_on = asyncio.Event(), asyncio.Event()
    runs = Counter[str]()

    async def remove(tx: Transaction) -> bool:
        runs["removal"] += 1
        locked = await tx.webhooks.get(webhook.id)
        has_locked.set()
        while not goes_on.is_set():
            await tx.pause()
        return locked is not None and await remove_webhook_batch(tx, locked)

    async def lease_and_drop(tx: Transaction) -> Sequence[Any]:
        runs["lease"] += 1
        if rate_per_second is not None:
            await tx.webhook_rates.lock(webhook.id)
        until = tx.now() + seconds(30)
        leased = await tx.delivery_queue.lease_due(
            webhook.id, now=tx.now(), owner="two", token="two", until=until, limit=10, ordered=False
        )
        return await unsendable.drop_unreadable(tx, [replace(each, body=b"") for each in leased])

    async with asyncio.timeout(WAIT_SECONDS):
        removal = asyncio.create_task(nodes.first.store.write(remove))
        await has_locked.wait()
        lease = asyncio.create_task(nodes.second.store.write(lease_and_drop))
        await nodes.wait_until_blocked()
        goes_on.set()
        removed, sendable = await asyncio.gather(removal, lease)

    assert (removed, sendable) == (True, [])
    assert await nodes.first.store.read(lambda tx: tx.webhooks.get(webhook.id)) is None
    assert rate_per_second is not None or runs == {"removal": 1, "lease": 1}


async def test_leases_that_drop_unreadable_deliveries_of_the_same_webhooks_do_not_wait_for_each_other_in_a_circle(
    nodes: Nodes, clock: FakeClock
) -> None:
    """Both lock the webhooks in the order of their ids, whatever the order of the deliveries."""
    webhooks = [make_webhook(principal=ALICE) for _ in range(2)]
    deliveries = [
        make_delivery(webhook_id=webhook.id, principal=ALICE, due_at=clock.now(), seq=seq)
        for seq in (1, 2)
        for webhook in webhooks
    ]

    async def insert(tx: Transaction) -> None:
        for webhook in webhooks:
            await tx.webhooks.insert(webhook)
        await tx.deliveries.insert(deliveries)

    unsendable = UnsendableDeliveries(Measurements(), on_given_up=lambda _: None)

    async def drop(tx: Transaction, *, chosen: Sequence[Delivery]) -> None:
        leased = await tx.delivery_queue.lease(
            [each.id for each in chosen], owner="me", token="me", until=tx.now() + seconds(30)
        )
        unreadable = {each.id: replace(each, body=b"") for each in leased}
        await unsendable.drop_unreadable(tx, [unreadable[each.id] for each in chosen])

    await nodes.first.store.write(insert)
    async with held(nodes, partial(drop, chosen=deliveries[:2])):
        second = asyncio.create_task(nodes.second.store.write(partial(drop, chosen=deliveries[:1:-1])))
        await nodes.wait_until_blocked()
    await second

    missed = [await nodes.first.store.read(lambda tx, each=each: tx.webhooks.get(each.id)) for each in webhooks]
    assert [each and each.missed_from for each in missed] == [1, 1]
