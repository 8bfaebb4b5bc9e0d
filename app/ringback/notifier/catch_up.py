"""Catch-up: a webhook that starts at an old cursor gets the events of the log in bounded steps (`domain.catch_up`)."""

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import Final

from ringback.domain import webhook_health as health
from ringback.domain.catch_up import CATCH_UP_DELIVERIES_MAX, CATCH_UP_TOPIC, STEP_EVENTS_MAX, CatchUp
from ringback.domain.clock import Clock
from ringback.domain.errors import RowsLocked, StoreUnavailable
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.fan_out import FanOut
from ringback.waits import notify_when_set, wait_first


class CatchUps:
    """Every method runs inside the caller's transaction."""

    def __init__(self, fan_out: FanOut) -> None:
        self._fan_out = fan_out

    async def begin_catch_up(self, tx: Transaction, webhook: Webhook, *, after_seq: int) -> None:
        """Insert deliveries for the first events after `after_seq`; `CatchUpWorker` does the rest, if there is one.

        Most webhooks have few events to catch up with and need no worker. The caller holds the lock of the log's head.
        """
        catch_up = CatchUp(webhook_id=webhook.id, principal=webhook.principal, seq=after_seq)
        if webhook.call_id is None:  # a webhook for one call starts at the log's start, and its call may be younger
            catch_up, webhook = await _skip_removed_events(tx, catch_up, webhook)
        await self._run_step(tx, catch_up, webhook)

    async def continue_catch_up(self, tx: Transaction, catch_up: CatchUp) -> None:
        """Make the next step; at the head of the log, the catch-up ends and new events reach the webhook directly."""
        webhook = await tx.webhooks.get(catch_up.webhook_id)  # first: removing it removes its row here
        latest = await tx.catch_ups.get(catch_up.webhook_id)
        if latest is None or webhook is None:
            return  # the owner has removed the webhook
        await tx.event_log.get_head(webhook.principal, lock=True)
        latest, webhook = await _skip_removed_events(tx, latest, webhook)
        await self._run_step(tx, latest, _hold_if_disabled(tx, webhook))

    async def _run_step(self, tx: Transaction, catch_up: CatchUp, webhook: Webhook) -> None:
        where = EventFilter(call_id=webhook.call_id)
        events = await tx.events.list_page(webhook.principal, catch_up.seq, where, limit=STEP_EVENTS_MAX)
        step = await self._fan_out.deliver_catch_up(
            tx, webhook, events, deliveries_max=CATCH_UP_DELIVERIES_MAX - catch_up.delivered
        )
        if step.limit_reached_at is not None:
            await _record_loss(tx, webhook, step.limit_reached_at)
        elif step.events_visited < len(events) or events.next_position is not None:
            seq = events[step.events_visited - 1].seq if events else events.next_position or catch_up.seq
            await tx.catch_ups.save(replace(catch_up, seq=seq, delivered=catch_up.delivered + step.deliveries_created))
            tx.notify(CATCH_UP_TOPIC)
            return
        await tx.catch_ups.remove(webhook.id)


def _hold_if_disabled(tx: Transaction, webhook: Webhook) -> Webhook:
    """A disabled webhook catches up as one that is paused: with deliveries that are held until it is enabled."""
    if webhook.state is not WebhookState.DISABLED:
        return webhook
    return replace(webhook, state=WebhookState.ACTIVE, paused_at=webhook.paused_at or tx.now())


async def _skip_removed_events(tx: Transaction, catch_up: CatchUp, webhook: Webhook) -> tuple[CatchUp, Webhook]:
    """Both, from the first stored event on. The webhook has missed those that retention removed before they were reached."""
    retention_floor = await tx.event_log.get_retention_floor(webhook.principal)
    if retention_floor <= catch_up.seq:
        return catch_up, webhook
    return replace(catch_up, seq=retention_floor), await _record_loss(tx, webhook, catch_up.seq + 1)


async def _record_loss(tx: Transaction, webhook: Webhook, seq: int) -> Webhook:
    """Record the first missed event; the receiver gets a gap from it."""
    latest = await tx.webhooks.get(webhook.id) or webhook  # the step may have recorded a loss already
    updated = health.webhook_after_loss(latest, seq)
    await tx.webhooks.update(updated, WebhookPart.MISSED)
    return updated


log = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
"""The longest delay after a missed notification or an unavailable store."""
PAUSE_SECONDS_MAX: Final = 0.5
"""Between two steps. A step takes milliseconds, or waits for what another unit has locked."""
LOCKED_REST_SECONDS: Final = 60.0
"""How long a principal has no step after one that waited in vain for a locked row: each costs the others ten seconds."""

TURNS_MAX: Final = 10_000
"""Principals whose last webhook is remembered, some 2 MB. Beyond this, one begins again at its oldest catch-up."""


class CatchUpWorker:
    """Runs one step in each transaction, in turns between principals, and between the webhooks of each principal.

    New events may begin the catch-up of a webhook again that has just ended. If it came first each time, the others of its
    principal would get nothing.

    After each step it pauses for as long as the step took, so catch-ups use at most half of the store's capacity.
    """

    name = "catch-up"

    def __init__(self, *, store: Store, catch_ups: CatchUps, clock: Clock, poll_seconds: float = POLL_SECONDS) -> None:
        self._store = store
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._catch_ups = catch_ups
        self._last_principal = ""
        """The principal that had the last turn."""
        self._last_webhooks: dict[Principal, WebhookId] = {}
        """The webhook of each principal's last turn; of the principals whose turns were last."""
        self._rests_until: dict[Principal, float] = {}
        """Principals whose rows were locked, and until when they have no turn."""

    async def run(self, stop: asyncio.Event) -> None:
        with self._store.signals.listen(CATCH_UP_TOPIC) as waiter:
            async with notify_when_set(waiter, stop):
                while not stop.is_set():
                    began = self._clock.monotonic()
                    try:
                        did_step = await self.run_once()
                    except StoreUnavailable:
                        log.debug("catch_up.store_unavailable")
                        did_step = False
                    if did_step:
                        took_seconds = self._clock.monotonic() - began
                        await wait_first(stop.wait(), self._clock.sleep(min(took_seconds, PAUSE_SECONDS_MAX)))
                    else:
                        await waiter.wait(self._poll_seconds)

    async def run_once(self) -> bool:
        """Make one step for the next principal; False if no webhook catches up, or only those of principals that rest."""
        catch_up = await self._find_next()
        if catch_up is None:
            return False
        self._note_turn(catch_up)
        try:
            await self._store.write_for(catch_up.principal, lambda tx: self._catch_ups.continue_catch_up(tx, catch_up))
        except RowsLocked:
            log.debug("catch_up.rows_locked", extra={"principal": catch_up.principal})
            self._rests_until[catch_up.principal] = self._clock.monotonic() + LOCKED_REST_SECONDS
        return True

    def _note_turn(self, catch_up: CatchUp) -> None:
        self._last_principal = catch_up.principal
        self._last_webhooks.pop(catch_up.principal, None)
        self._last_webhooks[catch_up.principal] = catch_up.webhook_id  # the last that is dropped
        if len(self._last_webhooks) > TURNS_MAX:
            del self._last_webhooks[next(iter(self._last_webhooks))]

    async def _find_next(self) -> CatchUp | None:
        now = self._clock.monotonic()
        self._rests_until = {principal: until for principal, until in self._rests_until.items() if until > now}
        after = self._last_principal
        for _ in range(len(self._rests_until) + 1):
            catch_up = await self._store.read(partial(self._find_in_turn, after=after))
            if catch_up is None or catch_up.principal not in self._rests_until:
                return catch_up
            after = catch_up.principal
        return None

    async def _find_in_turn(self, tx: Transaction, *, after: str) -> CatchUp | None:
        """Of the principal after this one: the catch-up after its last one, or else its first."""
        first = await tx.catch_ups.find_next(after=after)
        if first is None or (last := self._last_webhooks.get(first.principal)) is None:
            return first
        return await tx.catch_ups.find_next_of(first.principal, after=last) or first
