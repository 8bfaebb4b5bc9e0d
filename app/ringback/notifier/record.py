"""Writing down what happened to a call: the call, its events and their deliveries, in the caller's one transaction."""

from collections.abc import Sequence
from dataclasses import replace

from ringback.domain import call as calls
from ringback.domain.call import Call, Ending, Progress
from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.event import Event, EventName, event_of
from ringback.domain.ids import CallId, Ids
from ringback.domain.ports import DUE, EventFilter, Transaction, appended, changed
from ringback.domain.retry import LADDERS
from ringback.domain.webhook import Webhook, hears
from ringback.notifier.body import Bodies

_PAGE = 500
"""Events read at a time while a new webhook catches up."""


class Recorder:
    """Whoever changes a call does it through here. Every method runs inside a transaction of its caller's."""

    def __init__(self, *, ids: Ids, bodies: Bodies, result_retention_seconds: float) -> None:
        self._ids = ids
        self._bodies = bodies
        self._result_retention_seconds = result_retention_seconds

    async def finish(self, tx: Transaction, call: Call, ending: Ending, *, lease_token: str | None) -> Call | None:
        """End the call and tell everybody. None when somebody else changed or took it first: then nothing is written.

        The call's row is locked before the log's head, always in this order.
        """
        ended = calls.finish(call, ending, now=tx.now(), result_retention_seconds=self._result_retention_seconds)
        if not await tx.calls.update(ended, expected=call.status, lease_token=lease_token):
            return None
        if ending.result is not None:
            await tx.calls.put_result(call.id, ending.result)
        await self._append(tx, EventName.CALL_FINISHED, ended, result=ending.result)
        return ended

    async def progress(self, tx: Transaction, call: Call, progress: Progress, *, lease_token: str) -> bool:
        """Store the last progress and tell whoever listens to it. False when the lease is lost."""
        if not await tx.calls.save_progress(call.id, progress, now=tx.now(), lease_token=lease_token):
            return False
        await self._append(tx, EventName.CALL_PROGRESS, replace(call, progress=progress), result=None)
        return True

    async def catch_up(self, tx: Transaction, webhook: Webhook, *, after_seq: int, events_max: int) -> int | None:
        """Deliver what the log already holds for a webhook that was just registered; how many, or None if too many.

        The caller holds the lock of the log's head, so every later event will find the webhook by itself.
        """
        where = EventFilter(call_id=webhook.call_id)
        found = 0
        while page := await tx.events.after(webhook.principal, after_seq, where, limit=_PAGE):
            for event in page:
                if hears(webhook, event, now=tx.now()):
                    await self._deliver(tx, event, [webhook], await tx.calls.get(event.call_id), result=None)
                    found += 1
            after_seq = page[-1].seq
            if found > events_max:
                return None
        return found

    async def _append(self, tx: Transaction, name: EventName, call: Call, *, result: bytes | None) -> None:
        seq = await tx.events.reserve(call.principal, 1)
        event = event_of(name, call, event_id=self._ids.event(), seq=seq, now=tx.now())
        await tx.events.insert(event)
        listening = await listeners(tx, event)
        await self._deliver(tx, event, listening, call, result=result)
        tx.ring(changed(call.id), appended(call.principal))

    async def _deliver(
        self, tx: Transaction, event: Event, webhooks: Sequence[Webhook], call: Call | None, *, result: bytes | None
    ) -> None:
        if not webhooks:
            return
        await tx.deliveries.insert([await self._delivery(tx, event, webhook, call, result) for webhook in webhooks])
        tx.ring(DUE)

    async def _delivery(
        self, tx: Transaction, event: Event, webhook: Webhook, call: Call | None, result: bytes | None
    ) -> Delivery:
        lowest_open = await tx.deliveries.watermark(webhook.id)
        safe_seq = (event.seq if lowest_open is None else min(lowest_open, event.seq)) - 1
        if webhook.include_result and result is None and event.name is EventName.CALL_FINISHED:
            result = await tx.calls.result(CallId(event.call_id))
        now = tx.now()
        return Delivery(
            id=self._ids.delivery(),
            principal=event.principal,
            webhook_id=webhook.id,
            event_id=event.id,
            call_id=event.call_id,
            seq=event.seq,
            body=self._bodies.make(
                event, webhook, call=call, safe_seq=safe_seq, result=result if webhook.include_result else None
            ),
            state=DeliveryState.HELD if webhook.holds() else DeliveryState.PENDING,
            due_at=now,
            give_up_at=now + seconds(LADDERS[webhook.retries].give_up_seconds),
            created_at=now,
        )


async def listeners(tx: Transaction, event: Event) -> list[Webhook]:
    """The webhooks that hear this event: the store proposes, the domain decides."""
    return [webhook for webhook in await tx.webhooks.candidates(event) if hears(webhook, event, now=tx.now())]
