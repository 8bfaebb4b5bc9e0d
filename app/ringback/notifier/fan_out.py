"""Fan-out: inserts a delivery for each webhook that matches an event, in the transaction that appends the event."""

import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple

from ringback.domain import webhook_health as health
from ringback.domain.call import Call
from ringback.domain.catch_up import STEP_BODY_BYTES_MAX
from ringback.domain.cursor import LogPosition, event_mark
from ringback.domain.delivery import OPEN_STATES, Delivery, DeliveryKind, DeliveryState
from ringback.domain.errors import ContentUnreadable
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId, EventId, IdGenerator, WebhookId
from ringback.domain.log_appends import NOTHING_ELSE, LogAppend, Place, Receivers
from ringback.domain.ports import Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook, delivery_due_at, matches_event, webhook_for_call
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.deferred_receivers import defer_receivers
from ringback.notifier.log_positions import read_log_position
from ringback.notifier.payload import BODY_BYTES_MAX, PayloadBuilder, new_delivery
from ringback.post_commit import DeliveryHandoff, DeliveryLease

DELIVERIES_AT_ONCE: Final = 32
"""Deliveries built between two turns of the event loop: some 2 ms (measured). A thousand webhooks that match one event would
otherwise block the loop for 0.1 s."""
WRITTEN_TOGETHER_MAX: Final = 1_024
"""Deliveries written by one statement. A batch of ends that matches a thousand webhooks has a hundred thousand of them."""
WRITTEN_TOGETHER_BYTES_MAX: Final = 4 * 1024 * 1024
"""The same for their bodies: what they may take of the memory."""

NO_OPEN_SEQ: Final = sys.maxsize
"""Greater than every sequence number."""


SelectWebhooks = Callable[[Transaction, Event, Sequence[Webhook]], Awaitable[Sequence[Webhook]]]
"""Selects, of candidates, the webhooks that get an event. It runs in the unit of work and awaits only the transaction."""


async def select_matching_webhooks(tx: Transaction, event: Event, candidates: Sequence[Webhook]) -> Sequence[Webhook]:
    """The service's own rule."""
    return [webhook for webhook in candidates if matches_event(webhook, event, now=tx.confirmed_now())]


async def find_matching_webhooks(tx: Transaction, event: Event) -> list[Webhook]:
    """The webhooks that match the event: an index of the store finds candidates, `matches_event` decides."""
    (candidates,) = await tx.webhooks.find_candidates([event], catching_up=True)
    return [webhook for webhook in candidates if matches_event(webhook, event, now=tx.confirmed_now())]


class EventContext(NamedTuple):
    """An event, its call, and the result of the call if it has just ended."""

    event: Event
    call: Call | None = None
    result: bytes | None = None


class CatchUpStep(NamedTuple):
    """The result of one step of a catch-up."""

    events_visited: int
    """The number of events visited, from the first on."""
    deliveries_created: int
    limit_reached_at: int | None
    """The sequence number of the first event that was not visited because of `deliveries_max`."""


@dataclass(slots=True)
class _NewDeliveries:
    """Deliveries of one transaction that are not inserted yet, and a cache of rows that later deliveries need."""

    append: LogAppend = NOTHING_ELSE
    """The rows that the first write has besides deliveries."""
    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    body_bytes: int = 0
    first_losses: set[WebhookId] = field(default_factory=set[WebhookId])
    """Webhooks whose first loss was recorded in this transaction."""
    positions: dict[Place, LogPosition] = field(default_factory=dict[Place, LogPosition])
    """Known positions of the logs."""
    earlier: dict[EventId, Delivery] = field(default_factory=dict[EventId, Delivery])
    """Deliveries of the subscription from before it lapsed: its id is derived from its key, so it may have had these events."""
    _held_counts: dict[WebhookId, int] = field(default_factory=dict[WebhookId, int])
    _lowest_open_seqs: dict[WebhookId, int] = field(default_factory=dict[WebhookId, int])
    _calls: dict[CallId, Call | None] = field(default_factory=dict[CallId, Call | None])

    async def read_call(self, tx: Transaction, call_id: CallId | None) -> Call | None:
        """Read each call once: events of one call are often adjacent."""
        if call_id is None:
            return None
        if call_id not in self._calls:
            self._calls[call_id] = await tx.calls.get(call_id, lock=False)
        return self._calls[call_id]

    async def count_held(self, tx: Transaction, webhook: Webhook) -> int:
        """The number of held deliveries of the webhook, new ones included; queries the store once."""
        if webhook.id not in self._held_counts:
            self._held_counts[webhook.id] = await tx.webhook_deliveries.count_held(
                webhook.id, limit=health.HELD_DELIVERIES_MAX
            )
        return self._held_counts[webhook.id]

    def add(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self.body_bytes += len(delivery.body)
        if delivery.state is DeliveryState.HELD and delivery.webhook_id in self._held_counts:
            self._held_counts[delivery.webhook_id] += 1

    def is_full(self) -> bool:
        """Whether the deliveries are as many as one statement writes."""
        return len(self.deliveries) >= WRITTEN_TOGETHER_MAX or self.body_bytes >= WRITTEN_TOGETHER_BYTES_MAX

    async def write(self, tx: Transaction) -> None:
        """Write the deliveries added since the last write, and the other rows."""
        append, self.append = replace(self.append, deliveries=self.deliveries), NOTHING_ELSE
        self.deliveries, self.body_bytes = [], 0
        if append.events or append.deliveries:
            await tx.log_appends.write(append)
        if any(delivery.state is DeliveryState.PENDING for delivery in append.deliveries):
            tx.notify(DELIVERY_DUE_TOPIC)

    def use_receivers(self, events: Sequence[Event], receivers: Receivers) -> None:
        """Take the lowest open deliveries of the events' webhooks, and the positions before them."""
        self.positions |= {(each.principal, each.seq): each.position for each in events}
        first_seqs = {each.principal: each.seq for each in reversed(events)}
        for event in events:
            first_seq = first_seqs[event.principal]
            for webhook in receivers.webhooks[event.principal, event.seq]:
                lowest = receivers.lowest_open_seqs.get(webhook.id, NO_OPEN_SEQ)
                self._lowest_open_seqs[webhook.id] = lowest
                place = event.principal, min(lowest, first_seq) - 1
                event_id = receivers.earlier_events.get(place)
                self.positions[place] = LogPosition(place[1], None if event_id is None else event_mark(event_id))

    async def load_lowest_open_seq(self, tx: Transaction, webhook: Webhook) -> None:
        if webhook.id not in self._lowest_open_seqs:
            lowest = await tx.deliveries.lowest_open_seqs([webhook.id])
            self._lowest_open_seqs[webhook.id] = lowest.get(webhook.id, NO_OPEN_SEQ)

    async def watermark(self, tx: Transaction, webhook: Webhook, event: Event) -> LogPosition:
        """The position up to which all of this webhook's deliveries have ended, once this event is open.

        `use_receivers` or `load_lowest_open_seq` comes first.
        """
        lowest = self._lowest_open_seqs[webhook.id] = min(self._lowest_open_seqs[webhook.id], event.seq)
        place = event.principal, lowest - 1
        if place not in self.positions:
            self.positions[place] = await read_log_position(tx, event.principal, lowest - 1)
        return self.positions[place]


class FanOut:
    def __init__(
        self,
        *,
        ids: IdGenerator,
        payloads: PayloadBuilder,
        delivery_handoff: DeliveryHandoff,
        select_webhooks: SelectWebhooks = select_matching_webhooks,
    ) -> None:
        self._ids = ids
        self._select_webhooks = select_webhooks
        self._payloads = payloads
        self._delivery_handoff = delivery_handoff

    async def append_events(
        self, tx: Transaction, contexts: Sequence[EventContext], append: LogAppend
    ) -> Collection[CallId]:
        """Write new events, their deliveries and the rows of `append`. Return the calls that have a delivery, now or later.

        The events are in the order of each log, and the caller has reserved their places. A delivery that gets a lease
        through `delivery_handoff` is sent right after the commit; the others wait for the dispatcher.
        """
        events = [each.event for each in contexts]
        receivers = await tx.log_appends.find_receivers(events)
        new = _NewDeliveries(append=replace(append, events=events))
        new.use_receivers(events, receivers)
        matching: list[Sequence[Webhook]] = []
        for event in events:
            candidates = receivers.webhooks[event.principal, event.seq]
            matching.append(await self._select_webhooks(tx, event, candidates))
            if len(candidates) > DELIVERIES_AT_ONCE:
                await tx.pause()
        reached = await defer_receivers(tx, events, [each.call for each in contexts], matching)
        for context, webhooks in zip(contexts, reached, strict=True):
            await self._deliver_event(tx, context, webhooks, new)
        await new.write(tx)
        return {
            event.call_id
            for event, webhooks in zip(events, matching, strict=True)
            if webhooks and event.call_id is not None
        }

    async def deliver_catch_up(
        self, tx: Transaction, webhook: Webhook, events: Sequence[Event], *, deliveries_max: int
    ) -> CatchUpStep:
        """Insert deliveries of past events for one webhook, all of them pending or held."""
        new = _NewDeliveries(positions={(event.principal, event.seq): event.position for event in events})
        naming_calls = await tx.call_webhooks.select_calls(
            webhook.id, {each.call_id for each in events if each.call_id}
        )
        if webhook.is_subscription:
            earlier = await tx.webhook_deliveries.latest_by_event(webhook.id, [each.id for each in events])
            new.earlier = {each.event_id: each for each in earlier if each.event_id is not None}
        events_visited = body_bytes = 0
        limit_reached_at: int | None = None
        for event in events:
            if body_bytes >= STEP_BODY_BYTES_MAX:
                break
            if await self._select_webhooks(tx, event, [_apply_to_event(webhook, event, naming_calls)]):
                if len(new.deliveries) >= deliveries_max:
                    limit_reached_at = event.seq
                    break
                body_bytes += await self._deliver_catch_up_event(tx, webhook, event, new)
            events_visited += 1
        deliveries_created = len(new.deliveries)
        await new.write(tx)
        return CatchUpStep(events_visited, deliveries_created, limit_reached_at)

    async def _deliver_catch_up_event(
        self, tx: Transaction, webhook: Webhook, event: Event, new: _NewDeliveries
    ) -> int:
        """The length of the delivery's body; 0 if none is inserted: too many are held, or its delivery is still open."""
        earlier = new.earlier.get(event.id)
        if earlier is not None and earlier.state in OPEN_STATES:
            return 0
        if webhook.holds_deliveries() and not await self._can_hold(tx, event, webhook, new):
            return 0
        context = EventContext(event, await new.read_call(tx, event.call_id))
        await new.load_lowest_open_seq(tx, webhook)
        due_at = delivery_due_at(webhook, event, context.call, now=tx.now())
        delivery = await self._build_delivery(tx, context, webhook, due_at, None, new)
        if earlier is not None:
            delivery = replace(delivery, generation=earlier.generation + 1)
        new.add(delivery)
        return len(delivery.body)

    async def _deliver_event(
        self, tx: Transaction, context: EventContext, matching: Sequence[Webhook], new: _NewDeliveries
    ) -> None:
        for webhook in matching:
            if not webhook.holds_deliveries() or await self._can_hold(tx, context.event, webhook, new):
                due_at = delivery_due_at(webhook, context.event, context.call, now=tx.now())
                lease = self._acquire_handoff_lease(tx, webhook, due_at)
                new.add(await self._build_delivery(tx, context, webhook, due_at, lease, new))
                if new.is_full():
                    await new.write(tx)
                if len(new.deliveries) % DELIVERIES_AT_ONCE == 0:
                    await tx.pause()

    async def _can_hold(self, tx: Transaction, event: Event, webhook: Webhook, new: _NewDeliveries) -> bool:
        """Whether the event may be held: never progress, and no more than `HELD_DELIVERIES_MAX`; later events become a gap."""
        if event.name == EventName.CALL_PROGRESS:
            return False
        if await new.count_held(tx, webhook) < health.HELD_DELIVERIES_MAX:
            return True
        if webhook.missed_from is None and webhook.id not in new.first_losses:
            new.first_losses.add(webhook.id)
            latest = await tx.webhooks.get(webhook.id) or webhook  # another unit may have recorded an earlier loss
            await tx.webhooks.update(health.webhook_after_loss(latest, event.seq), WebhookPart.MISSED)
        return False

    def _acquire_handoff_lease(self, tx: Transaction, webhook: Webhook, due_at: datetime) -> DeliveryLease | None:
        is_deferred = webhook.holds_deliveries() or due_at > tx.now()
        grant_lease = self._delivery_handoff.consumer
        return None if is_deferred or grant_lease is None else grant_lease(tx, webhook)

    async def _build_delivery(
        self,
        tx: Transaction,
        context: EventContext,
        webhook: Webhook,
        due_at: datetime,
        lease: DeliveryLease | None,
        new: _NewDeliveries,
    ) -> Delivery:
        event, call, now = context.event, context.call, tx.now()
        watermark = await new.watermark(tx, webhook, event)
        delivery = new_delivery(
            webhook,
            delivery_id=self._ids.new_delivery_id(),
            kind=DeliveryKind.PROGRESS if event.name == EventName.CALL_PROGRESS else DeliveryKind.EVENT,
            event_id=event.id,
            call_id=event.call_id,
            seq=event.seq,
            body=self._payloads.build_event_body(
                event, webhook, call=call, watermark=watermark, result=await _result_to_inline(tx, context, webhook)
            ),
            now=now,
            due_at=due_at,
            order_key=(event.client_session_id or event.call_id) if webhook.ordered else None,
            lease=lease,
            traceparent=None if call is None else call.traceparent,
        )
        if lease is not None:
            lease.hand_off(delivery)
        return delivery


def _apply_to_event(webhook: Webhook, event: Event, naming_calls: Collection[CallId]) -> Webhook:
    """The webhook with the filters that count for this event: none, if the event's call names the webhook."""
    if event.call_id is None or event.call_id not in naming_calls:
        return webhook
    return webhook_for_call(webhook, event.call_id)


async def _result_to_inline(tx: Transaction, context: EventContext, webhook: Webhook) -> bytes | None:
    event = context.event
    if not webhook.include_result or event.name != EventName.CALL_FINISHED or event.call_id is None:
        return None
    if context.call is not None and (context.call.result_bytes or 0) > BODY_BYTES_MAX:
        return None  # it cannot fit, so it is not read
    if context.result is not None:
        return context.result
    try:
        return await tx.call_completions.get_result(event.call_id)
    except ContentUnreadable:  # the receiver learns that the call ended, as with a result that does not fit
        return None
