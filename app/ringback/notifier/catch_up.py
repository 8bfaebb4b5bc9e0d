"""How a webhook hears what the log already holds, step by step (`domain.catch_up`).

Every method runs inside a transaction of its caller's.
"""

from dataclasses import replace

from ringback.domain import health
from ringback.domain.catch_up import CATCH_UPS, DELIVERIES_MAX, STEP_EVENTS, CatchUp
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.fan_out import FanOut


class CatchUps:
    def __init__(self, fan_out: FanOut) -> None:
        self._fan_out = fan_out

    async def begin(self, tx: Transaction, webhook: Webhook, *, after_seq: int) -> None:
        """Deliver the first of what lies after this place; a worker does the rest. The caller holds the lock of the log's head.

        Most webhooks have little to catch up with, and are done with it here.
        """
        catch_up = CatchUp(webhook_id=webhook.id, principal=webhook.principal, seq=after_seq)
        if webhook.call_id is None:  # else it begins at the log's beginning, and its call may be younger
            webhook = await _note_removed(tx, catch_up, webhook)
        await self._step(tx, catch_up, webhook)

    async def go_on(self, tx: Transaction, catch_up: CatchUp) -> None:
        """Deliver the next of it; once it reaches the head of the log, the webhook hears events as they happen."""
        latest = await tx.catch_ups.get(catch_up.webhook_id)
        webhook = await tx.webhooks.get(catch_up.webhook_id)
        if latest is None or webhook is None:
            return  # its owner has disabled or removed it since
        await tx.event_places.head(webhook.principal, lock=True)
        await self._step(tx, latest, await _note_removed(tx, latest, webhook))

    async def _step(self, tx: Transaction, catch_up: CatchUp, webhook: Webhook) -> None:
        where = EventFilter(call_id=webhook.call_id)
        events = await tx.events.after(webhook.principal, catch_up.seq, where, limit=STEP_EVENTS)
        late = await self._fan_out.late(tx, webhook, events, deliveries_max=DELIVERIES_MAX - catch_up.delivered)
        if late.too_many is not None:
            await _miss(tx, webhook, late.too_many)
        elif late.visited < len(events) or len(events) == STEP_EVENTS:
            seq = events[late.visited - 1].seq
            await tx.catch_ups.put(replace(catch_up, seq=seq, delivered=catch_up.delivered + late.delivered))
            tx.ring(CATCH_UPS)
            return
        await tx.catch_ups.end(webhook.id)


async def _note_removed(tx: Transaction, catch_up: CatchUp, webhook: Webhook) -> Webhook:
    """The webhook, which has missed something if retention was faster."""
    horizon = await tx.event_places.horizon(webhook.principal)
    return await _miss(tx, webhook, catch_up.seq + 1) if horizon > catch_up.seq else webhook


async def _miss(tx: Transaction, webhook: Webhook, seq: int) -> Webhook:
    """The receiver will be told from where to poll."""
    latest = await tx.webhooks.get(webhook.id) or webhook  # the step may have noted a loss already
    missing = health.missed(latest, seq)
    await tx.webhooks.update(missing, WebhookPart.MISSED)
    return missing
