"""Deliveries that are made due at once, the probes of origins, and what is counted for their owner."""

from datetime import timedelta

import pytest

from ringback.domain.circuit_breaker import REQUESTED_PROBE_SPACING_SECONDS, CircuitBreaker
from ringback.domain.delivery import DeliveryState
from ringback.domain.delivery_rows import OpenDeliveryCounts
from ringback.domain.ports import Store
from tests.support.builders import make_delivery, make_webhook
from tests.support.clock import START

pytestmark = pytest.mark.requirement("R27")

LATER = START + timedelta(hours=1)
ORIGIN = "https://agent.example"


async def test_only_tried_deliveries_are_made_due_and_only_so_many_in_one_unit(store: Store) -> None:
    webhook, other = make_webhook(), make_webhook()
    waiting = [make_delivery(webhook_id=webhook.id, seq=seq, due_at=LATER, attempts=1) for seq in range(1, 4)]
    untried = make_delivery(webhook_id=webhook.id, seq=4, due_at=LATER)
    held = make_delivery(webhook_id=webhook.id, seq=5, due_at=LATER, attempts=1, state=DeliveryState.HELD)
    foreign = make_delivery(webhook_id=other.id, seq=6, due_at=LATER, attempts=1)

    await store.write(lambda tx: tx.deliveries.insert([*waiting, untried, held, foreign]))

    made_due = [
        await store.write(lambda tx: tx.webhook_deliveries.make_due(webhook.id, now=START, limit=2)) for _ in range(3)
    ]

    counts = await store.read(lambda tx: tx.webhook_deliveries.count_open(webhook.id, now=START, limit=10))
    bounded = await store.read(lambda tx: tx.webhook_deliveries.count_open(webhook.id, now=LATER, limit=2))
    assert made_due == [2, 1, 0]
    assert counts == OpenDeliveryCounts(due=3, held=1, leased=0, first_due_at=START)
    assert bounded.due == 2
    for unchanged in (untried, held, foreign):
        found = await store.read(lambda tx, each=unchanged: tx.deliveries.get(each.id))
        assert found == unchanged


async def test_an_origin_is_probed_upon_request_once_in_a_while_for_all_principals_together(store: Store) -> None:
    spacing = timedelta(seconds=REQUESTED_PROBE_SPACING_SECONDS)
    opened = CircuitBreaker(failures=12, openings=4, paused_until=START + timedelta(minutes=2))
    await store.write(lambda tx: tx.origin_breakers.save_breaker(ORIGIN, opened))

    async def request(seconds: float) -> float | None:
        probe_at = await store.write(
            lambda tx: tx.origin_breakers.request_probe(ORIGIN, now=START + timedelta(seconds=seconds))
        )
        return None if probe_at is None else (probe_at - START).total_seconds()

    first = await request(1)
    await store.write(lambda tx: tx.origin_breakers.save_breaker(ORIGIN, opened))  # the probe has failed
    repeated = [await request(seconds) for seconds in (2, 3)]
    (found,) = (await store.read(lambda tx: tx.origin_breakers.get_breakers([ORIGIN]))).values()

    assert first == 1.0
    assert repeated == [1 + spacing.total_seconds()] * 2
    assert found == CircuitBreaker(failures=12, openings=4, paused_until=START + timedelta(seconds=1) + spacing)


async def test_a_closed_breaker_needs_no_probe(store: Store) -> None:
    failing = CircuitBreaker(failures=3)
    await store.write(lambda tx: tx.origin_breakers.save_breaker(ORIGIN, failing))

    for origin in (ORIGIN, "https://elsewhere.example"):
        assert await store.write(lambda tx, each=origin: tx.origin_breakers.request_probe(each, now=START)) is None
    assert await store.read(lambda tx: tx.origin_breakers.get_breakers([ORIGIN])) == {ORIGIN: failing}
