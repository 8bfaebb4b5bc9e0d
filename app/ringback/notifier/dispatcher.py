"""The dispatcher: leases what is due, POSTs it, writes down what came of it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ringback.domain.clock import Clock, seconds
from ringback.domain.delivery import Answer, Attempt, Category, Delivery, DeliveryState, Verdict, judge
from ringback.domain.errors import InvalidCallbackUrl, StoreUnavailable
from ringback.domain.ids import Ids, WebhookId
from ringback.domain.ports import DUE, Bell, Store, Transaction
from ringback.domain.webhook import Webhook, WebhookState, signing_secrets
from ringback.notifier.headers import callback_headers
from ringback.notifier.sender import ATTEMPT_SECONDS, Sender
from ringback.notifier.target_guard import TargetPolicy, parse_target
from ringback.waits import first_of

log = logging.getLogger(__name__)

LAST_DELIVERY_STEP_SECONDS: Final = 1.0
"""`last_delivery_at` is told to the second; writing it for every delivery would make one hot row of each webhook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfig:
    in_flight_max: int = 512
    per_webhook_max: int = 32
    """Of one webhook at a time, so that a slow receiver cannot fill every slot."""
    lease_seconds: float = 30.0
    poll_seconds: float = 1.0
    """How long a missed ring can cost."""

    def __post_init__(self) -> None:
        if self.lease_seconds < 2 * ATTEMPT_SECONDS:
            raise ValueError(
                f"lease_seconds must be at least {2 * ATTEMPT_SECONDS}: an attempt must end within its lease"
            )


class Dispatcher:
    name = "dispatcher"

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: Ids,
        sender: Sender,
        policy: TargetPolicy,
        chance: Callable[[], float],
        config: DispatcherConfig | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._sender = sender
        self._policy = policy
        self._chance = chance
        self._config = config or DispatcherConfig()
        self._in_flight: Counter[WebhookId] = Counter()
        self._room = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Dispatch until told to stop; then let the attempts in flight end, which each does within its deadline."""
        async with asyncio.TaskGroup() as attempts:
            with self._store.signals.listen(DUE) as bell:
                while not stop.is_set():
                    leased = await self._lease_or_nothing()
                    for delivery in leased:
                        attempts.create_task(self._attempt(delivery))
                    if not leased:
                        await self._idle(bell, stop)

    async def run_once(self) -> int:
        """Lease once and finish everything that was leased; how many deliveries that were."""
        leased = await self._lease()
        async with asyncio.TaskGroup() as attempts:
            for delivery in leased:
                attempts.create_task(self._attempt(delivery))
        return len(leased)

    async def _lease_or_nothing(self) -> list[Delivery]:
        try:
            return await self._lease()
        except StoreUnavailable:
            log.warning("deliveries.lease_failed")
            return []

    async def _lease(self) -> list[Delivery]:
        self._room.clear()
        free = self._config.in_flight_max - self._in_flight.total()
        if free <= 0:
            return []
        # A lease does not know what is in flight already: it takes up to half a share, from those who have that much left.
        share = self._config.per_webhook_max
        half = max(1, share // 2)
        busy = {webhook for webhook, count in self._in_flight.items() if count + half > share}
        token = self._ids.lease()

        async def lease(tx: Transaction) -> list[Delivery]:
            now = tx.now()
            return list(
                await tx.delivery_queue.lease(
                    now=now,
                    token=token,
                    until=now + seconds(self._config.lease_seconds),
                    limit=free,
                    per_webhook=half,
                    busy=busy,
                )
            )

        leased = await self._store.write(lease)
        self._in_flight.update(delivery.webhook_id for delivery in leased)
        return leased

    async def _idle(self, bell: Bell, stop: asyncio.Event) -> None:
        """Until something is due, room was made, or the poll interval is over."""
        await first_of(bell.wait(await self._until_next_due()), self._room.wait(), stop.wait())

    async def _until_next_due(self) -> float:
        async def next_due(tx: Transaction) -> float | None:
            due = await tx.delivery_queue.next_due()
            return None if due is None else max(0.0, (due - tx.now()).total_seconds())

        try:
            due_in = await self._store.read(next_due)
        except StoreUnavailable:
            due_in = None
        # What is due and yet was not leased waits for room, which rings by itself.
        return min(due_in or self._config.poll_seconds, self._config.poll_seconds)

    async def _attempt(self, delivery: Delivery) -> None:
        try:
            await self._send_and_settle(delivery)
        except StoreUnavailable:
            # The lease runs out, and the same body goes again under the same webhook-id.
            log.warning("delivery.not_settled", extra={"delivery_id": delivery.id})
        except Exception:  # the boundary between one delivery and the others: this one's lease runs out, too
            log.exception("delivery.failed", extra={"delivery_id": delivery.id})
        finally:
            self._in_flight[delivery.webhook_id] -= 1
            if not self._in_flight[delivery.webhook_id]:
                del self._in_flight[delivery.webhook_id]
            self._room.set()

    async def _send_and_settle(self, delivery: Delivery) -> None:
        webhook = await self._store.read(lambda tx: tx.webhooks.get(delivery.webhook_id))
        if webhook is None or webhook.state is WebhookState.DISABLED:
            await self._store.write(lambda tx: self._drop(tx, delivery))
            return
        started_at, began = self._clock.now(), self._clock.monotonic()
        answer = await self._post(delivery, webhook, now=started_at)
        attempt = Attempt(
            id=self._ids.attempt(),
            delivery_id=delivery.id,
            number=delivery.attempts,
            started_at=started_at,
            duration_ms=round((self._clock.monotonic() - began) * 1000),
            category=answer.category,
            status_code=answer.status_code,
            excerpt=answer.excerpt,
        )
        settled = await self._store.write(lambda tx: self._settle(tx, delivery, attempt, answer))
        _report(settled or delivery, attempt, held=settled is not None)

    async def _post(self, delivery: Delivery, webhook: Webhook, *, now: datetime) -> Answer:
        try:
            target = parse_target(webhook.url, self._policy)
        except InvalidCallbackUrl:
            # The operator's policy has become stricter since the webhook was registered.
            return Answer(category=Category.CONNECTION_REFUSED)
        headers = callback_headers(
            webhook_id=webhook.id,
            message_id=delivery.message_id,
            body=delivery.body,
            secrets=signing_secrets(webhook, now=now),
            now=now,
        )
        return await self._sender.post(target, headers, delivery.body, deadline_seconds=ATTEMPT_SECONDS)

    async def _settle(self, tx: Transaction, delivery: Delivery, attempt: Attempt, answer: Answer) -> Delivery | None:
        webhook = await tx.webhooks.get(delivery.webhook_id)
        if webhook is None:
            return await self._drop(tx, delivery)
        verdict = judge(delivery, answer, profile=webhook.retries, now=tx.now(), chance=self._chance())
        settled = _settled(delivery, verdict, answer.category, now=tx.now())
        if not await tx.delivery_queue.settle(settled, lease_token=delivery.lease_token or ""):
            return None
        await tx.delivery_queue.log([attempt])
        await _mark(tx, webhook, answer.category)
        return settled

    async def _drop(self, tx: Transaction, delivery: Delivery) -> Delivery | None:
        dropped = _settled(delivery, Verdict(state=DeliveryState.CANCELLED), delivery.last_category, now=tx.now())
        held = await tx.delivery_queue.settle(dropped, lease_token=delivery.lease_token or "")
        return dropped if held else None


def _settled(delivery: Delivery, verdict: Verdict, category: Category | None, *, now: datetime) -> Delivery:
    ended = verdict.state is not DeliveryState.PENDING
    return replace(
        delivery,
        state=verdict.state,
        due_at=verdict.due_at or delivery.due_at,
        lease_token=None,
        lease_until=None,
        last_category=category,
        finished_at=now if ended else None,
    )


async def _mark(tx: Transaction, webhook: Webhook, category: Category) -> None:
    """Keep the webhook's own account of how its receiver is doing, as coarse as it can be."""
    now = tx.now()
    if category is not Category.DELIVERED:
        marked = replace(webhook, last_error=str(category), failing_since=webhook.failing_since or now)
    elif webhook.failing_since is None and _recent(webhook.last_delivery_at, now):
        return
    else:
        marked = replace(webhook, last_delivery_at=now, last_error=None, failing_since=None)
    if marked != webhook:
        await tx.webhooks.update(marked)


def _recent(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and (now - instant).total_seconds() < LAST_DELIVERY_STEP_SECONDS


def _report(delivery: Delivery, attempt: Attempt, *, held: bool) -> None:
    """One line an attempt, with what became of the delivery folded into it."""
    log.info(
        "delivery.attempted",
        extra={
            "delivery_id": delivery.id,
            "webhook_id": delivery.webhook_id,
            "event_id": delivery.event_id,
            "number": attempt.number,
            "category": str(attempt.category),
            "status_code": attempt.status_code,
            "duration_ms": attempt.duration_ms,
            "state": str(delivery.state) if held else "lease_lost",
        },
    )
