"""Bulk requests of one principal keep to its share of the connections."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from ringback.domain.call import CallStatus
from ringback.domain.call_rows import CallFilter
from ringback.domain.delivery import DeliveryState
from ringback.domain.delivery_rows import RedeliveryFilter
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook
from ringback.services.bulk_redelivery import BulkRedelivery
from ringback.services.registrations import WebhookRegistration
from tests.conformance.test_lock_order import held
from tests.support.builders import make_call, make_delivery, make_event
from tests.support.clock import FakeClock
from tests.support.examples import ALICE
from tests.support.interleaving import CALLER, Node, Nodes
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.postgres_only

URL: Final = "http://127.0.0.1:1/callback"
AT_ONCE: Final = 8
"""Requests, as many as a node has writing connections."""
SERVICE_CONNECTIONS: Final = 3
"""Writing connections that units of the service itself may use. A principal may use one more."""


async def insert_dead_delivery(nodes: Nodes, clock: FakeClock) -> Webhook:
    webhook = (await nodes.first.services.registrations.register_webhook(CALLER, WebhookRegistration(url=URL))).webhook
    call = make_call(principal=ALICE, status=CallStatus.COMPLETED)

    async def insert(tx: Transaction) -> None:
        await tx.calls.insert(call)
        seq, _ = await tx.events.reserve_places(ALICE, 1)
        event = make_event(principal=ALICE, seq=seq, call_id=call.id)
        await tx.events.insert([event])
        delivery = make_delivery(
            webhook_id=webhook.id,
            principal=ALICE,
            call_id=call.id,
            event_id=event.id,
            seq=seq,
            state=DeliveryState.DEAD,
            created_at=clock.now() - timedelta(seconds=5),
        )
        await tx.deliveries.insert([delivery])

    await nodes.first.store.write(insert)
    return webhook


async def redeliver(node: Node) -> BulkRedelivery:
    where = RedeliveryFilter(state=DeliveryState.DEAD)
    return await node.services.bulk_redeliveries.redeliver(CALLER, where, position=None, dry_run=False)


async def cancel(node: Node) -> Any:
    return await node.services.bulk_cancellations.cancel_calls(CALLER, CallFilter(upstream="git"), dry_run=False)


async def erase(node: Node) -> Any:
    return await node.services.erasures.erase_session(CALLER, "session-1", cancel=True)


async def require_free_connection(node: Node) -> None:
    """A unit of the service itself runs although units of one principal wait."""
    async with asyncio.timeout(WAIT_SECONDS):
        await node.store.write(lambda tx: tx.scheduling_time.load())


async def test_bulk_redeliveries_that_wait_for_a_webhook_leave_connections_to_the_service(
    nodes: Nodes, clock: FakeClock
) -> None:
    webhook = await insert_dead_delivery(nodes, clock)

    async with held(nodes, lambda tx: tx.webhooks.get(webhook.id)):
        requests = [asyncio.create_task(redeliver(nodes.second)) for _ in range(AT_ONCE)]
        await nodes.wait_until_blocked(units=SERVICE_CONNECTIONS)
        await require_free_connection(nodes.second)

    assert sum(each.redelivered for each in await asyncio.gather(*requests)) == 1


@pytest.mark.parametrize("request_change", [cancel, erase])
async def test_cancellations_and_erasures_that_wait_for_a_call_leave_connections_to_the_service(
    nodes: Nodes, request_change: Callable[[Node], Awaitable[Any]]
) -> None:
    call = make_call(principal=ALICE, upstream="git", client_session_id="session-1")
    await nodes.first.store.write(lambda tx: tx.calls.insert(call))

    async with held(nodes, lambda tx: tx.calls.get(call.id)):
        requests = [asyncio.ensure_future(request_change(nodes.second)) for _ in range(AT_ONCE)]
        await nodes.wait_until_blocked(units=SERVICE_CONNECTIONS)
        await require_free_connection(nodes.second)

    await asyncio.gather(*requests)
