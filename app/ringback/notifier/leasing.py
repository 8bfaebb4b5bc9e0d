"""Leases due deliveries: chooses webhooks in turns, and as many deliveries of each as it has permits for."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from ringback.domain.circuit_breaker import CLOSED_BREAKER, SUSPENDED_BREAKER_POLICY, breaker_after_failure
from ringback.domain.clock import seconds
from ringback.domain.delivery import AttemptCategory, Delivery, DeliveryState, RetryDecision, build_delivery_update
from ringback.domain.ids import IdGenerator, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook, WebhookState, with_unreadable_secrets
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.attempts import record_losses
from ringback.notifier.concurrency_limiter import ConcurrencyLimiter, Permit
from ringback.notifier.http.target import TargetCache

log = logging.getLogger(__name__)

WEBHOOKS_PER_LEASE_MAX: Final = 64
"""Webhooks in one transaction, which takes some two milliseconds of the one writer's time."""
GIVE_UP_BATCH_SIZE: Final = 200
LEFT_TO_OTHERS_SECONDS: Final = 60.0
"""A node lacks a key until it is restarted with it; one look a minute finds out that the key was accepted as lost."""
PLACES_MAX: Final = 10_000
"""Cursors of ordered webhooks that have more sessions than one query visits. Beyond this, the cursor that was used longest ago
is dropped, and its webhook begins again at its first session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedDelivery:
    """A delivery to send before its lease expires, and its webhook as it was at the time of the lease."""

    delivery: Delivery
    webhook: Webhook
    permit: Permit


@dataclass(frozen=True, slots=True)
class LeasedBatch:
    deliveries: Sequence[LeasedDelivery]
    has_more: bool
    """Whether the query left out other webhooks or sessions that may be due."""


class DeliveryLeasing:
    def __init__(
        self,
        *,
        store: Store,
        ids: IdGenerator,
        limiter: ConcurrencyLimiter,
        target_cache: TargetCache,
        owner: str,
        lease_seconds: float,
    ) -> None:
        self._store = store
        self._ids = ids
        self._limiter = limiter
        self._target_cache = target_cache
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._webhook_cursor = ""
        self._left_until: dict[WebhookId, datetime] = {}
        """Webhooks that this node cannot read and others can, and until when it does not look at them."""
        self._order_key_cursors: dict[WebhookId, str] = {}

    async def lease_due(self) -> LeasedBatch:
        """Lease due deliveries that have permits, spread over webhooks; those that have waited longest come first."""
        if self._limiter.free_permits() <= 0:
            return LeasedBatch([], has_more=False)
        return await self._store.write(self._lease_due)

    def acquire_handoff_permit(self, tx: Transaction, webhook: Webhook) -> Permit | None:
        """A permit for a delivery that is being inserted; None if the webhook has no permits or older deliveries waiting."""
        if webhook.has_unreadable_secrets or webhook.ordered or webhook.rate_per_second is not None:
            return None
        if self._limiter.is_waiting(webhook.id):
            return None
        origin = self._target_cache.get_origin(webhook.url)
        if self._limiter.available_permits(webhook, origin, now=tx.now()) <= 0:
            return None
        return self._acquire_permit(tx, webhook, origin)

    async def _lease_due(self, tx: Transaction) -> LeasedBatch:
        excluded = self._limiter.webhooks_without_permits(now=tx.now()) | self._left_webhooks(tx.now())
        due = await tx.delivery_queue.list_due_webhooks(
            now=tx.now(), excluding=excluded, limit=WEBHOOKS_PER_LEASE_MAX, after=self._webhook_cursor
        )
        tx.on_commit(partial(self._advance_webhook_cursor, due.next_position))
        webhooks = {webhook.id: webhook for webhook in await tx.webhooks.get_many(due)}
        origins = {self._target_cache.get_origin(webhook.url) for webhook in webhooks.values()}
        self._limiter.update_origin_breakers(await tx.origin_breakers.get_breakers(origins))
        deliveries: list[LeasedDelivery] = []
        has_more = len(due) == WEBHOOKS_PER_LEASE_MAX or due.next_position is not None
        for remaining, webhook_id in zip(range(len(due), 0, -1), due, strict=True):
            webhook = webhooks.get(webhook_id)
            if webhook is None or webhook.state is WebhookState.DISABLED:
                await self._cancel_deliveries(tx, webhook_id)
            elif webhook.state is WebhookState.PENDING_VERIFICATION:
                await tx.webhook_deliveries.hold_pending(
                    webhook_id, limit=RELEASE_BATCH_SIZE
                )  # it was active until its URL changed
            elif webhook.has_unreadable_secrets and await tx.sealing_keys.lacks_any():
                self._leave_to_others(tx, webhook_id)
            elif webhook.has_unreadable_secrets:
                await self._suspend_unsignable(tx, webhook)
            else:
                batch = await self._lease_for_webhook(
                    tx, webhook, permits_max=max(1, self._limiter.free_permits() // remaining)
                )
                deliveries += batch.deliveries
                has_more = has_more or batch.has_more
        return LeasedBatch(deliveries, has_more=has_more)

    def _advance_webhook_cursor(self, position: str | None) -> None:
        self._webhook_cursor = position or ""

    async def _lease_for_webhook(self, tx: Transaction, webhook: Webhook, *, permits_max: int) -> LeasedBatch:
        now, origin = tx.now(), self._target_cache.get_origin(webhook.url)
        shares_rate = webhook.rate_per_second is not None and not self._store.is_exclusive
        if shares_rate:
            self._limiter.set_rate_full_at(webhook, await tx.webhook_rates.lock(webhook.id), now=now)
        limit = min(permits_max, self._limiter.available_permits(webhook, origin, now=now))
        if limit <= 0:
            self._limiter.mark_waiting(webhook, origin, now=now)
            if self._limiter.is_paused(webhook, origin, now=now):
                await record_losses(
                    tx, await tx.delivery_queue.give_up_expired(webhook.id, now=now, limit=GIVE_UP_BATCH_SIZE)
                )
            return LeasedBatch([], has_more=False)
        page = await tx.delivery_queue.lease_due(
            webhook.id,
            now=now,
            owner=self._owner,
            token=self._ids.new_lease_token(),
            until=now + seconds(self._lease_seconds),
            limit=limit,
            ordered=webhook.ordered,
            after=self._order_key_cursors.get(webhook.id, ""),
        )
        tx.on_commit(partial(self._advance_order_key_cursor, webhook.id, page.next_position))
        if len(page) < limit and not webhook.ordered:
            self._limiter.clear_waiting(webhook.id)
        else:
            self._limiter.mark_waiting(
                webhook, origin, now=now, is_blocked=len(page) < limit and page.next_position is None
            )
        deliveries: Sequence[Delivery] = page
        if any(delivery.is_unreadable for delivery in page):
            deliveries = await self._drop_unreadable(tx, page)
        leased = [
            LeasedDelivery(delivery=each, webhook=webhook, permit=self._acquire_permit(tx, webhook, origin))
            for each in deliveries
        ]
        if shares_rate and leased:
            await tx.webhook_rates.save(webhook.id, full_at=self._limiter.get_rate_full_at(webhook, now=now))
        return LeasedBatch(leased, has_more=len(page) < limit and page.next_position is not None)

    def _advance_order_key_cursor(self, webhook_id: WebhookId, position: str | None) -> None:
        self._order_key_cursors.pop(webhook_id, None)
        if position:
            self._order_key_cursors[webhook_id] = position  # behind all others
            if len(self._order_key_cursors) > PLACES_MAX:
                del self._order_key_cursors[next(iter(self._order_key_cursors))]

    def _left_webhooks(self, now: datetime) -> set[WebhookId]:
        self._left_until = {webhook_id: until for webhook_id, until in self._left_until.items() if until > now}
        return set(self._left_until)

    def _leave_to_others(self, tx: Transaction, webhook_id: WebhookId) -> None:
        """Lease nothing of this webhook for a while: other nodes have a key that this one does not have."""
        log.warning("webhook.left_to_other_nodes", extra={"webhook_id": webhook_id})
        self._left_until[webhook_id] = tx.now() + seconds(LEFT_TO_OTHERS_SECONDS)

    async def _drop_unreadable(self, tx: Transaction, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """End deliveries whose body cannot be decrypted, record them as missed, and return the others.

        A node that lacks a key of others gives the deliveries back instead, as they were.
        """
        unsent = [replace(each, attempts=each.attempts - 1) for each in deliveries if each.is_unreadable]
        if unsent and await tx.sealing_keys.lacks_any():
            await self._give_back(tx, unsent)
            return [each for each in deliveries if not each.is_unreadable]
        dead = RetryDecision(state=DeliveryState.DEAD)
        await tx.delivery_queue.apply_updates(
            [build_delivery_update(each, dead, category=AttemptCategory.UNREADABLE, now=tx.now()) for each in unsent]
        )
        await record_losses(tx, unsent)
        return [each for each in deliveries if not each.is_unreadable]

    async def _give_back(self, tx: Transaction, deliveries: Sequence[Delivery]) -> None:
        pending = RetryDecision(state=DeliveryState.PENDING)
        await tx.delivery_queue.apply_updates(
            [build_delivery_update(each, pending, category=each.last_category, now=tx.now()) for each in deliveries]
        )
        for webhook_id in {each.webhook_id for each in deliveries}:
            self._leave_to_others(tx, webhook_id)
        tx.notify(DELIVERY_DUE_TOPIC)

    async def _suspend_unsignable(self, tx: Transaction, webhook: Webhook) -> None:
        """Suspend a webhook whose secrets cannot be decrypted. It is probed once an hour: a new secret or the old key helps."""
        breaker = breaker_after_failure(CLOSED_BREAKER, SUSPENDED_BREAKER_POLICY, now=tx.now(), random_fraction=0.5)
        latest = await tx.webhooks.get(webhook.id) or webhook  # locked: its owner may be changing it
        suspended = replace(
            with_unreadable_secrets(latest), failing_since=latest.failing_since or tx.now(), breaker=breaker
        )
        await tx.webhooks.update(suspended, WebhookPart.STATE, WebhookPart.HEALTH)
        await tx.webhook_deliveries.hold_pending(webhook.id, limit=RELEASE_BATCH_SIZE)

    def _acquire_permit(self, tx: Transaction, webhook: Webhook, origin: str) -> Permit:
        permit = self._limiter.acquire_permit(webhook, origin, now=tx.now())
        tx.on_rollback(partial(self._limiter.cancel_permit, webhook, permit))
        return permit

    async def _cancel_deliveries(self, tx: Transaction, webhook_id: WebhookId) -> None:
        """Cancel the due deliveries of a webhook that is disabled or removed."""
        now = tx.now()
        leased = await tx.delivery_queue.lease_due(
            webhook_id,
            now=now,
            owner=self._owner,
            token=self._ids.new_lease_token(),
            until=now,
            limit=GIVE_UP_BATCH_SIZE,
            ordered=False,
        )
        cancelled = RetryDecision(state=DeliveryState.CANCELLED)
        unsent = [replace(delivery, attempts=delivery.attempts - 1) for delivery in leased]
        await tx.delivery_queue.apply_updates(
            [build_delivery_update(each, cancelled, category=each.last_category, now=now) for each in unsent]
        )
