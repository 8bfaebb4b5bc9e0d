"""Bulk requests of one principal run one after the other, and its other requests keep to its share of the connections."""

import asyncio
from typing import Final

import pytest

from ringback.domain.call_rows import CallFilter
from ringback.domain.delivery import DeliveryState
from ringback.domain.delivery_rows import RedeliveryFilter
from ringback.domain.erasure import Erasure
from ringback.domain.errors import QuotaExceeded
from ringback.services.calls.cancellation import BulkCancellation
from ringback.services.deliveries.bulk_redelivery import BulkRedelivery
from tests.conformance.test_lock_order import held
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.dead_deliveries import insert_dead_delivery
from tests.support.examples import ALICE
from tests.support.interleaving import CALLER, Node, Nodes
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.postgres_only

AT_ONCE: Final = 8
"""Requests, as many as a node has writing connections."""
SERVICE_CONNECTIONS: Final = 3
"""Writing connections that units of the service itself may use. A principal may use one more."""


async def redeliver(node: Node) -> BulkRedelivery:
    where = RedeliveryFilter(state=DeliveryState.DEAD)
    return await node.services.bulk_redeliveries.redeliver(CALLER, where, position=None, dry_run=False)


async def cancel(node: Node) -> BulkCancellation:
    return await node.services.bulk_cancellations.cancel_calls(CALLER, CallFilter(upstream="git"), dry_run=False)


async def erase(node: Node) -> Erasure:
    return await node.services.erasures.erase_session(CALLER, "session-1", cancel=True)


async def require_free_connection(node: Node) -> None:
    """A unit of the service itself runs although units of one principal wait."""
    async with asyncio.timeout(WAIT_SECONDS):
        await node.store.write(lambda tx: tx.scheduling_time.load())


async def test_while_a_bulk_request_waits_for_a_row_the_principals_other_bulk_requests_are_refused(
    nodes: Nodes, clock: FakeClock
) -> None:
    webhook, _ = await insert_dead_delivery(nodes, clock)

    async with held(nodes, lambda tx: tx.webhooks.get(webhook.id)):
        first = asyncio.create_task(redeliver(nodes.second))
        await nodes.wait_until_blocked()
        others = await asyncio.gather(redeliver(nodes.second), cancel(nodes.second), return_exceptions=True)

    assert [type(each) for each in others] == [QuotaExceeded, QuotaExceeded]
    assert (await first).redelivered == 1
    assert await cancel(nodes.second) == BulkCancellation(cancelled=0, requested=0, has_more=False)


async def test_erasures_that_wait_for_a_call_leave_connections_to_the_service(nodes: Nodes) -> None:
    call = make_call(principal=ALICE, upstream="git", client_session_id="session-1")
    await nodes.first.store.write(lambda tx: tx.calls.insert(call))

    async with held(nodes, lambda tx: tx.calls.get(call.id)):
        requests = [asyncio.create_task(erase(nodes.second)) for _ in range(AT_ONCE)]
        await nodes.wait_until_blocked(units=SERVICE_CONNECTIONS)
        await require_free_connection(nodes.second)

    await asyncio.gather(*requests)
