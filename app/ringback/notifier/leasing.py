"""Leases due deliveries: chooses webhooks in turns, and as many deliveries of each as it has permits for."""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, TypeGuard

from ringback.domain.circuit_breaker import CLOSED_BREAKER
from ringback.domain.clock import Clock, seconds
from ringback.domain.cursor import Page
from ringback.domain.delivery import Delivery
from ringback.domain.ids import DeliveryId, IdGenerator, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.record_inits import quick_init
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.measurements import Measurements
from ringback.notifier.attempt_requests import AttemptRequestWatch
from ringback.notifier.concurrency_limiter import ConcurrencyLimiter, accepts_attempts
from ringback.notifier.follow_ups import FollowUp, FollowUps
from ringback.notifier.handoff_leases import HandoffLeases
from ringback.notifier.http.target import TargetCache
from ringback.notifier.permits import Permit, ReceiverKey
from ringback.notifier.unsendable_deliveries import UnsendableDeliveries
from ringback.post_commit import DeliveryLease, UnusedLeases

log = logging.getLogger(__name__)

WEBHOOKS_PER_LEASE_MAX: Final = 64
"""Webhooks in one transaction, which takes some two milliseconds of the one writer's time."""
UNSENT_BATCH_SIZE: Final = RELEASE_BATCH_SIZE
"""Deliveries that one transaction cancels or holds, of all webhooks that take none."""
PLACES_MAX: Final = 10_000
"""Cursors of ordered webhooks that have more sessions than one query visits. Beyond this, the cursor that was used longest ago
is dropped, and its webhook begins again at its first session."""


@quick_init
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
    """Whether the query left out deliveries, or other webhooks or sessions that may be due."""
    follow_ups: Sequence[FollowUp] = ()
    idle_seconds: float | None = None
    """How long no other delivery becomes due. Read only by a query that leases nothing: others must not wait for it."""


@dataclass(frozen=True, slots=True)
class _DueDeliveries:
    """Due deliveries of one unordered webhook, longest due first."""

    ids: Sequence[DeliveryId]
    limit: int
    """How many were looked for."""


@dataclass(slots=True)
class _ReservedPermits:
    """Permits of one webhook that a unit of work has acquired and uses, or gives back."""

    permit: Permit
    count: int


@dataclass(frozen=True, slots=True)
class _TakenDeliveries:
    """Deliveries of one webhook that have permits."""

    webhook: Webhook
    permits: Mapping[DeliveryId, Permit]
    leased: Mapping[DeliveryId, Delivery] | None = None
    """The deliveries themselves, if they are leased already."""
    has_more: bool = False
    is_paused: bool = False
    """Whether a breaker is open, so that its deliveries may become too old without another attempt."""


def _is_sendable(webhook: Webhook | None) -> TypeGuard[Webhook]:
    return webhook is not None and accepts_attempts(webhook) and not webhook.has_unreadable_secrets


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
        clock: Clock,
        measurements: Measurements,
    ) -> None:
        self.unused = UnusedLeases(clock)
        """Leases that may exist in the store although their deliveries were not attempted."""
        self.follow_ups = FollowUps(store)
        self._store = store
        self._unsendable = UnsendableDeliveries(measurements, on_given_up=limiter.clear_waiting)
        self._ids = ids
        self._limiter = limiter
        self._target_cache = target_cache
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._attempt_requests = AttemptRequestWatch(store.signals, limiter.clear_waiting)
        self._webhook_cursor = ""
        self._order_key_cursors: dict[WebhookId, str] = {}
        self._handoff_leases = HandoffLeases(ids=ids, unused=self.unused, owner=owner, lease_seconds=lease_seconds)

    async def lease_due(self) -> LeasedBatch:
        """Lease due deliveries that have permits, spread over webhooks; those that have waited longest come first."""
        if self._limiter.free_permits() <= 0:
            return LeasedBatch([], has_more=False)
        return await self._store.write(self._lease_due)

    def acquire_handoff_permit(self, tx: Transaction, webhook: Webhook) -> Permit | None:
        """A permit for a delivery that is being inserted; None if the webhook has no permits or older deliveries waiting."""
        origin = self._target_cache.get_origin(webhook.url)
        self._limiter.backlogs.count_new_delivery(origin, now=tx.now())
        if webhook.has_unreadable_secrets or webhook.ordered or webhook.rate_per_second is not None:
            return None
        if self._limiter.is_waiting(webhook.id):
            return None
        if self._limiter.available_permits(webhook, origin, now=tx.now()) <= 0:
            return None
        return self._acquire_permit(tx, webhook, origin)

    def grant_lease(self, tx: Transaction, hand_off: Callable[[Delivery], None]) -> DeliveryLease:
        """The lease of a delivery that is being inserted."""
        return self._handoff_leases.grant_lease(tx, hand_off)

    def stop_watching(self) -> None:
        """End the subscriptions to owners' requests. Webhooks that wait then are queried again at their time."""
        self._attempt_requests.keep_only(lambda _: False)

    async def release_unused(self) -> None:
        """Let deliveries be leased again that were leased to this process without its knowledge. Raises `StoreUnavailable`."""
        if tokens := self.unused.list_tokens():
            await self._store.write(partial(self._release_unused, ids=self.unused.list_ids(), tokens=tokens))

    async def _release_unused(self, tx: Transaction, *, ids: Sequence[str], tokens: Sequence[str]) -> None:
        released = await tx.delivery_maintenance.release_unused_leases(ids, tokens=tokens)
        if released:
            log.warning("deliveries.lease_unused", extra={"deliveries": released})
            tx.notify(DELIVERY_DUE_TOPIC)

    def _new_token(self, tx: Transaction, ids: Sequence[DeliveryId]) -> str:
        return self.unused.watch(tx, self._ids.new_lease_token(), ids)

    async def _lease_due(self, tx: Transaction) -> LeasedBatch:
        self._attempt_requests.keep_only(self._limiter.is_waiting)
        excluded = self._limiter.webhooks_without_permits(now=tx.now()) | self._unsendable.list_left_webhooks(tx.now())
        excluded.update(self.follow_ups.webhook_ids)
        due = await tx.delivery_queue.list_due_webhooks(
            now=tx.now(), excluding=excluded, limit=WEBHOOKS_PER_LEASE_MAX, after=self._webhook_cursor
        )
        tx.on_commit(partial(self._advance_webhook_cursor, due.next_position))
        if not due and due.next_position is None:
            return LeasedBatch([], has_more=False, idle_seconds=await self._read_idle_seconds(tx))
        webhooks = {webhook.id: webhook for webhook in await tx.webhooks.get_many(due)}
        origins = {self._target_cache.get_origin(webhook.url) for webhook in webhooks.values()}
        keys = origins | {self._get_breaker_key(webhook) for webhook in webhooks.values()}
        known = await tx.origin_breakers.get_breakers(keys)
        self._limiter.update_origin_breakers(dict.fromkeys(keys, CLOSED_BREAKER) | dict(known), now=tx.now())
        sendable = [webhook for webhook in map(webhooks.get, due) if _is_sendable(webhook)]
        self._follow_outages(tx, sendable)
        rated_elsewhere = await self._follow_shared_rates(tx, sendable)
        found = await self._find_due(tx, [webhook for webhook in sendable if webhook.id not in rated_elsewhere])
        taken: list[_TakenDeliveries] = []
        follow_ups: list[FollowUp] = []
        unsent = 0
        has_more = len(due) == WEBHOOKS_PER_LEASE_MAX or due.next_position is not None
        for remaining, webhook_id in zip(range(len(due), 0, -1), self._take_turns(due, webhooks), strict=True):
            webhook = webhooks.get(webhook_id)
            if webhook is None or not accepts_attempts(webhook):
                unsent += await self._end_unsent(tx, webhook_id, webhook, limit=UNSENT_BATCH_SIZE - unsent)
            elif webhook.has_unreadable_secrets and await tx.sealing_keys.lacks_any():
                self._unsendable.leave_to_others(tx, webhook_id)
            elif webhook.has_unreadable_secrets:
                follow_ups.append(FollowUp(webhook, partial(self._unsendable.suspend_unsignable, webhook=webhook)))
            elif webhook_id in rated_elsewhere:
                self._mark_waiting(webhook, self._target_cache.get_origin(webhook.url), now=tx.now(), is_blocked=True)
            else:
                permits_max = max(1, self._limiter.free_permits() // remaining)
                chosen = await self._take_for_webhook(tx, webhook, found.get(webhook_id), permits_max=permits_max)
                taken.append(chosen)
                has_more = has_more or chosen.has_more
        if paused := [chosen.webhook for chosen in taken if chosen.is_paused]:
            follow_ups += await self._unsendable.find_follow_ups(tx, paused)
        leased = await self._lease_taken(tx, taken)
        has_more = has_more or len(leased) < sum(len(chosen.permits) for chosen in taken)  # their bodies were too large
        has_more = has_more or unsent == UNSENT_BATCH_SIZE
        idle_seconds = None if leased or has_more else await self._read_idle_seconds(tx)
        return LeasedBatch(leased, has_more=has_more, follow_ups=follow_ups, idle_seconds=idle_seconds)

    async def _read_idle_seconds(self, tx: Transaction) -> float:
        """A delivery that is due and not leased waits for a permit or for the end of a pause.

        A permit that is released wakes the dispatcher; one of a backlog's rate (`backlog_limiter`) is counted here.
        """
        due = await tx.delivery_queue.next_due_at()
        due_in = math.inf if due is None or due <= tx.now() else (due - tx.now()).total_seconds()
        permit_in = self._limiter.backlogs.seconds_until_permit(now=tx.now())
        return due_in if permit_in is None else min(due_in, permit_in)

    def _advance_webhook_cursor(self, position: str | None) -> None:
        self._webhook_cursor = position or ""

    def _get_breaker_key(self, webhook: Webhook) -> str:
        return ReceiverKey(webhook.principal, self._target_cache.get_origin(webhook.url)).breaker_key

    def _follow_outages(self, tx: Transaction, webhooks: Sequence[Webhook]) -> None:
        for webhook in webhooks:
            self._limiter.backlogs.follow_outage(webhook, self._target_cache.get_origin(webhook.url), now=tx.now())

    def _take_turns(self, due: Sequence[WebhookId], webhooks: Mapping[WebhookId, Webhook]) -> Sequence[WebhookId]:
        """Longest due first, but the principals at an origin that is probed, or has few permits for its backlog, take turns."""

        def get_turn(webhook_id: WebhookId) -> tuple[int, int, int]:
            webhook = webhooks.get(webhook_id)
            if webhook is None:
                return 0, 0, 0
            origin = self._target_cache.get_origin(webhook.url)
            return (self._limiter.backlogs.get_turn(webhook, origin), *self._limiter.get_probe_turn(webhook, origin))

        return sorted(due, key=get_turn)

    async def _follow_shared_rates(self, tx: Transaction, webhooks: Sequence[Webhook]) -> Collection[WebhookId]:
        """Return the webhooks whose rate another node uses now. To wait for it would delay the deliveries of all webhooks."""
        used_elsewhere: set[WebhookId] = set()
        for webhook in sorted(filter(self._shares_rate, webhooks), key=lambda each: each.id):
            if (full_at := await tx.webhook_rates.lock(webhook.id)) is None:
                used_elsewhere.add(webhook.id)
            else:
                self._limiter.set_rate_full_at(webhook, full_at, now=tx.now())
        return used_elsewhere

    def _shares_rate(self, webhook: Webhook) -> bool:
        return webhook.rate_per_second is not None and not self._store.is_exclusive

    async def _find_due(self, tx: Transaction, webhooks: Sequence[Webhook]) -> Mapping[WebhookId, _DueDeliveries]:
        """As many due deliveries of each unordered webhook as it has permits for, if it is the only one that takes some."""
        limits = {
            webhook.id: self._limiter.available_permits(
                webhook, self._target_cache.get_origin(webhook.url), now=tx.now()
            )
            for webhook in webhooks
            if not webhook.ordered
        }
        wanted = {webhook_id: limit for webhook_id, limit in limits.items() if limit > 0}
        found = await tx.delivery_queue.find_due(wanted, now=tx.now())
        return {webhook_id: _DueDeliveries(found.get(webhook_id, ()), limit) for webhook_id, limit in limits.items()}

    async def _take_for_webhook(
        self, tx: Transaction, webhook: Webhook, found: _DueDeliveries | None, *, permits_max: int
    ) -> _TakenDeliveries:
        """Take permits for due deliveries of the webhook: for those `found`, or for an ordered webhook's, leased here."""
        now, origin = tx.now(), self._target_cache.get_origin(webhook.url)
        limit = min(permits_max, self._limiter.available_permits(webhook, origin, now=now))
        if found is not None:
            limit = min(limit, found.limit)
        if limit <= 0:
            self._mark_waiting(webhook, origin, now=now)
            return _TakenDeliveries(webhook, {}, is_paused=self._limiter.is_paused(webhook, origin, now=now))
        if found is None:
            # Before the query: on PostgreSQL other units take permits meanwhile, for deliveries that they insert.
            reserved = self._reserve_permits(tx, webhook, origin, limit)
            page = await self._lease_in_order(tx, webhook, limit=limit)
            self._return_unused_permits(webhook, reserved, len(page))
            due_ids, next_position = [each.id for each in page], page.next_position
            permits, leased = dict.fromkeys(due_ids, reserved.permit), {each.id: each for each in page}
        else:
            due_ids, next_position = found.ids[:limit], None
            permits, leased = {each: self._acquire_permit(tx, webhook, origin) for each in due_ids}, None
        if len(due_ids) < limit and not webhook.ordered:
            self._limiter.clear_waiting(webhook.id)
        else:
            is_blocked = len(due_ids) < limit and next_position is None
            self._mark_waiting(webhook, origin, now=now, is_blocked=is_blocked)
        has_more = len(due_ids) < limit and next_position is not None
        return _TakenDeliveries(webhook, permits, leased=leased, has_more=has_more)

    def _mark_waiting(self, webhook: Webhook, origin: str, *, now: datetime, is_blocked: bool = False) -> None:
        self._limiter.mark_waiting(webhook, origin, now=now, is_blocked=is_blocked)
        self._attempt_requests.watch(webhook.id)

    async def _lease_in_order(self, tx: Transaction, webhook: Webhook, *, limit: int) -> Page[Delivery, str]:
        ids: list[DeliveryId] = []
        page = await tx.delivery_queue.lease_due(
            webhook.id,
            now=tx.now(),
            owner=self._owner,
            token=self._new_token(tx, ids),
            until=tx.now() + seconds(self._lease_seconds),
            limit=limit,
            ordered=True,
            after=self._order_key_cursors.get(webhook.id, ""),
        )
        ids.extend(each.id for each in page)
        tx.on_commit(partial(self._advance_order_key_cursor, webhook.id, page.next_position))
        return page

    async def _lease_taken(self, tx: Transaction, taken: Sequence[_TakenDeliveries]) -> Sequence[LeasedDelivery]:
        """Lease what is not leased yet, of all webhooks at once. Permits of what cannot be sent are released at the commit."""
        leased = {delivery_id: each for chosen in taken for delivery_id, each in (chosen.leased or {}).items()}
        if delivery_ids := [each for chosen in taken if chosen.leased is None for each in chosen.permits]:
            until = tx.now() + seconds(self._lease_seconds)
            found = await tx.delivery_queue.lease(
                delivery_ids, owner=self._owner, token=self._new_token(tx, delivery_ids), until=until
            )
            leased |= {each.id: each for each in found}
        if any(each.is_unreadable for each in leased.values()):
            leased = {each.id: each for each in await self._unsendable.drop_unreadable(tx, list(leased.values()))}
        sendable: list[LeasedDelivery] = []
        for chosen in taken:
            unused = [permit for delivery_id, permit in chosen.permits.items() if delivery_id not in leased]
            await self._save_shared_rate(tx, chosen, unused_permits=len(unused))
            for permit in unused:
                tx.on_commit(partial(self._limiter.cancel_permit, chosen.webhook, permit))
            sendable += [
                LeasedDelivery(delivery=leased[delivery_id], webhook=chosen.webhook, permit=permit)
                for delivery_id, permit in chosen.permits.items()
                if delivery_id in leased
            ]
        return sendable

    async def _save_shared_rate(self, tx: Transaction, chosen: _TakenDeliveries, *, unused_permits: int) -> None:
        rate = chosen.webhook.rate_per_second
        if chosen.permits and rate is not None and not self._store.is_exclusive:
            full_at = self._limiter.get_rate_full_at(chosen.webhook, now=tx.now())
            await tx.webhook_rates.save(chosen.webhook.id, full_at=full_at - unused_permits / rate)

    def _advance_order_key_cursor(self, webhook_id: WebhookId, position: str | None) -> None:
        self._order_key_cursors.pop(webhook_id, None)
        if position:
            self._order_key_cursors[webhook_id] = position  # the last that is dropped
            if len(self._order_key_cursors) > PLACES_MAX:
                del self._order_key_cursors[next(iter(self._order_key_cursors))]

    def _reserve_permits(self, tx: Transaction, webhook: Webhook, origin: str, count: int) -> _ReservedPermits:
        permit = self._limiter.acquire_permit(webhook, origin, now=tx.now(), count=count)
        reserved = _ReservedPermits(permit, count)
        tx.on_rollback(lambda: self._return_unused_permits(webhook, reserved, 0))
        return reserved

    def _return_unused_permits(self, webhook: Webhook, reserved: _ReservedPermits, count: int) -> None:
        """Return all permits but `count`."""
        self._limiter.give_back_permits(webhook, reserved.permit, reserved.count - count)
        reserved.count = count

    def _acquire_permit(self, tx: Transaction, webhook: Webhook, origin: str) -> Permit:
        permit = self._limiter.acquire_permit(webhook, origin, now=tx.now())
        tx.on_rollback(partial(self._limiter.cancel_permit, webhook, permit))
        return permit

    async def _end_unsent(self, tx: Transaction, webhook_id: WebhookId, webhook: Webhook | None, *, limit: int) -> int:
        """Cancel due deliveries of a webhook that is removed, or hold those of one that takes none now.

        It was active until its URL changed or its owner paused or disabled it. Return the number of deliveries.
        """
        if webhook is None:
            return await tx.webhook_deliveries.cancel_open(webhook_id, now=tx.now(), limit=limit, only_due=True)
        return await tx.webhook_deliveries.hold_pending(webhook_id, limit=limit)
