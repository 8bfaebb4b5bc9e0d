"""How a webhook hears what the log already holds, step by step (`domain.catch_up`).

Every method runs inside a transaction of its caller's.
"""

from dataclasses import replace

from ringback.domain import health
from ringback.domain.catch_up import CATCH_UP_TOPIC, CATCH_UP_DELIVERIES_MAX, STEP_EVENTS_MAX, CatchUp
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.fan_out import FanOut


class CatchUps:
    def __init__(self, fan_out: FanOut) -> None:
        self._fan_out = fan_out

    async def begin_catch_up(self, tx: Transaction, webhook: Webhook, *, after_seq: int) -> None:
        """Deliver the first of what lies after this place; a worker does the rest. The caller holds the lock of the log's head.

        Most webhooks have little to catch up with, and are done with it here.
        """
        catch_up = CatchUp(webhook_id=webhook.id, principal=webhook.principal, seq=after_seq)
        if webhook.call_id is None:  # else it begins at the log's beginning, and its call may be younger
            webhook = await _record_retention_loss(tx, catch_up, webhook)
        await self._run_step(tx, catch_up, webhook)

    async def continue_catch_up(self, tx: Transaction, catch_up: CatchUp) -> None:
        """Deliver the next of it; once it reaches the head of the log, the webhook hears events as they happen."""
        latest = await tx.catch_ups.get(catch_up.webhook_id)
        webhook = await tx.webhooks.get(catch_up.webhook_id)
        if latest is None or webhook is None:
            return  # its owner has disabled or removed it since
        await tx.event_log.get_head(webhook.principal, lock=True)
        await self._run_step(tx, latest, await _record_retention_loss(tx, latest, webhook))

    async def _run_step(self, tx: Transaction, catch_up: CatchUp, webhook: Webhook) -> None:
        where = EventFilter(call_id=webhook.call_id)
        events = await tx.events.list_after(webhook.principal, catch_up.seq, where, limit=STEP_EVENTS_MAX)
        step = await self._fan_out.deliver_catch_up(tx, webhook, events, deliveries_max=CATCH_UP_DELIVERIES_MAX - catch_up.delivered)
        if step.limit_reached_at is not None:
            await _record_loss(tx, webhook, step.limit_reached_at)
        elif step.events_visited < len(events) or len(events) == STEP_EVENTS_MAX:
            seq = events[step.events_visited - 1].seq
            await tx.catch_ups.save(replace(catch_up, seq=seq, delivered=catch_up.delivered + step.deliveries_created))
            tx.notify(CATCH_UP_TOPIC)
            return
        await tx.catch_ups.remove(webhook.id)


async def _record_retention_loss(tx: Transaction, catch_up: CatchUp, webhook: Webhook) -> Webhook:
    """The webhook, which has missed something if retention was faster."""
    retention_floor = await tx.event_log.get_retention_floor(webhook.principal)
    return await _record_loss(tx, webhook, catch_up.seq + 1) if retention_floor > catch_up.seq else webhook


async def _record_loss(tx: Transaction, webhook: Webhook, seq: int) -> Webhook:
    """The receiver will be told from where to poll."""
    latest = await tx.webhooks.get(webhook.id) or webhook  # the step may have noted a loss already
    updated = health.webhook_after_loss(latest, seq)
    await tx.webhooks.update(updated, WebhookPart.MISSED)
    return updated
