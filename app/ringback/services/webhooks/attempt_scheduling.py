"""Makes the pending deliveries of a webhook due now, and says what happens with its open deliveries and when.

    redeliver, replay, enable, resume, verify, test, a new URL or secret
        │
        ├─ the webhook's breaker        half-open: one attempt probes the receiver
        ├─ its principal's breaker there, half-open, once in `REQUESTED_PROBE_SPACING_SECONDS` for all who share it
        │  and its origin's breaker
        └─ deliveries of later attempts due now, in the order of the log

A success closes all three, and the other deliveries follow (`notifier.backlog_limiter`). A failure opens them again, so the
receiver gets one attempt for each request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from ringback.domain.circuit_breaker import CircuitState, half_opened
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import DELIVERY_DUE_TOPIC, webhook_due_topic
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_health import HELD_DELIVERIES_MAX, RELEASE_BATCH_SIZE
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.concurrency_limiter import accepts_attempts
from ringback.notifier.http.target import TargetCache, TargetPolicy
from ringback.notifier.permits import ReceiverKey
from ringback.services.limits.pacing import BatchPace

DUE_NOW_MAX: Final = HELD_DELIVERIES_MAX
"""Deliveries of one webhook that one request makes due now, and the highest number that it counts."""

END_OF_TIME: Final = datetime.max.replace(tzinfo=UTC)
"""Every pending delivery is due before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDeliveries:
    """What happens with the open deliveries of one webhook, and when."""

    due_now: int
    """They are sent as soon as the webhook has a permit: one first if it fails, the others after a success."""
    held: int
    """They wait until the webhook is active and not paused."""
    in_flight: int
    next_attempt_at: datetime | None
    """The earliest time of the next attempt; None if none is scheduled."""


class AttemptScheduler:
    def __init__(self, *, store: Store, clock: Clock, targets: TargetPolicy) -> None:
        self._store = store
        self._clock = clock
        self._target_cache = TargetCache(targets)

    async def schedule_now(self, tx: Transaction, webhook: Webhook) -> OpenDeliveries:
        """Make up to `RELEASE_BATCH_SIZE` deliveries due now. The caller holds the lock of the webhook's row."""
        if _accepts_attempts(webhook):
            webhook = await self._half_open(tx, webhook)
            await tx.webhook_deliveries.make_due(webhook.id, now=tx.now(), limit=RELEASE_BATCH_SIZE)
            await _release_probe(tx, webhook)
            for key in self._list_breaker_keys(webhook):
                await tx.origin_breakers.request_probe(key, now=tx.now())
            tx.notify(DELIVERY_DUE_TOPIC, webhook_due_topic(webhook.id))
        return await self.describe(tx, webhook)

    async def schedule_rest(self, principal: Principal, webhook_id: WebhookId) -> None:
        """Make the deliveries due that `schedule_now` left, a batch in each transaction, `DUE_NOW_MAX` at most.

        The caller has stored its change, and the response reports it. So if the store is unavailable, the rest keeps its times.
        """

        async def make_due(tx: Transaction) -> int:
            webhook = await tx.webhooks.get(webhook_id)
            if webhook is None or not _accepts_attempts(webhook):
                return 0
            made_due = await tx.webhook_deliveries.make_due(webhook_id, now=tx.now(), limit=RELEASE_BATCH_SIZE)
            tx.notify(*([DELIVERY_DUE_TOPIC] if made_due else []))
            return made_due

        pace = BatchPace(self._clock)
        for _ in range(DUE_NOW_MAX // RELEASE_BATCH_SIZE):
            async with pace.next_batch():
                try:
                    made_due = await self._store.write_for(principal, make_due)
                except StoreUnavailable:
                    return
            if made_due < RELEASE_BATCH_SIZE:
                return

    async def schedule_all(self, webhook: Webhook) -> OpenDeliveries:
        """Make all deliveries of the webhook due now, in transactions of their own."""

        async def schedule(tx: Transaction) -> OpenDeliveries:
            latest = await tx.webhooks.get(webhook.id)
            return await self.schedule_now(tx, latest or webhook)

        return await self.complete_schedule(webhook, await self._store.write_for(webhook.principal, schedule))

    async def complete_schedule(self, webhook: Webhook, scheduled: OpenDeliveries) -> OpenDeliveries:
        """Make the deliveries due that `schedule_now` left. Return what happens with all of them."""
        if scheduled.due_now < RELEASE_BATCH_SIZE:
            return scheduled
        await self.schedule_rest(webhook.principal, webhook.id)

        async def describe_latest(tx: Transaction) -> OpenDeliveries:
            return await self.describe(tx, await tx.webhooks.get(webhook.id) or webhook)

        return await self._store.read(describe_latest)

    async def preview(self, tx: Transaction, webhook: Webhook, *, added: int) -> OpenDeliveries:
        """The open deliveries as a request would leave them that adds so many. Changes nothing and schedules nothing."""
        counts = await tx.webhook_deliveries.count_open(webhook.id, now=END_OF_TIME, limit=DUE_NOW_MAX)
        is_sent, pending = _accepts_attempts(webhook), counts.due + added
        return OpenDeliveries(
            due_now=pending if is_sent else 0,
            held=counts.held + (0 if is_sent else pending),
            in_flight=counts.leased,
            next_attempt_at=None,
        )

    async def describe(self, tx: Transaction, webhook: Webhook) -> OpenDeliveries:
        """The open deliveries as they are. Changes nothing.

        Pending ones of a webhook that accepts no attempts count as held: the dispatcher holds them when they are due.
        """
        is_sent = _accepts_attempts(webhook)
        now = tx.now() if is_sent else END_OF_TIME
        counts = await tx.webhook_deliveries.count_open(webhook.id, now=now, limit=DUE_NOW_MAX)
        if not is_sent:
            held = counts.held + counts.due
            return OpenDeliveries(due_now=0, held=held, in_flight=counts.leased, next_attempt_at=None)
        next_attempt_at = None
        if counts.first_due_at is not None:
            next_attempt_at = max(tx.now(), counts.first_due_at, await self.find_pause_end(tx, webhook) or tx.now())
        return OpenDeliveries(
            due_now=counts.due, held=counts.held, in_flight=counts.leased, next_attempt_at=next_attempt_at
        )

    async def find_pause_end(self, tx: Transaction, webhook: Webhook) -> datetime | None:
        """Until when an open breaker stops all attempts: its own, its principal's at the origin, or the origin's.

        None if none is open.
        """
        breakers = await tx.origin_breakers.get_breakers(self._list_breaker_keys(webhook))
        pauses = [
            breaker.paused_until
            for breaker in (webhook.breaker, *breakers.values())
            if breaker.state(tx.now()) is CircuitState.OPEN
        ]
        return max(filter(None, pauses), default=None)

    def _list_breaker_keys(self, webhook: Webhook) -> Sequence[str]:
        """Those of the origin and of the webhook's principal there, in the order in which they are locked."""
        origin = self._target_cache.get_origin(webhook.url)
        return sorted([origin, ReceiverKey(webhook.principal, origin).breaker_key])

    async def _half_open(self, tx: Transaction, webhook: Webhook) -> Webhook:
        breaker = half_opened(webhook.breaker, now=tx.now())
        if breaker == webhook.breaker:
            return webhook
        probed = replace(webhook, breaker=breaker)
        await tx.webhooks.update(probed, WebhookPart.HEALTH)
        return probed


def _accepts_attempts(webhook: Webhook) -> bool:
    return accepts_attempts(webhook) and not webhook.has_unreadable_secrets


async def _release_probe(tx: Transaction, webhook: Webhook) -> None:
    """Release one held delivery of a suspended webhook, as the janitor does after its breaker's pause."""
    if webhook.state is not WebhookState.SUSPENDED:
        return
    counts = await tx.webhook_deliveries.count_open(webhook.id, now=tx.now(), limit=1)
    if not counts.due and not counts.leased:
        await tx.webhook_deliveries.release_held(webhook.id, now=tx.now(), limit=1)
