"""An event becomes a delivery for each webhook that hears it."""

from collections.abc import Sequence
from typing import Final

from ringback.domain import health
from ringback.domain.call import Call
from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery, DeliveryState, Kind, give_up_seconds
from ringback.domain.event import Event, EventName
from ringback.domain.ids import Ids
from ringback.domain.ports import Transaction
from ringback.domain.signals import DUE
from ringback.domain.webhook import Webhook, due_at, hears
from ringback.notifier.body import Bodies
from ringback.notifier.handover import Handover, Lease

SUPERSEDING: Final = frozenset({EventName.CALL_PROGRESS, EventName.CALL_FINISHED})
"""What makes earlier progress of the same call worthless."""


class FanOut:
    def __init__(self, *, ids: Ids, bodies: Bodies, handover: Handover) -> None:
        self._ids = ids
        self._bodies = bodies
        self._handover = handover

    async def live(self, tx: Transaction, event: Event, call: Call | None, *, result: bytes | None) -> None:
        """Deliver what has just happened: at once where there is room, else when its turn comes."""
        candidates = await tx.webhooks.candidates(event)
        if event.call_id is not None and event.name in SUPERSEDING and any(map(_hears_progress, candidates)):
            await tx.deliveries.supersede(event.call_id)
        deliveries = [
            await self._delivery(tx, event, webhook, call, result, self._lease(tx, event, webhook, call))
            for webhook in candidates
            if hears(webhook, event, now=tx.now())
            if not webhook.holds() or await self._may_be_held(tx, event, webhook)
        ]
        await _insert(tx, deliveries)

    async def late(self, tx: Transaction, event: Event, webhook: Webhook, call: Call | None) -> None:
        """Deliver what happened before its webhook was there. It waits its turn: the registration is answered first."""
        if not (webhook.holds() and event.name is EventName.CALL_PROGRESS):
            await _insert(tx, [await self._delivery(tx, event, webhook, call, None, None)])

    async def _may_be_held(self, tx: Transaction, event: Event, webhook: Webhook) -> bool:
        """Progress is not worth keeping. Of the rest so much is kept, and what comes then is a gap."""
        if event.name is EventName.CALL_PROGRESS:
            return False
        if await tx.delivery_lanes.held(webhook.id, limit=health.HELD_MAX) < health.HELD_MAX:
            return True
        if webhook.missed_from is None:
            await tx.webhooks.update(health.missed(webhook, event.seq))
        return False

    def _lease(self, tx: Transaction, event: Event, webhook: Webhook, call: Call | None) -> Lease | None:
        waits = webhook.holds() or due_at(webhook, event, call, now=tx.now()) > tx.now()
        return None if waits else self._handover.lease(tx, webhook)

    async def _delivery(
        self,
        tx: Transaction,
        event: Event,
        webhook: Webhook,
        call: Call | None,
        result: bytes | None,
        lease: Lease | None,
    ) -> Delivery:
        lowest_open = await tx.deliveries.watermark(webhook.id)
        safe_seq = (event.seq if lowest_open is None else min(lowest_open, event.seq)) - 1
        kind = Kind.PROGRESS if event.name is EventName.CALL_PROGRESS else Kind.EVENT
        now = tx.now()
        delivery = Delivery(
            id=self._ids.delivery(),
            principal=event.principal,
            webhook_id=webhook.id,
            event_id=event.id,
            kind=kind,
            call_id=event.call_id,
            seq=event.seq,
            body=self._bodies.make(
                event, webhook, call=call, safe_seq=safe_seq, result=await _result(tx, event, webhook, result)
            ),
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


async def _result(tx: Transaction, event: Event, webhook: Webhook, result: bytes | None) -> bytes | None:
    if not webhook.include_result or event.name is not EventName.CALL_FINISHED or event.call_id is None:
        return None
    return await tx.calls.result(event.call_id) if result is None else result


async def _insert(tx: Transaction, deliveries: Sequence[Delivery]) -> None:
    if not deliveries:
        return
    await tx.deliveries.insert(deliveries)
    if any(delivery.state is DeliveryState.PENDING for delivery in deliveries):
        tx.ring(DUE)
