"""What came of attempts, written down: deliveries, attempts, webhooks and origins in one unit of work."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Final

from ringback.domain import webhook_health as health
from ringback.domain.circuit_breaker import (
    CLOSED_BREAKER,
    ORIGIN_BREAKER_POLICY,
    UNREACHABLE_CATEGORIES,
    CircuitBreaker,
    breaker_after_failure,
)
from ringback.domain.delivery import (
    Attempt,
    AttemptCategory,
    AttemptResult,
    Delivery,
    DeliveryKind,
    DeliveryState,
    DeliveryUpdate,
    RetryDecision,
    build_delivery_update,
    decide_retry,
    leaves_gap,
)
from ringback.domain.errors import StoreUnavailable
from ringback.domain.event import EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import IdGenerator, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart, changed_parts
from ringback.notifier.batcher import Batcher
from ringback.notifier.concurrency_limiter import ConcurrencyLimiter, Permit
from ringback.notifier.log_positions import read_log_position
from ringback.notifier.payload import build_gap_delivery
from ringback.notifier.recorder import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedAttempt:
    """An attempt that is over: what was sent, and what came of it."""

    delivery: Delivery
    """As it was leased."""
    attempt: Attempt
    result: AttemptResult
    origin: str
    permit: Permit


class AttemptRecorder:
    def __init__(
        self, *, recorder: Recorder, ids: IdGenerator, limiter: ConcurrencyLimiter, random_fraction: Callable[[], float]
    ) -> None:
        self._recorder = recorder
        self._ids = ids
        self._limiter = limiter
        self._random_fraction = random_fraction

    async def record_attempts(
        self, tx: Transaction, finished: Sequence[FinishedAttempt]
    ) -> Sequence[tuple[FinishedAttempt, DeliveryUpdate]]:
        """Each outcome whose lease still held, in the order of their ends, with what became of its delivery.

        Of the others somebody else decides, so they count for nothing: not as an attempt, and not against the receiver.
        """
        found = await tx.webhooks.get_many({outcome.delivery.webhook_id for outcome in finished})
        webhooks = {webhook.id: webhook for webhook in found}
        decided = [(outcome, await self._decide_update(tx, outcome, webhooks)) for outcome in finished]
        updated_ids = await tx.delivery_queue.apply_updates([became for _, became in decided])
        recorded = [(outcome, update) for outcome, update in decided if outcome.delivery.id in updated_ids]
        await tx.delivery_queue.insert_attempts([outcome.attempt for outcome, _ in recorded])
        for webhook_id, group in _group_by_webhook(recorded):
            if webhook_id in webhooks:
                await self._update_webhook(tx, webhooks[webhook_id], group)
        await self._update_origin_breakers(tx, [outcome for outcome, _ in recorded])
        return recorded

    async def _decide_update(
        self, tx: Transaction, outcome: FinishedAttempt, webhooks: Mapping[WebhookId, Webhook]
    ) -> DeliveryUpdate:
        delivery, answer, now = outcome.delivery, outcome.result, tx.now()
        webhook = webhooks.get(delivery.webhook_id)
        if webhook is None:
            return build_delivery_update(
                delivery, RetryDecision(state=DeliveryState.CANCELLED), category=delivery.last_category, now=now
            )
        decision = decide_retry(
            delivery, answer, profile=webhook.retries, now=now, random_fraction=self._random_fraction()
        )
        if decision.state is DeliveryState.PENDING and await _is_superseded(tx, delivery):
            decision = RetryDecision(state=DeliveryState.CANCELLED)
        return build_delivery_update(delivery, decision, category=answer.category, now=now)

    async def _update_webhook(
        self, tx: Transaction, webhook: Webhook, group: Sequence[tuple[FinishedAttempt, DeliveryUpdate]]
    ) -> None:
        """The webhook's own account of how its receiver is doing, and what its owner and its receiver are told of that."""
        after, now = webhook, tx.now()
        for outcome, update in group:
            after = self._webhook_after_attempt(after, outcome.result, update, now=now)
        was_delivered = any(outcome.result.category is AttemptCategory.DELIVERED for outcome, _ in group)
        if was_delivered and after.missed_from is not None and after.state is WebhookState.ACTIVE:
            first_missed, after = after.missed_from, replace(after, missed_from=None)
            position = await read_log_position(tx, after.principal, first_missed - 1)
            gap = build_gap_delivery(after, position=position, delivery_id=self._ids.new_delivery_id(), now=now)
            await tx.deliveries.insert([gap])
            tx.notify(DELIVERY_DUE_TOPIC)
        if changed := changed_parts(webhook, after):
            await tx.webhooks.update(after, *changed)
        await self._record_state_change(tx, webhook, after)

    def _webhook_after_attempt(
        self, webhook: Webhook, answer: AttemptResult, update: DeliveryUpdate, *, now: datetime
    ) -> Webhook:
        delivery = update.delivery
        if answer.category is AttemptCategory.DELIVERED:
            return health.webhook_after_success(webhook, now=now)
        if delivery.kind is DeliveryKind.GAP:
            return _webhook_after_failed_gap(webhook, answer, update)
        after = health.webhook_after_failure(webhook, answer.category, now=now, random_fraction=self._random_fraction())
        is_lost = update.state is DeliveryState.DEAD and leaves_gap(delivery, answer)
        return health.webhook_after_loss(after, delivery.seq or 0) if is_lost else after

    async def _record_state_change(self, tx: Transaction, previous: Webhook, updated: Webhook) -> None:
        name = health.health_event_name(previous, updated)
        if name is None:
            return
        await self._recorder.record_webhook_event(tx, name, updated)
        if name is EventName.WEBHOOK_RECOVERED:
            await tx.webhook_deliveries.release_held(updated.id, now=tx.now(), limit=health.RELEASE_BATCH_SIZE)
            tx.notify(DELIVERY_DUE_TOPIC)

    async def _update_origin_breakers(self, tx: Transaction, outcomes: Sequence[FinishedAttempt]) -> None:
        """Most origins have never failed, and cost nothing here."""
        affected_origins = {
            outcome.origin
            for outcome in outcomes
            if outcome.result.category in UNREACHABLE_CATEGORIES or self._limiter.has_failed_origin(outcome.origin)
        }
        if not affected_origins:
            return
        breakers = dict.fromkeys(affected_origins, CLOSED_BREAKER) | dict(
            await tx.origin_breakers.get_breakers(affected_origins)
        )
        after = dict(breakers)
        for outcome in outcomes:
            if outcome.origin in affected_origins:
                after[outcome.origin] = self._breaker_after_attempt(after[outcome.origin], outcome.result, now=tx.now())
        for origin in sorted(affected_origins):
            if after[origin] != breakers[origin]:
                await tx.origin_breakers.save_breaker(origin, after[origin])
        tx.on_commit(partial(self._limiter.update_origin_breakers, after))

    def _breaker_after_attempt(
        self, breaker: CircuitBreaker, answer: AttemptResult, *, now: datetime
    ) -> CircuitBreaker:
        if answer.category is AttemptCategory.LOOK_UP_FAILED:
            return breaker
        if answer.category not in UNREACHABLE_CATEGORIES:
            return CLOSED_BREAKER
        return breaker_after_failure(breaker, ORIGIN_BREAKER_POLICY, now=now, random_fraction=self._random_fraction())


async def record_losses(tx: Transaction, deliveries: Collection[Delivery]) -> None:
    """Note of deliveries that were given up without an attempt that their receivers have missed them."""
    lost = [delivery for delivery in deliveries if leaves_gap(delivery, None)]
    for webhook in await tx.webhooks.get_many({delivery.webhook_id for delivery in lost}):
        first = min(delivery.seq or 0 for delivery in lost if delivery.webhook_id == webhook.id)
        await tx.webhooks.update(health.webhook_after_loss(webhook, first), WebhookPart.MISSED)


def _webhook_after_failed_gap(webhook: Webhook, answer: AttemptResult, update: DeliveryUpdate) -> Webhook:
    """A gap that failed counts for nothing; but while nobody was there to hear it, it still has to be told."""
    is_undelivered = answer.category in UNREACHABLE_CATEGORIES or answer.category is AttemptCategory.LOOK_UP_FAILED
    if update.state is DeliveryState.DEAD and is_undelivered:
        return health.webhook_after_loss(webhook, update.delivery.seq or 0)
    return webhook


async def _is_superseded(tx: Transaction, delivery: Delivery) -> bool:
    """Whether this is progress of a call of which something newer is in the log."""
    if delivery.kind is not DeliveryKind.PROGRESS:
        return False
    where = EventFilter(call_id=delivery.call_id)
    return bool(await tx.events.list_after(delivery.principal, delivery.seq or 0, where, limit=1))


def _group_by_webhook(
    counting: Iterable[tuple[FinishedAttempt, DeliveryUpdate]],
) -> list[tuple[WebhookId, list[tuple[FinishedAttempt, DeliveryUpdate]]]]:
    """Grouped, and sorted by principal: several logs are locked in that order, here as everywhere."""
    ordered = sorted(counting, key=lambda pair: (pair[0].delivery.principal, pair[0].delivery.webhook_id))
    return [(key, list(group)) for key, group in groupby(ordered, key=lambda pair: pair[0].delivery.webhook_id)]


# Collects what came of attempts and writes it down together.

log = logging.getLogger(__name__)

_LOGGED_IDS_MAX: Final = 10
"""Of what could not be settled, in one line of the log."""


class AttemptBatcher:
    """Settling never fails for whoever adds: what cannot be written down runs out with its lease, and is sent again."""

    def __init__(
        self, *, store: Store, recorder: AttemptRecorder, on_recorded: Callable[[FinishedAttempt], None]
    ) -> None:
        self._on_recorded = on_recorded
        self._batcher = Batcher(
            store=store,
            write_batch=recorder.record_attempts,
            on_written=self._handle_written,
            on_failed=self._handle_failure,
        )

    def submit(self, outcome: FinishedAttempt) -> None:
        self._batcher.submit(outcome)

    async def drain(self) -> None:
        """Return when everything that was added is written down."""
        await self._batcher.drain()

    def _handle_written(
        self, batch: Sequence[FinishedAttempt], recorded: Sequence[tuple[FinishedAttempt, DeliveryUpdate]]
    ) -> None:
        _log_attempts(batch, recorded)
        for outcome in batch:
            self._on_recorded(outcome)

    def _handle_failure(self, batch: Sequence[FinishedAttempt], error: Exception) -> None:
        bug = None if isinstance(error, StoreUnavailable) else error
        extra = {"count": len(batch), "delivery_ids": [outcome.delivery.id for outcome in batch[:_LOGGED_IDS_MAX]]}
        log.log(logging.ERROR if bug else logging.WARNING, "deliveries.not_settled", extra=extra, exc_info=bug)
        for outcome in batch:
            self._on_recorded(outcome)


def _log_attempts(batch: Sequence[FinishedAttempt], recorded: Sequence[tuple[FinishedAttempt, DeliveryUpdate]]) -> None:
    """One line an attempt, with what became of the delivery folded into it; what went well is told to who asks for it."""
    updates_by_id = {outcome.delivery.id: each for outcome, each in recorded}
    for outcome in batch:
        attempt, answer = outcome.attempt, outcome.result
        level = logging.DEBUG if answer.category is AttemptCategory.DELIVERED else logging.INFO
        if not log.isEnabledFor(level):
            continue
        update = updates_by_id.get(outcome.delivery.id)
        log.log(
            level,
            "delivery.attempted",
            extra={
                "delivery_id": outcome.delivery.id,
                "webhook_id": outcome.delivery.webhook_id,
                "message_id": outcome.delivery.message_id,
                "number": attempt.number,
                "category": str(answer.category),
                "status_code": answer.status_code,
                "duration_ms": attempt.duration_ms,
                "state": "lease_lost" if update is None else str(update.state),
            },
        )
