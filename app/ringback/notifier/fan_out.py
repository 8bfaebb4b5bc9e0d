"""An event becomes a delivery for each webhook that hears it."""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ringback.domain import webhook_health as health
from ringback.domain.call import Call
from ringback.domain.catch_up import STEP_BODY_BYTES_MAX
from ringback.domain.clock import seconds
from ringback.domain.cursor import LogPosition
from ringback.domain.delivery import Delivery, DeliveryKind, DeliveryState, give_up_seconds
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId, IdGenerator, WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook, delivery_due_at, matches_event
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.log_positions import read_log_position
from ringback.notifier.payload import BODY_BYTES_MAX, PayloadBuilder
from ringback.post_commit import DeliveryHandoff, DeliveryLease

SUPERSEDING_EVENTS: Final = frozenset({EventName.CALL_PROGRESS, EventName.CALL_FINISHED})
"""What makes earlier progress of the same call worthless."""

DELIVERIES_AT_ONCE: Final = 32
"""Built and inserted between two turns of the event loop, some 4 ms: 120 µs each, sealing included (measured). A thousand
webhooks that hear one event would otherwise hold it for 0.12 s."""

NO_OPEN_SEQ: Final = sys.maxsize
"""A place behind every other."""


class EventContext(NamedTuple):
    """An event, the call that it is about, and the result that the call has ended with."""

    event: Event
    call: Call | None = None
    result: bytes | None = None


class CatchUpStep(NamedTuple):
    """How far one step of a catch-up has come."""

    events_visited: int
    """Of the events that it was given, from the first on."""
    deliveries_created: int
    limit_reached_at: int | None
    """The place of the event at which `deliveries_max` was reached, and which it did not visit."""


@dataclass(slots=True)
class _NewDeliveries:
    """Deliveries of one unit of work that are not in the store yet, and what they change for those that follow."""

    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    first_losses: set[WebhookId] = field(default_factory=set[WebhookId])
    """Webhooks that were just told to note their first loss."""
    positions: dict[int, LogPosition] = field(default_factory=dict[int, LogPosition])
    """Known places of the one log that all of this happens in."""
    _held_counts: dict[WebhookId, int] = field(default_factory=dict[WebhookId, int])
    _lowest_open_seqs: dict[WebhookId, int] = field(default_factory=dict[WebhookId, int])
    _calls: dict[CallId, Call | None] = field(default_factory=dict[CallId, Call | None])

    async def read_call(self, tx: Transaction, call_id: CallId | None) -> Call | None:
        """Read once: several events of one call stand close together."""
        if call_id is None:
            return None
        if call_id not in self._calls:
            self._calls[call_id] = await tx.calls.get(call_id)
        return self._calls[call_id]

    async def count_held(self, tx: Transaction, webhook: Webhook) -> int:
        """How many are held for the webhook, these included; the store is asked once."""
        if webhook.id not in self._held_counts:
            self._held_counts[webhook.id] = await tx.webhook_deliveries.count_held(
                webhook.id, limit=health.HELD_DELIVERIES_MAX
            )
        return self._held_counts[webhook.id]

    def add(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        if delivery.state is DeliveryState.HELD and delivery.webhook_id in self._held_counts:
            self._held_counts[delivery.webhook_id] += 1

    async def insert(self, tx: Transaction) -> None:
        """Put what was born since the last time into the store."""
        deliveries, self.deliveries = self.deliveries, []
        await _insert_deliveries(tx, deliveries)

    async def load_lowest_open_seqs(self, tx: Transaction, webhooks: Collection[Webhook]) -> None:
        """Ask the store of all of them at once: for a thousand webhooks, one statement instead of a thousand."""
        unknown = [webhook.id for webhook in webhooks if webhook.id not in self._lowest_open_seqs]
        if unknown:
            lowest = await tx.deliveries.lowest_open_seqs(unknown)
            self._lowest_open_seqs.update({webhook_id: lowest.get(webhook_id, NO_OPEN_SEQ) for webhook_id in unknown})

    async def watermark(self, tx: Transaction, webhook: Webhook, event: Event) -> LogPosition:
        """The place up to which everything of this webhook was delivered or given up, when this event is about to be open.

        `look` comes first.
        """
        lowest = self._lowest_open_seqs[webhook.id] = min(self._lowest_open_seqs[webhook.id], event.seq)
        if lowest - 1 not in self.positions:
            self.positions[lowest - 1] = await read_log_position(tx, event.principal, lowest - 1)
        return self.positions[lowest - 1]


class FanOut:
    def __init__(self, *, ids: IdGenerator, payloads: PayloadBuilder, post_commit: DeliveryHandoff) -> None:
        self._ids = ids
        self._payloads = payloads
        self._post_commit = post_commit

    async def deliver_new_events(self, tx: Transaction, contexts: Sequence[EventContext]) -> None:
        """Deliver what has just happened to one principal, in its order: at once where there is room, else in its turn."""
        events = [each.event for each in contexts]
        candidates = await tx.webhooks.find_candidates(events, catching_up=False)
        await tx.call_deliveries.cancel_superseded_progress(
            {each.call_id for each in events if each.call_id and each.name in SUPERSEDING_EVENTS}
        )
        new = _NewDeliveries(positions={event.seq: event.position for event in events})
        for context, webhooks in zip(contexts, candidates, strict=True):
            await self._deliver_event(tx, context, webhooks, new)
        await new.insert(tx)

    async def deliver_catch_up(
        self, tx: Transaction, webhook: Webhook, events: Sequence[Event], *, deliveries_max: int
    ) -> CatchUpStep:
        """Deliver to one webhook what happened before it heard events as they happen. Each delivery waits its turn."""
        new, events_visited, body_bytes = (
            _NewDeliveries(positions={event.seq: event.position for event in events}),
            0,
            0,
        )
        limit_reached_at: int | None = None
        for event in events:
            if body_bytes >= STEP_BODY_BYTES_MAX:
                break
            if matches_event(webhook, event, now=tx.now()):
                if len(new.deliveries) >= deliveries_max:
                    limit_reached_at = event.seq
                    break
                body_bytes += await self._deliver_catch_up_event(tx, webhook, event, new)
            events_visited += 1
        await _insert_deliveries(tx, new.deliveries)
        return CatchUpStep(
            events_visited=events_visited, deliveries_created=len(new.deliveries), limit_reached_at=limit_reached_at
        )

    async def _deliver_catch_up_event(
        self, tx: Transaction, webhook: Webhook, event: Event, new: _NewDeliveries
    ) -> int:
        """The length of its body; 0 when it is not delivered, because too much is held."""
        if webhook.holds_deliveries() and not await self._can_hold(tx, event, webhook, new):
            return 0
        context = EventContext(event, await new.read_call(tx, event.call_id))
        await new.load_lowest_open_seqs(tx, [webhook])
        delivery = await self._build_delivery(tx, context, webhook, None, new)
        new.add(delivery)
        return len(delivery.body)

    async def _deliver_event(
        self, tx: Transaction, context: EventContext, webhooks: Sequence[Webhook], new: _NewDeliveries
    ) -> None:
        matching = [webhook for webhook in webhooks if matches_event(webhook, context.event, now=tx.now())]
        await new.load_lowest_open_seqs(tx, matching)
        for webhook in matching:
            if not webhook.holds_deliveries() or await self._can_hold(tx, context.event, webhook, new):
                lease = self._acquire_handoff_lease(tx, context, webhook)
                new.add(await self._build_delivery(tx, context, webhook, lease, new))
                if len(new.deliveries) >= DELIVERIES_AT_ONCE:
                    await new.insert(tx)
                    await tx.pause()

    async def _can_hold(self, tx: Transaction, event: Event, webhook: Webhook, new: _NewDeliveries) -> bool:
        """Progress is not worth keeping. Of the rest so much is kept, and what comes then is a gap."""
        if event.name is EventName.CALL_PROGRESS:
            return False
        if await new.count_held(tx, webhook) < health.HELD_DELIVERIES_MAX:
            return True
        if webhook.missed_from is None and webhook.id not in new.first_losses:
            new.first_losses.add(webhook.id)
            await tx.webhooks.update(health.webhook_after_loss(webhook, event.seq), WebhookPart.MISSED)
        return False

    def _acquire_handoff_lease(self, tx: Transaction, context: EventContext, webhook: Webhook) -> DeliveryLease | None:
        is_deferred = (
            webhook.holds_deliveries() or delivery_due_at(webhook, context.event, context.call, now=tx.now()) > tx.now()
        )
        grant_lease = self._post_commit.consumer
        return None if is_deferred or grant_lease is None else grant_lease(tx, webhook)

    async def _build_delivery(
        self, tx: Transaction, context: EventContext, webhook: Webhook, lease: DeliveryLease | None, new: _NewDeliveries
    ) -> Delivery:
        event, call, now = context.event, context.call, tx.now()
        kind = DeliveryKind.PROGRESS if event.name is EventName.CALL_PROGRESS else DeliveryKind.EVENT
        watermark = await new.watermark(tx, webhook, event)
        delivery = Delivery(
            id=self._ids.new_delivery_id(),
            principal=event.principal,
            webhook_id=webhook.id,
            event_id=event.id,
            kind=kind,
            call_id=event.call_id,
            seq=event.seq,
            body=self._payloads.build_event_body(
                event, webhook, call=call, watermark=watermark, result=await _result_to_inline(tx, context, webhook)
            ),
            state=_initial_state(webhook, lease),
            attempts=0 if lease is None else 1,
            lease_owner=None if lease is None else lease.owner,
            lease_token=None if lease is None else lease.token,
            lease_until=None if lease is None else lease.until,
            due_at=delivery_due_at(webhook, event, call, now=now),
            give_up_at=now + seconds(give_up_seconds(kind, webhook.retries, ordered=webhook.ordered)),
            order_key=(event.client_session_id or event.call_id) if webhook.ordered else None,
            created_at=now,
        )
        if lease is not None:
            lease.hand_off(delivery)
        return delivery


def _initial_state(webhook: Webhook, lease: DeliveryLease | None) -> DeliveryState:
    if lease is not None:
        return DeliveryState.LEASED
    return DeliveryState.HELD if webhook.holds_deliveries() else DeliveryState.PENDING


async def _result_to_inline(tx: Transaction, context: EventContext, webhook: Webhook) -> bytes | None:
    event = context.event
    if not webhook.include_result or event.name is not EventName.CALL_FINISHED or event.call_id is None:
        return None
    if context.call is not None and (context.call.result_bytes or 0) > BODY_BYTES_MAX:
        return None  # it would not fit, so it is not read
    return await tx.calls.get_result(event.call_id) if context.result is None else context.result


async def _insert_deliveries(tx: Transaction, deliveries: Sequence[Delivery]) -> None:
    if not deliveries:
        return
    await tx.deliveries.insert(deliveries)
    if any(delivery.state is DeliveryState.PENDING for delivery in deliveries):
        tx.notify(DELIVERY_DUE_TOPIC)
