"""Records finished attempts in one transaction: deliveries, attempts, webhook health, origin circuit breakers.

Rules of the domain decide: `delivery.decide_retry` (with `retry`), `webhook_health`, `circuit_breaker`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from ringback.domain import webhook_health as health
from ringback.domain.attempt_category import OWN_FAILURES, UNREACHABLE_CATEGORIES, AttemptCategory
from ringback.domain.callback_headers import CallbackHeaders, redact_header_values
from ringback.domain.circuit_breaker import (
    CLOSED_BREAKER,
    ORIGIN_BREAKER_POLICY,
    CircuitBreaker,
    breaker_after_failure,
    counts_for_origin,
)
from ringback.domain.delivery import (
    CONTROL_ENVELOPES,
    Attempt,
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
from ringback.domain.ports import Transaction
from ringback.domain.record_inits import quick_init
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart, changed_parts
from ringback.measurements import Measurements
from ringback.notifier.concurrency_limiter import ConcurrencyLimiter
from ringback.notifier.delivery_facts import delivery_facts
from ringback.notifier.log_positions import read_log_position
from ringback.notifier.payload import build_gap_delivery
from ringback.notifier.permits import Permit
from ringback.notifier.recorder import Recorder

log = logging.getLogger(__name__)

_WITHOUT_RESPONSE: Final = UNREACHABLE_CATEGORIES | OWN_FAILURES

_LOGGED_IDS_MAX: Final = 10
"""Delivery ids in one log line."""

WARNINGS_AT_ONCE_MAX: Final = 4
"""Webhooks whose owners are warned in one transaction. Each warning may match a thousand webhooks, and all webhooks of one
origin reach a level at once. The others are warned at their next attempt."""


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedAttempt:
    """An attempt and its result."""

    delivery: Delivery
    """As leased."""
    attempt: Attempt
    result: AttemptResult
    origin: str
    permit: Permit
    was_refused: bool = False
    """Whether the store was unavailable when it was to be recorded."""


class RecordedAttempt(NamedTuple):
    """A finished attempt, and the update of its delivery. Only if its lease is still valid, both are written."""

    finished: FinishedAttempt
    update: DeliveryUpdate


class AttemptRecorder:
    def __init__(
        self, *, recorder: Recorder, ids: IdGenerator, limiter: ConcurrencyLimiter, random_fraction: Callable[[], float]
    ) -> None:
        self._recorder = recorder
        self._ids = ids
        self._limiter = limiter
        self._random_fraction = random_fraction

    async def record_attempts(self, tx: Transaction, batch: Sequence[FinishedAttempt]) -> Sequence[RecordedAttempt]:
        """The attempts whose lease was still valid, in their order.

        An attempt with a lost lease counts for nothing, neither as an attempt nor against the receiver, because another
        process decides about its delivery.
        """
        found = await tx.webhooks.get_many({finished.delivery.webhook_id for finished in batch}, lock=True)
        webhooks = {webhook.id: webhook for webhook in found}
        decided = [RecordedAttempt(each, await self._decide_update(tx, each, webhooks)) for each in batch]
        updated_ids = await tx.delivery_queue.apply_updates(
            [each.update for each in decided], [each.finished.attempt for each in decided]
        )
        recorded = [each for each in decided if each.finished.delivery.id in updated_ids]
        await self._update_webhooks(
            tx, [(webhooks[each], group) for each, group in _group_by_webhook(recorded) if each in webhooks]
        )
        await self._update_origin_breakers(tx, [each.finished for each in recorded])
        tx.on_commit(partial(self._note_responses, [each.finished for each in recorded], now=tx.now()))
        return recorded

    def _note_responses(self, attempts: Sequence[FinishedAttempt], *, now: datetime) -> None:
        for finished in attempts:
            category = finished.result.category
            if category not in _WITHOUT_RESPONSE:
                is_success = category is AttemptCategory.DELIVERED
                self._limiter.backlogs.note_response(finished.permit, is_success=is_success, now=now)

    async def _decide_update(
        self, tx: Transaction, finished: FinishedAttempt, webhooks: Mapping[WebhookId, Webhook]
    ) -> DeliveryUpdate:
        delivery, result, now = finished.delivery, finished.result, tx.now()
        webhook = webhooks.get(delivery.webhook_id)
        if webhook is None:
            return build_delivery_update(
                delivery, RetryDecision(state=DeliveryState.CANCELLED), category=delivery.last_category, now=now
            )
        decision = decide_retry(
            delivery,
            result,
            schedule=webhook.retry_schedule,
            now=now,
            confirmed_now=tx.confirmed_now(),
            random_fraction=0.0 if result.category is AttemptCategory.DELIVERED else self._random_fraction(),
        )
        if decision.state is DeliveryState.PENDING and await _is_superseded(tx, delivery):
            decision = RetryDecision(state=DeliveryState.CANCELLED)
        return build_delivery_update(delivery, decision, category=result.category, now=now)

    async def _update_webhooks(
        self, tx: Transaction, groups: Sequence[tuple[Webhook, Sequence[RecordedAttempt]]]
    ) -> None:
        """Update the webhooks' health, and insert the gaps and the webhook events that follow from it."""
        pairs = limit_warnings([(webhook, await self._update_health(tx, webhook, group)) for webhook, group in groups])
        changes = [(after, changed) for webhook, after in pairs if (changed := changed_parts(webhook, after))]
        await tx.webhook_batches.update_many(changes)
        for webhook, after in pairs:
            await self._record_state_change(tx, webhook, after)

    async def _update_health(self, tx: Transaction, webhook: Webhook, group: Sequence[RecordedAttempt]) -> Webhook:
        """The webhook after these attempts. A gap that is due for it is inserted."""
        after, now = webhook, tx.now()
        for finished, update in group:
            after = self._webhook_after_attempt(
                after, finished.result, update, now=now, confirmed_now=tx.confirmed_now()
            )
        was_delivered = any(_was_delivered(each.finished) for each in group)
        if was_delivered and after.missed_from is not None and after.state is WebhookState.ACTIVE:
            first_missed, after = after.missed_from, replace(after, missed_from=None)
            position = await read_log_position(tx, after.principal, first_missed - 1)
            gap = build_gap_delivery(after, position=position, delivery_id=self._ids.new_delivery_id(), now=now)
            await tx.deliveries.insert([gap])
            tx.notify(DELIVERY_DUE_TOPIC)
        return after

    def _webhook_after_attempt(
        self,
        webhook: Webhook,
        result: AttemptResult,
        update: DeliveryUpdate,
        *,
        now: datetime,
        confirmed_now: datetime,
    ) -> Webhook:
        delivery = update.delivery
        if delivery.kind is DeliveryKind.TERMINATED:
            return webhook
        if result.category is AttemptCategory.DELIVERED:
            return health.webhook_after_success(webhook, now=now)
        if delivery.kind is DeliveryKind.GAP:
            return _webhook_after_failed_gap(webhook, result, update)
        after = health.webhook_after_failure(
            webhook, result, now=now, confirmed_now=confirmed_now, random_fraction=self._random_fraction()
        )
        is_lost = update.state is DeliveryState.DEAD and leaves_gap(delivery)
        return health.webhook_after_loss(after, delivery.seq or 0) if is_lost else after

    async def _record_state_change(self, tx: Transaction, previous: Webhook, updated: Webhook) -> None:
        name = health.health_event_name(previous, updated)
        if name is None:
            return
        await self._recorder.record_webhook_event(tx, name, updated)
        tx.on_commit(partial(_log_state_change, name, updated))
        if name is EventName.WEBHOOK_SUSPENDED and updated.is_subscription:
            await tx.webhook_deliveries.hold_pending(updated.id, limit=health.RELEASE_BATCH_SIZE, suspended=True)
        if name is EventName.WEBHOOK_RECOVERED and not updated.holds_deliveries():
            await tx.webhook_deliveries.release_held(updated.id, now=tx.now(), limit=health.RELEASE_BATCH_SIZE)
            tx.notify(DELIVERY_DUE_TOPIC)

    async def _update_origin_breakers(self, tx: Transaction, batch: Sequence[FinishedAttempt]) -> None:
        """Update the breakers of origins, and of principals there, that failed now or before; all others cost no query.

        A failed control envelope does not count: it is best effort, and its receiver need not know it. A failure of ours counts
        for none.
        """
        counting = [
            each for each in batch if not _is_failed_envelope(each) and each.result.category not in OWN_FAILURES
        ]
        affected = [each for each in counting if self._affects_breakers(each)]
        if not affected:
            return
        keys = {key for each in affected for key in (each.origin, each.permit.receiver_key.breaker_key)}
        breakers = dict.fromkeys(keys, CLOSED_BREAKER) | dict(await tx.origin_breakers.get_breakers(keys, lock=True))
        after = dict(breakers)
        for each in affected:
            self._update_breakers(after, each, now=tx.now())
        for key in sorted(keys):
            if after[key] != breakers[key]:
                await tx.origin_breakers.save_breaker(key, after[key])
        tx.on_commit(partial(self._limiter.update_origin_breakers, after, now=tx.now()))

    def _affects_breakers(self, finished: FinishedAttempt) -> bool:
        return (
            finished.result.category in UNREACHABLE_CATEGORIES
            or self._limiter.has_failed_origin(finished.origin)
            or self._limiter.has_failed_origin(finished.permit.receiver_key.breaker_key)
        )

    def _update_breakers(
        self, breakers: dict[str, CircuitBreaker], finished: FinishedAttempt, *, now: datetime
    ) -> None:
        """Update the breakers of the attempt's principal and its origin. See `circuit_breaker` for what counts for which."""
        origin_key, principal_key = finished.origin, finished.permit.receiver_key.breaker_key
        at_origin, of_principal = breakers[origin_key], breakers[principal_key]
        if finished.result.category not in UNREACHABLE_CATEGORIES:
            breakers[origin_key] = breakers[principal_key] = CLOSED_BREAKER
            return
        failed = partial(breaker_after_failure, policy=ORIGIN_BREAKER_POLICY, now=now)
        breakers[principal_key] = failed(of_principal, random_fraction=self._random_fraction())
        if counts_for_origin(at_origin, of_principal):
            breakers[origin_key] = failed(at_origin, random_fraction=self._random_fraction())


def redact_result(result: AttemptResult, headers: CallbackHeaders) -> AttemptResult:
    """The result without the values of the webhook's own headers, which a receiver may echo."""
    if not headers or (result.excerpt is None and result.detail is None):
        return result
    return replace(
        result,
        excerpt=None if result.excerpt is None else redact_header_values(result.excerpt, headers),
        detail=None if result.detail is None else redact_header_values(result.detail, headers),
    )


def limit_warnings(pairs: Sequence[tuple[Webhook, Webhook]]) -> Sequence[tuple[Webhook, Webhook]]:
    """The webhooks before and after their attempts. Beyond the limit they keep their level, and reach it again later."""
    warned = [
        after.id for before, after in pairs if health.health_event_name(before, after) is EventName.WEBHOOK_FAILING
    ]
    later = set(warned[WARNINGS_AT_ONCE_MAX:])
    return [
        (before, replace(after, alerted_percent=before.alerted_percent) if after.id in later else after)
        for before, after in pairs
    ]


def _log_state_change(name: EventName, webhook: Webhook) -> None:
    """Log one line, named as the event that the owner gets."""
    level = logging.INFO if name is EventName.WEBHOOK_RECOVERED else logging.WARNING
    facts = {
        "webhook_id": webhook.id,
        "principal": webhook.principal,
        "category": webhook.last_error,
        "failing_since": None if webhook.failing_since is None else webhook.failing_since.isoformat(),
        "percent": webhook.alerted_percent if name is EventName.WEBHOOK_FAILING else None,
    }
    log.log(level, str(name), extra=facts)


async def record_losses(tx: Transaction, deliveries: Collection[Delivery], measurements: Measurements) -> None:
    """Record that receivers have missed deliveries that were given up without an attempt."""
    tx.on_commit(partial(measurements.record_given_up, len(deliveries)))
    tx.on_commit(partial(_log_given_up, deliveries))
    lost = [delivery for delivery in deliveries if leaves_gap(delivery)]
    for webhook in await tx.webhooks.get_many({delivery.webhook_id for delivery in lost}, lock=True):
        first = min(delivery.seq or 0 for delivery in lost if delivery.webhook_id == webhook.id)
        await tx.webhooks.update(health.webhook_after_loss(webhook, first), WebhookPart.MISSED)


def _log_given_up(deliveries: Collection[Delivery]) -> None:
    for delivery in deliveries:
        log.info("delivery.given_up", extra=delivery_facts(delivery))


def _webhook_after_failed_gap(webhook: Webhook, result: AttemptResult, update: DeliveryUpdate) -> Webhook:
    """A failed gap does not count against the receiver. If the receiver was unreachable, the gap is sent again later."""
    is_undelivered = result.category in UNREACHABLE_CATEGORIES | OWN_FAILURES
    if update.state is DeliveryState.DEAD and is_undelivered:
        return health.webhook_after_loss(webhook, update.delivery.seq or 0)
    return webhook


def _was_delivered(finished: FinishedAttempt) -> bool:
    """Whether the receiver has accepted a delivery that may be followed by another one."""
    is_last = finished.delivery.kind is DeliveryKind.TERMINATED
    return finished.result.category is AttemptCategory.DELIVERED and not is_last


def _is_failed_envelope(finished: FinishedAttempt) -> bool:
    return finished.delivery.kind in CONTROL_ENVELOPES and finished.result.category is not AttemptCategory.DELIVERED


async def _is_superseded(tx: Transaction, delivery: Delivery) -> bool:
    """Whether this is progress, and the log has a newer event of its call."""
    if delivery.kind is not DeliveryKind.PROGRESS:
        return False
    where = EventFilter(call_id=delivery.call_id)
    return bool(await tx.events.list_after(delivery.principal, delivery.seq or 0, where, limit=1))


def _group_by_webhook(recorded: Iterable[RecordedAttempt]) -> list[tuple[WebhookId, list[RecordedAttempt]]]:
    """Groups sorted by principal: every transaction locks several logs in that order."""
    ordered = sorted(recorded, key=lambda each: (each.finished.delivery.principal, each.finished.delivery.webhook_id))
    return [(key, list(group)) for key, group in groupby(ordered, key=lambda each: each.finished.delivery.webhook_id)]


def log_unrecorded_attempts(batch: Sequence[FinishedAttempt], error: Exception) -> None:
    bug = None if isinstance(error, StoreUnavailable) else error
    extra = {"count": len(batch), "delivery_ids": [each.delivery.id for each in batch[:_LOGGED_IDS_MAX]]}
    known = all(each.was_refused for each in batch)  # the store says how long it is unavailable
    level = logging.ERROR if bug else logging.DEBUG if known else logging.WARNING
    log.log(level, "deliveries.not_recorded", extra=extra, exc_info=bug)


def log_attempts(batch: Sequence[FinishedAttempt], recorded: Sequence[RecordedAttempt]) -> None:
    """Log one line for each attempt, with the new state of its delivery; delivered ones only at DEBUG."""
    updates_by_id = {each.finished.delivery.id: each.update for each in recorded}
    for finished in batch:
        attempt, result = finished.attempt, finished.result
        level = logging.DEBUG if result.category is AttemptCategory.DELIVERED else logging.INFO
        if not log.isEnabledFor(level):
            continue
        update = updates_by_id.get(finished.delivery.id)
        log.log(
            level,
            "delivery.attempted",
            extra={
                **delivery_facts(finished.delivery),
                "number": attempt.number,
                "category": str(result.category),
                "status_code": result.status_code,
                "detail": result.detail if result.status_code is None else None,  # no text of a receiver
                "duration_ms": attempt.duration_ms,
                "state": "lease_lost" if update is None else str(update.state),
            },
        )
