"""An event becomes a delivery for each webhook that hears it."""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ringback.domain import health
from ringback.domain.call import Call
from ringback.domain.catch_up import STEP_BODY_BYTES
from ringback.domain.clock import seconds
from ringback.domain.cursor import Place
from ringback.domain.delivery import Delivery, DeliveryState, Kind, give_up_seconds
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId, Ids, WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.signals import DUE
from ringback.domain.webhook import Webhook, due_at, hears
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.body import BODY_BYTES_MAX, Bodies
from ringback.notifier.handover import Handover, Lease
from ringback.notifier.places import place_at

SUPERSEDING: Final = frozenset({EventName.CALL_PROGRESS, EventName.CALL_FINISHED})
"""What makes earlier progress of the same call worthless."""

DELIVERIES_AT_ONCE: Final = 32
"""Built and inserted between two turns of the event loop, some 4 ms: 120 µs each, sealing included (measured). A thousand
webhooks that hear one event would otherwise hold it for 0.12 s."""

NOTHING_OPEN: Final = sys.maxsize
"""A place behind every other."""


class Happened(NamedTuple):
    """An event, the call that it is about, and the result that the call has ended with."""

    event: Event
    call: Call | None = None
    result: bytes | None = None


class Late(NamedTuple):
    """How far one step of a catch-up has come."""

    visited: int
    """Of the events that it was given, from the first on."""
    delivered: int
    too_many: int | None
    """The place of the event at which `deliveries_max` was reached, and which it did not visit."""


@dataclass(slots=True)
class _Born:
    """Deliveries of one unit of work that are not in the store yet, and what they change for those that follow."""

    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    missing: set[WebhookId] = field(default_factory=set[WebhookId])
    """Webhooks that were just told to note their first loss."""
    places: dict[int, Place] = field(default_factory=dict[int, Place])
    """Known places of the one log that all of this happens in."""
    _held: dict[WebhookId, int] = field(default_factory=dict[WebhookId, int])
    _lowest_open: dict[WebhookId, int] = field(default_factory=dict[WebhookId, int])
    _calls: dict[CallId, Call | None] = field(default_factory=dict[CallId, Call | None])

    async def call(self, tx: Transaction, call_id: CallId | None) -> Call | None:
        """Read once: several events of one call stand close together."""
        if call_id is None:
            return None
        if call_id not in self._calls:
            self._calls[call_id] = await tx.calls.get(call_id)
        return self._calls[call_id]

    async def held(self, tx: Transaction, webhook: Webhook) -> int:
        """How many are held for the webhook, these included; the store is asked once."""
        if webhook.id not in self._held:
            self._held[webhook.id] = await tx.delivery_lanes.held(webhook.id, limit=health.HELD_MAX)
        return self._held[webhook.id]

    def add(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if delivery.state is DeliveryState.HELD and delivery.webhook_id in self._held:
            self._held[delivery.webhook_id] += 1

    async def insert(self, tx: Transaction) -> None:
        """Put what was born since the last time into the store."""
        deliveries, self.deliveries = self.deliveries, []
        await _insert(tx, deliveries)

    async def look(self, tx: Transaction, webhooks: Collection[Webhook]) -> None:
        """Ask the store of all of them at once: for a thousand webhooks, one statement instead of a thousand."""
        unknown = [webhook.id for webhook in webhooks if webhook.id not in self._lowest_open]
        if unknown:
            found = await tx.deliveries.watermarks(unknown)
            self._lowest_open.update({webhook_id: found.get(webhook_id, NOTHING_OPEN) for webhook_id in unknown})

    async def safe(self, tx: Transaction, webhook: Webhook, event: Event) -> Place:
        """The place up to which everything of this webhook was delivered or given up, when this event is about to be open.

        `look` comes first.
        """
        lowest = self._lowest_open[webhook.id] = min(self._lowest_open[webhook.id], event.seq)
        if lowest - 1 not in self.places:
            self.places[lowest - 1] = await place_at(tx, event.principal, lowest - 1)
        return self.places[lowest - 1]


class FanOut:
    def __init__(self, *, ids: Ids, bodies: Bodies, handover: Handover) -> None:
        self._ids = ids
        self._bodies = bodies
        self._handover = handover

    async def live(self, tx: Transaction, happened: Sequence[Happened]) -> None:
        """Deliver what has just happened to one principal, in its order: at once where there is room, else in its turn."""
        events = [each.event for each in happened]
        candidates = await tx.webhooks.candidates(events, catching_up=False)
        await tx.call_deliveries.supersede(
            {each.call_id for each in events if each.call_id and each.name in SUPERSEDING}
        )
        born = _Born(places={event.seq: event.place for event in events})
        for each, webhooks in zip(happened, candidates, strict=True):
            await self._deliver(tx, each, webhooks, born)
        await born.insert(tx)

    async def late(self, tx: Transaction, webhook: Webhook, events: Sequence[Event], *, deliveries_max: int) -> Late:
        """Deliver to one webhook what happened before it heard events as they happen. Each delivery waits its turn."""
        born, visited, body_bytes = _Born(places={event.seq: event.place for event in events}), 0, 0
        too_many: int | None = None
        for event in events:
            if body_bytes >= STEP_BODY_BYTES:
                break
            if hears(webhook, event, now=tx.now()):
                if len(born.deliveries) >= deliveries_max:
                    too_many = event.seq
                    break
                body_bytes += await self._deliver_late(tx, webhook, event, born)
            visited += 1
        await _insert(tx, born.deliveries)
        return Late(visited=visited, delivered=len(born.deliveries), too_many=too_many)

    async def _deliver_late(self, tx: Transaction, webhook: Webhook, event: Event, born: _Born) -> int:
        """The length of its body; 0 when it is not delivered, because too much is held."""
        if webhook.holds() and not await self._may_be_held(tx, event, webhook, born):
            return 0
        happened = Happened(event, await born.call(tx, event.call_id))
        await born.look(tx, [webhook])
        delivery = await self._delivery(tx, happened, webhook, None, born)
        born.add(delivery)
        return len(delivery.body)

    async def _deliver(self, tx: Transaction, happened: Happened, webhooks: Sequence[Webhook], born: _Born) -> None:
        hearing = [webhook for webhook in webhooks if hears(webhook, happened.event, now=tx.now())]
        await born.look(tx, hearing)
        for webhook in hearing:
            if not webhook.holds() or await self._may_be_held(tx, happened.event, webhook, born):
                lease = self._lease(tx, happened, webhook)
                born.add(await self._delivery(tx, happened, webhook, lease, born))
                if len(born.deliveries) >= DELIVERIES_AT_ONCE:
                    await born.insert(tx)
                    await tx.pause()

    async def _may_be_held(self, tx: Transaction, event: Event, webhook: Webhook, born: _Born) -> bool:
        """Progress is not worth keeping. Of the rest so much is kept, and what comes then is a gap."""
        if event.name is EventName.CALL_PROGRESS:
            return False
        if await born.held(tx, webhook) < health.HELD_MAX:
            return True
        if webhook.missed_from is None and webhook.id not in born.missing:
            born.missing.add(webhook.id)
            await tx.webhooks.update(health.missed(webhook, event.seq), WebhookPart.MISSED)
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
            lease_owner=None if lease is None else lease.owner,
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


async def _result(tx: Transaction, happened: Happened, webhook: Webhook) -> bytes | None:
    event = happened.event
    if not webhook.include_result or event.name is not EventName.CALL_FINISHED or event.call_id is None:
        return None
    if happened.call is not None and (happened.call.result_bytes or 0) > BODY_BYTES_MAX:
        return None  # it would not fit, so it is not read
    return await tx.calls.result(event.call_id) if happened.result is None else happened.result


async def _insert(tx: Transaction, deliveries: Sequence[Delivery]) -> None:
    if not deliveries:
        return
    await tx.deliveries.insert(deliveries)
    if any(delivery.state is DeliveryState.PENDING for delivery in deliveries):
        tx.ring(DUE)
