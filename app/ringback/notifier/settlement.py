"""What came of attempts, written down: deliveries, attempts, webhooks and origins in one unit of work."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby

from ringback.domain import health
from ringback.domain.breaker import CLOSED, OF_ORIGIN, UNREACHED, Breaker, after_failure
from ringback.domain.delivery import (
    Answer,
    Attempt,
    Category,
    Delivery,
    DeliveryState,
    Kind,
    Settled,
    Verdict,
    is_loss,
    judge,
    settled,
)
from ringback.domain.event import EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import Ids, WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.signals import DUE
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart, changed_parts
from ringback.notifier.envelopes import gap
from ringback.notifier.lanes import Lanes, Slot
from ringback.notifier.places import place_at
from ringback.notifier.record import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An attempt that is over: what was sent, and what came of it."""

    delivery: Delivery
    """As it was leased."""
    attempt: Attempt
    answer: Answer
    origin: str
    slot: Slot


class Settlement:
    def __init__(self, *, recorder: Recorder, ids: Ids, lanes: Lanes, chance: Callable[[], float]) -> None:
        self._recorder = recorder
        self._ids = ids
        self._lanes = lanes
        self._chance = chance

    async def settle(self, tx: Transaction, outcomes: Sequence[Outcome]) -> Sequence[tuple[Outcome, Settled]]:
        """Each outcome whose lease still held, in the order of their ends, with what became of its delivery.

        Of the others somebody else decides, so they count for nothing: not as an attempt, and not against the receiver.
        """
        found = await tx.webhooks.by_ids({outcome.delivery.webhook_id for outcome in outcomes})
        webhooks = {webhook.id: webhook for webhook in found}
        judged = [(outcome, await self._judged(tx, outcome, webhooks)) for outcome in outcomes]
        held = await tx.delivery_queue.settle([became for _, became in judged])
        counting = [(outcome, became) for outcome, became in judged if outcome.delivery.id in held]
        await tx.delivery_queue.log([outcome.attempt for outcome, _ in counting])
        for webhook_id, group in _by_webhook(counting):
            if webhook_id in webhooks:
                await self._account(tx, webhooks[webhook_id], group)
        await self._account_origins(tx, [outcome for outcome, _ in counting])
        return counting

    async def _judged(self, tx: Transaction, outcome: Outcome, webhooks: Mapping[WebhookId, Webhook]) -> Settled:
        delivery, answer, now = outcome.delivery, outcome.answer, tx.now()
        webhook = webhooks.get(delivery.webhook_id)
        if webhook is None:
            return settled(delivery, Verdict(state=DeliveryState.CANCELLED), category=delivery.last_category, now=now)
        verdict = judge(delivery, answer, profile=webhook.retries, now=now, chance=self._chance())
        if verdict.state is DeliveryState.PENDING and await _superseded(tx, delivery):
            verdict = Verdict(state=DeliveryState.CANCELLED)
        return settled(delivery, verdict, category=answer.category, now=now)

    async def _account(self, tx: Transaction, webhook: Webhook, group: Sequence[tuple[Outcome, Settled]]) -> None:
        """The webhook's own account of how its receiver is doing, and what its owner and its receiver are told of that."""
        after, now = webhook, tx.now()
        for outcome, became in group:
            after = self._accounted(after, outcome.answer, became, now=now)
        answered = any(outcome.answer.category is Category.DELIVERED for outcome, _ in group)
        if answered and after.missed_from is not None and after.state is WebhookState.ACTIVE:
            first_missed, after = after.missed_from, replace(after, missed_from=None)
            place = await place_at(tx, after.principal, first_missed - 1)
            told = gap(after, after=place, delivery_id=self._ids.delivery(), now=now)
            await tx.deliveries.insert([told])
            tx.ring(DUE)
        if changed := changed_parts(webhook, after):
            await tx.webhooks.update(after, *changed)
        await self._tell(tx, webhook, after)

    def _accounted(self, webhook: Webhook, answer: Answer, became: Settled, *, now: datetime) -> Webhook:
        delivery = became.delivery
        if answer.category is Category.DELIVERED:
            return health.succeeded(webhook, now=now)
        if delivery.kind is Kind.GAP:
            return _untold(webhook, answer, became)
        after = health.failed(webhook, answer.category, now=now, chance=self._chance())
        lost = became.state is DeliveryState.DEAD and is_loss(delivery, answer)
        return health.missed(after, delivery.seq or 0) if lost else after

    async def _tell(self, tx: Transaction, before: Webhook, after: Webhook) -> None:
        name = health.change_of_state(before, after)
        if name is None:
            return
        await self._recorder.tell(tx, name, after)
        if name is EventName.WEBHOOK_RECOVERED:
            await tx.delivery_lanes.release(after.id, now=tx.now(), limit=health.RELEASE_STEP)
            tx.ring(DUE)

    async def _account_origins(self, tx: Transaction, outcomes: Sequence[Outcome]) -> None:
        """Most origins have never failed, and cost nothing here."""
        touched = {
            outcome.origin
            for outcome in outcomes
            if outcome.answer.category in UNREACHED or self._lanes.suspects(outcome.origin)
        }
        if not touched:
            return
        breakers = dict.fromkeys(touched, CLOSED) | dict(await tx.origins.breakers(touched))
        after = dict(breakers)
        for outcome in outcomes:
            if outcome.origin in touched:
                after[outcome.origin] = self._origin_after(after[outcome.origin], outcome.answer, now=tx.now())
        for origin in sorted(touched):
            if after[origin] != breakers[origin]:
                await tx.origins.save(origin, after[origin])
        tx.at_end(partial(self._learn, after))

    def _origin_after(self, breaker: Breaker, answer: Answer, *, now: datetime) -> Breaker:
        if answer.category is Category.LOOK_UP_FAILED:
            return breaker
        if answer.category not in UNREACHED:
            return CLOSED
        return after_failure(breaker, OF_ORIGIN, now=now, chance=self._chance())

    def _learn(self, breakers: Mapping[str, Breaker], committed: bool) -> None:  # noqa: FBT001 - what `at_end` tells
        if committed:
            self._lanes.learn(breakers)


async def write_off(tx: Transaction, deliveries: Collection[Delivery]) -> None:
    """Note of deliveries that were given up without an attempt that their receivers have missed them."""
    lost = [delivery for delivery in deliveries if is_loss(delivery, None)]
    for webhook in await tx.webhooks.by_ids({delivery.webhook_id for delivery in lost}):
        first = min(delivery.seq or 0 for delivery in lost if delivery.webhook_id == webhook.id)
        await tx.webhooks.update(health.missed(webhook, first), WebhookPart.MISSED)


def _untold(webhook: Webhook, answer: Answer, became: Settled) -> Webhook:
    """A gap that failed counts for nothing; but while nobody was there to hear it, it still has to be told."""
    unheard = answer.category in UNREACHED or answer.category is Category.LOOK_UP_FAILED
    if became.state is DeliveryState.DEAD and unheard:
        return health.missed(webhook, became.delivery.seq or 0)
    return webhook


async def _superseded(tx: Transaction, delivery: Delivery) -> bool:
    """Whether this is progress of a call of which something newer is in the log."""
    if delivery.kind is not Kind.PROGRESS:
        return False
    where = EventFilter(call_id=delivery.call_id)
    return bool(await tx.events.after(delivery.principal, delivery.seq or 0, where, limit=1))


def _by_webhook(
    counting: Iterable[tuple[Outcome, Settled]],
) -> list[tuple[WebhookId, list[tuple[Outcome, Settled]]]]:
    """Grouped, and sorted by principal: several logs are locked in that order, here as everywhere."""
    ordered = sorted(counting, key=lambda pair: (pair[0].delivery.principal, pair[0].delivery.webhook_id))
    return [(key, list(group)) for key, group in groupby(ordered, key=lambda pair: pair[0].delivery.webhook_id)]
