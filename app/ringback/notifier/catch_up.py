"""How a webhook hears what the log already holds, step by step (`domain.catch_up`).

Every method runs inside a transaction of its caller's.
"""

import asyncio
import logging
from dataclasses import replace
from typing import Final

from ringback.domain import webhook_health as health
from ringback.domain.catch_up import CATCH_UP_DELIVERIES_MAX, CATCH_UP_TOPIC, STEP_EVENTS_MAX, CatchUp
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Store, Transaction
from ringback.domain.webhook import Webhook
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.fan_out import FanOut
from ringback.waits import wait_first


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
        step = await self._fan_out.deliver_catch_up(
            tx, webhook, events, deliveries_max=CATCH_UP_DELIVERIES_MAX - catch_up.delivered
        )
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


# The worker that brings webhooks to the head of their logs, one bounded step in each transaction.

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
"""How long a missed ring, or a store that could not be written, delays a catch-up."""


class CatchUpWorker:
    """Makes one step after the other, in turns between principals; of one principal the oldest catch-up goes first.

    After each step it pauses for as long as the step took, so that a long past takes at most half of what the store can do.
    """

    name = "catch-up"

    def __init__(self, *, store: Store, catch_ups: CatchUps, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._catch_ups = catch_ups
        self._last_principal = ""
        """The principal whose turn it was."""

    async def run(self, stop: asyncio.Event) -> None:
        with self._store.signals.listen(CATCH_UP_TOPIC) as waiter:
            while not stop.is_set():
                began = self._clock.monotonic()
                try:
                    did_step = await self.run_once()
                except StoreUnavailable:
                    log.warning("catch_up.store_unavailable")
                    did_step = False
                if did_step:
                    await wait_first(stop.wait(), self._clock.sleep(self._clock.monotonic() - began))
                else:
                    await wait_first(waiter.wait(POLL_SECONDS), stop.wait())

    async def run_once(self) -> bool:
        """Make one step of the next principal's; False when no webhook catches up."""
        catch_up = await self._store.read(lambda tx: tx.catch_ups.find_next(after=self._last_principal))
        if catch_up is None:
            return False
        self._last_principal = catch_up.principal
        await self._store.write(lambda tx: self._catch_ups.continue_catch_up(tx, catch_up))
        return True
