"""The dispatcher and a unit of work that inserts a delivery never use the same permit."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.ids import IdGenerator, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.measurements import Measurements
from ringback.notifier.concurrency_limiter import ConcurrencyLimiter, ConcurrencyLimits
from ringback.notifier.follow_ups import FollowUp
from ringback.notifier.http.target import TargetCache
from ringback.notifier.leasing import DeliveryLeasing
from ringback.storage.signals import LocalSignals
from tests.support.builders import START, make_delivery, make_verified_webhook
from tests.support.clock import FakeClock

pytestmark = pytest.mark.requirement("R34")

WEBHOOK = make_verified_webhook()
DELIVERY = make_delivery(webhook_id=WEBHOOK.id)


class Page(list[Any]):
    next_position = None


class OneWebhookStore:
    """Store and transaction: one delivery is due, and another unit of work asks for a permit while the query runs."""

    is_exclusive = False

    def __init__(self, limits: ConcurrencyLimits) -> None:
        self.limiter = ConcurrencyLimiter(limits)
        self.signals = LocalSignals()
        self.leasing = DeliveryLeasing(
            store=cast("Store", self),
            ids=IdGenerator(FakeClock()),
            limiter=self.limiter,
            target_cache=cast("TargetCache", self),
            owner="node",
            lease_seconds=30.0,
            clock=FakeClock(),
            measurements=Measurements(),
        )
        self.webhooks = self.origin_breakers = self.delivery_queue = self
        self.asked: list[Any] = []

    async def write(self, work: Any) -> Any:
        return await work(self)

    async def write_for(self, _principal: Any, work: Any) -> Any:
        return await work(self)

    def now(self) -> Any:
        return START

    def on_commit(self, action: Any) -> None:
        action()

    def on_rollback(self, _action: Any) -> None: ...

    def get_origin(self, url: str) -> str:
        return url

    async def list_due_webhooks(self, **_: Any) -> Page:
        return Page([WEBHOOK.id])

    async def get_many(self, _ids: Any) -> Any:
        return [WEBHOOK]

    async def get_breakers(self, _origins: Any) -> Any:
        return {}

    async def next_due_at(self) -> Any:
        return None

    async def find_due(self, _limits: Any, **_: Any) -> Any:
        self.asked.append(self.leasing.acquire_handoff_permit(cast("Transaction", self), WEBHOOK))
        return {WEBHOOK.id: [DELIVERY.id]}

    async def lease(self, _delivery_ids: Any, **_: Any) -> Page:
        return Page([DELIVERY])


async def test_one_permit_goes_to_the_query_or_to_a_delivery_that_is_inserted_meanwhile() -> None:
    store = OneWebhookStore(ConcurrencyLimits(in_flight_max=1))

    leased = await store.leasing.lease_due()

    assert len(leased.deliveries) + sum(permit is not None for permit in store.asked) == store.limiter.in_flight == 1


class LargeDeliveriesStore(OneWebhookStore):
    """Two deliveries are due, and their bodies are too large for one unit."""

    async def find_due(self, _limits: Any, **_: Any) -> Any:
        return {WEBHOOK.id: [DELIVERY.id, make_delivery().id]}


async def test_a_query_that_left_out_large_deliveries_is_repeated_at_once_and_their_permits_are_free() -> None:
    store = LargeDeliveriesStore(ConcurrencyLimits())

    batch = await store.leasing.lease_due()

    assert (len(batch.deliveries), batch.has_more, store.limiter.in_flight) == (1, True, 1)


async def test_an_origin_whose_breaker_another_node_has_closed_is_sent_to_again() -> None:
    store = OneWebhookStore(ConcurrencyLimits())
    paused = CircuitBreaker(failures=10, openings=1, paused_until=START + timedelta(minutes=2))
    store.limiter.update_origin_breakers({WEBHOOK.url: paused}, now=START)

    await store.leasing.lease_due()

    assert store.limiter.in_flight == 1  # after an outage, one attempt at first


async def test_a_follow_up_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    store, run = OneWebhookStore(ConcurrencyLimits()), list[object]()

    async def stumble(_tx: Transaction) -> None:
        raise ZeroDivisionError

    async def note_run(tx: Transaction) -> None:
        run.append(tx)

    follow_ups = [FollowUp(WEBHOOK, stumble), FollowUp(WEBHOOK, note_run)]
    async with asyncio.TaskGroup() as group:
        store.leasing.follow_ups.start_units(group, follow_ups, on_end=lambda: run.append("ended"))

    assert (run, caplog.messages) == ([store], ["deliveries.give_up_failed"])


class RatedWebhooksStore(OneWebhookStore):
    """Two webhooks with shared rates are due. Their ids are not in the order in which they are due."""

    def __init__(self) -> None:
        super().__init__(ConcurrencyLimits(in_flight_max=3))
        self.webhook_rates = self
        self.locked: list[Any] = []
        self.looked_for: Any = None
        self.full_at: float | None = 0.0
        self._rated = [replace(WEBHOOK, id=WebhookId(each), rate_per_second=1.0) for each in ("wh_b", "wh_a")]

    async def list_due_webhooks(self, **_: Any) -> Page:
        return Page([webhook.id for webhook in self._rated])

    async def get_many(self, _ids: Any) -> Any:
        return self._rated

    async def find_due(self, limits: Any, **_: Any) -> Any:
        self.looked_for = limits
        return {}

    async def lock(self, webhook_id: Any) -> float | None:
        self.locked.append(webhook_id)
        return self.full_at


async def test_shared_rates_are_locked_in_the_order_of_their_webhooks_ids() -> None:
    store = RatedWebhooksStore()

    await store.leasing.lease_due()

    assert store.locked == ["wh_a", "wh_b"]


async def test_a_webhook_whose_rate_another_node_uses_is_queried_again_a_moment_later() -> None:
    store = RatedWebhooksStore()
    store.full_at = None

    leased = await store.leasing.lease_due()

    assert (leased.deliveries, store.looked_for) == ([], {})
    assert store.limiter.webhooks_without_permits(now=START) == {"wh_a", "wh_b"}
    assert store.limiter.webhooks_without_permits(now=START + timedelta(seconds=1)) == set()


async def test_permits_that_the_query_does_not_use_are_free_afterwards() -> None:
    store = OneWebhookStore(ConcurrencyLimits(in_flight_max=3))

    await store.leasing.lease_due()

    assert store.limiter.free_permits() == 1  # one for the due delivery, one for the inserted one


class RatedLargeDeliveriesStore(LargeDeliveriesStore):
    """Of two due deliveries of a webhook with a shared rate, one unit leases one."""

    def __init__(self) -> None:
        super().__init__(ConcurrencyLimits())
        self.webhook_rates = self
        self.saved: list[float] = []

    async def get_many(self, _ids: Any) -> Any:
        return [replace(WEBHOOK, rate_per_second=2.0)]

    async def lock(self, _webhook_id: Any) -> float:
        return 0.0

    async def save(self, _webhook_id: Any, *, full_at: float) -> None:
        self.saved.append(full_at - START.timestamp())


async def test_a_delivery_that_a_query_left_out_uses_up_nothing_of_a_shared_rate() -> None:
    store = RatedLargeDeliveriesStore()

    batch = await store.leasing.lease_due()

    assert (len(batch.deliveries), store.saved) == (1, [pytest.approx(0.5)])
