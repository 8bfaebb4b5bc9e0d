"""An event becomes a delivery for each webhook that hears it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ringback.domain import health
from ringback.domain.call import Call
from ringback.domain.clock import seconds
from ringback.domain.cursor import Place
from ringback.domain.delivery import Delivery, DeliveryState, Kind, give_up_seconds
from ringback.domain.event import Event, EventName
from ringback.domain.ids import Ids, WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.signals import DUE
from ringback.domain.webhook import Webhook, due_at, hears
from ringback.notifier.body import Bodies
from ringback.notifier.handover import Handover, Lease
from ringback.notifier.places import place_at

SUPERSEDING: Final = frozenset({EventName.CALL_PROGRESS, EventName.CALL_FINISHED})
"""What makes earlier progress of the same call worthless."""


class Happened(NamedTuple):
    """An event, the call that it is about, and the result that the call has ended with."""

    event: Event
    call: Call | None = None
    result: bytes | None = None


@dataclass(slots=True)
class _Born:
    """Deliveries of one unit of work that are not in the store yet, and what they change for those that follow."""

    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    missing: set[WebhookId] = field(default_factory=set[WebhookId])
    """Webhooks that were just told to note their first loss."""
    places: dict[int, Place] = field(default_factory=dict[int, Place])
    """Known places of the one log that all of this happens in."""
    _lowest_open: dict[WebhookId, int] = field(default_factory=dict[WebhookId, int])

    def held_for(self, webhook: Webhook) -> int:
        return sum(each.webhook_id == webhook.id and each.state is DeliveryState.HELD for each in self.deliveries)

    async def safe(self, tx: Transaction, webhook: Webhook, event: Event) -> Place:
        """The place up to which everything of this webhook was delivered or given up, when this event is about to be open."""
        seq = await self.lowest_open(tx, webhook, event) - 1
        if seq not in self.places:
            self.places[seq] = await place_at(tx, event.principal, seq)
        return self.places[seq]

    async def lowest_open(self, tx: Transaction, webhook: Webhook, event: Event) -> int:
        """The place before which nothing of this webhook is open, when this event is about to be."""
        known = self._lowest_open.get(webhook.id)
        lowest = await tx.deliveries.watermark(webhook.id) if known is None else known
        self._lowest_open[webhook.id] = event.seq if lowest is None else min(lowest, event.seq)
        return self._lowest_open[webhook.id]


class FanOut:
    def __init__(self, *, ids: Ids, bodies: Bodies, handover: Handover) -> None:
        self._ids = ids
        self._bodies = bodies
        self._handover = handover

    async def live(self, tx: Transaction, happened: Sequence[Happened]) -> None:
        """Deliver what has just happened to one principal, in its order: at once where there is room, else in its turn."""
        candidates = await tx.webhooks.candidates([each.event for each in happened])
        born = _Born(places={each.event.seq: each.event.place for each in happened})
        for each, webhooks in zip(happened, candidates, strict=True):
            await self._deliver(tx, each, webhooks, born)
        await _insert(tx, born.deliveries)

    async def late(self, tx: Transaction, event: Event, webhook: Webhook, call: Call | None) -> None:
        """Deliver what happened before its webhook was there. It waits its turn: the registration is answered first."""
        if not (webhook.holds() and event.name is EventName.CALL_PROGRESS):
            await _insert(tx, [await self._delivery(tx, Happened(event, call), webhook, None, _Born())])

    async def _deliver(self, tx: Transaction, happened: Happened, webhooks: Sequence[Webhook], born: _Born) -> None:
        event = happened.event
        if event.call_id is not None and event.name in SUPERSEDING and any(map(_hears_progress, webhooks)):
            await tx.deliveries.supersede(event.call_id)
        for webhook in webhooks:
            if not hears(webhook, event, now=tx.now()):
                continue
            if not webhook.holds() or await self._may_be_held(tx, event, webhook, born):
                lease = self._lease(tx, happened, webhook)
                born.deliveries.append(await self._delivery(tx, happened, webhook, lease, born))

    async def _may_be_held(self, tx: Transaction, event: Event, webhook: Webhook, born: _Born) -> bool:
        """Progress is not worth keeping. Of the rest so much is kept, and what comes then is a gap."""
        if event.name is EventName.CALL_PROGRESS:
            return False
        held = await tx.delivery_lanes.held(webhook.id, limit=health.HELD_MAX) + born.held_for(webhook)
        if held < health.HELD_MAX:
            return True
        if webhook.missed_from is None and webhook.id not in born.missing:
            born.missing.add(webhook.id)
            await tx.webhooks.update(health.missed(webhook, event.seq))
        return False

    def _lease(self, tx: Transaction, happened: Happened, webhook: Webhook) -> Lease | None:
        waits = webhook.holds() or due_at(webhook, happened.event, happened.call, now=tx.now()) > tx.now()
        return None if waits else self._handover.lease(tx, webhook)

    async def _delivery(
        self, tx: Transaction, happened: Happened, webhook: Webhook, lease: Lease | None, born: _Born
    ) -> Delivery:
        event, call, now = happened.event, happened.call, tx.now()
        kind = Kind.PROGRESS if event.name is EventName.CALL_PROGRESS else Kind.EVENT
        safe = await born.safe(tx, webhook, event)
        delivery = Delivery(
            id=self._ids.delivery(),
            principal=event.principal,
            webhook_id=webhook.id,
            event_id=event.id,
            kind=kind,
            call_id=event.call_id,
            seq=event.seq,
            body=self._bodies.make(event, webhook, call=call, safe=safe, result=await _result(tx, happened, webhook)),
            state=_state(webhook, lease),
            attempts=0 if lease is None else 1,
            lease_token=None if lease is None else lease.token,
            lease_until=None if lease is None else lease.until,
            due_at=due_at(webhook, event, call, now=now),
            give_up_at=now + seconds(give_up_seconds(kind, webhook.retries, ordered=webhook.ordered)),
            order_key=(event.client_session_id or event.call_id) if webhook.ordered else None,
            created_at=now,
        )
        if lease is not None:
            lease.hand_over(delivery)
        return delivery


def _state(webhook: Webhook, lease: Lease | None) -> DeliveryState:
    if lease is not None:
        return DeliveryState.LEASED
    return DeliveryState.HELD if webhook.holds() else DeliveryState.PENDING


def _hears_progress(webhook: Webhook) -> bool:
    return EventName.CALL_PROGRESS in webhook.events


async def _result(tx: Transaction, happened: Happened, webhook: Webhook) -> bytes | None:
    event = happened.event
    if not webhook.include_result or event.name is not EventName.CALL_FINISHED or event.call_id is None:
        return None
    return await tx.calls.result(event.call_id) if happened.result is None else happened.result


async def _insert(tx: Transaction, deliveries: Sequence[Delivery]) -> None:
    if not deliveries:
        return
    await tx.deliveries.insert(deliveries)
    if any(delivery.state is DeliveryState.PENDING for delivery in deliveries):
        tx.ring(DUE)
