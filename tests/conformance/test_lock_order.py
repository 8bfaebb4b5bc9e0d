"""Units lock webhooks before logs, and wait for no locked turn or delivery, so that no two wait for each other.

Each test holds one unit after its locks, starts the other one, and finds out by a third unit what the other one has locked.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ringback.domain.call import Call
from ringback.domain.clock import seconds
from ringback.domain.ports import Transaction
from ringback.services.webhooks.registrations import WebhookRegistration
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
