"""The batches of an erasure: each is one transaction that removes a bounded number of rows.

call         its deliveries and those of its own webhooks ─▶ its events become stubs ─▶ its row becomes a tombstone
session      each of its calls ─▶ what the log still holds of its expired calls ─▶ the webhooks registered for it ─▶ its
             portal links
principal    its keys, MCP sessions, tokens and proven URLs ─▶ all deliveries ─▶ the log ─▶ all calls ─▶ all webhooks
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ringback.domain.call import Call
from ringback.domain.call_rows import Tombstone
from ringback.domain.erasure import ErasedDeliveryBatch, Erasure, ErasureKind, erase_event
from ringback.domain.event_rows import EventFilter
from ringback.domain.event_subscriptions import SubscriptionEnd, end_subscription
from ringback.domain.ids import CallId, WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.signals import owner_erased_topic
from ringback.notifier.recorder import Recorder
from ringback.services.cancellation import cancel_open_call

log = logging.getLogger(__name__)

ERASE_BATCH_SIZE: Final = 200
"""Rows of one kind that a transaction erases: about ten milliseconds of the only writer's time, as the janitor's batches."""
ERASE_CALLS_MAX: Final = 50
"""Calls that one transaction cancels or archives: each has rows in several tables."""

Step = Callable[[Transaction, Erasure], Awaitable[Erasure | None]]
"""Erases one batch and returns the erasure after it; None if nothing was left to erase."""


async def erase_batch(tx: Transaction, recorder: Recorder, erasure: Erasure) -> Erasure:
    """Erase one batch, and return the erasure after it."""
    await tx.erased_deliveries.overwrite_deleted()
    after = replace(await _erase_rows(tx, recorder, erasure), worked_at=tx.now())
    await tx.erasures.update(after)
    if after.finished_at is not None:
        tx.on_commit(partial(_log_finished, after))
    return after


async def _erase_rows(tx: Transaction, recorder: Recorder, erasure: Erasure) -> Erasure:
    if erasure.kind is ErasureKind.PRINCIPAL and await erase_identity(tx, erasure):
        return erasure  # its keys are first, so that they start no other calls
    if open_calls := await _list_open_calls(tx, erasure):
        return await _wait_for_calls(tx, recorder, erasure, open_calls)
    return await _run_first_step(tx, replace(erasure, is_waiting=False))


async def _list_open_calls(tx: Transaction, erasure: Erasure) -> list[Call]:
    """Some of the calls that must end first."""
    if erasure.kind is ErasureKind.CALL:
        call = await tx.calls.get(CallId(erasure.target))
        return [] if call is None or call.is_final else [call]
    ids = await tx.erased_rows.list_open_calls(erasure, limit=ERASE_CALLS_MAX)
    return [call for call in await tx.calls.get_many(ids) if not call.is_final] if ids else []


async def _wait_for_calls(tx: Transaction, recorder: Recorder, erasure: Erasure, calls: list[Call]) -> Erasure:
    for call in calls:
        if erasure.cancels and not call.cancel_requested:
            await cancel_open_call(tx, recorder, call)
    return replace(erasure, is_waiting=True)


async def _run_first_step(tx: Transaction, erasure: Erasure) -> Erasure:
    """Run the first step that has something to do. Without one, the erasure is finished."""
    for step in _STEPS[erasure.kind]:
        after = await step(tx, erasure)
        if after is not None:
            return after
    return replace(erasure, finished_at=tx.now())


# -- one call --


async def _erase_one_call(tx: Transaction, erasure: Erasure) -> Erasure | None:
    after = await _erase_call_rows(tx, erasure, CallId(erasure.target))
    return replace(after, finished_at=tx.now()) if after.call_id is None else after


async def _erase_call_rows(tx: Transaction, erasure: Erasure, call_id: CallId) -> Erasure:
    """One batch of a call. `call_id` of the returned erasure is None once the call is erased."""
    call = await tx.calls.get(call_id)
    own = await tx.erased_rows.list_call_webhooks(erasure.principal, call_id, limit=ERASE_BATCH_SIZE)
    await tx.webhooks.get_many(own, lock=True)
    await _lock_log(tx, erasure)
    erased = await _erase_deliveries_of_call(tx, call_id, own)
    after = replace(erasure, call_id=call_id, deliveries=erasure.deliveries + erased.count)
    if not erased.is_done:
        return after
    seq = erasure.seq if erasure.call_id == call_id else 0
    events = await tx.events.list_after(erasure.principal, seq, EventFilter(call_id=call_id), limit=ERASE_BATCH_SIZE)
    await tx.erased_deliveries.replace_events([erase_event(event) for event in events])
    after = replace(after, events=after.events + len(events))
    if len(events) == ERASE_BATCH_SIZE:
        return replace(after, seq=events[-1].seq)
    for webhook_id in own:
        await tx.webhooks.delete(webhook_id)
    await (tx.tombstones.mark_erased(call_id) if call is None else _bury_call(tx, call))
    return replace(after, call_id=None, seq=0, calls=after.calls + 1, webhooks=after.webhooks + len(own))


async def _erase_deliveries_of_call(
    tx: Transaction, call_id: CallId, own_webhooks: Sequence[WebhookId]
) -> ErasedDeliveryBatch:
    erased = await tx.erased_deliveries.delete_of_call(call_id, limit=ERASE_BATCH_SIZE)
    for webhook_id in own_webhooks:
        more = await tx.erased_deliveries.delete_of_webhook(webhook_id, limit=ERASE_BATCH_SIZE - erased.count)
        erased = ErasedDeliveryBatch(erased.count + more.count, is_done=erased.is_done and more.is_done)
    return erased


async def _lock_log(tx: Transaction, erasure: Erasure) -> None:
    """Until the unit ends, no event, catch-up or replay inserts a delivery of what the unit erases."""
    await tx.event_log.get_head(erasure.principal, lock=True)


async def _bury_call(tx: Transaction, call: Call) -> None:
    await tx.tombstones.archive(
        Tombstone(
            call_id=call.id,
            principal=call.principal,
            idempotency_key=call.idempotency_key,
            request_hash="",
            expired_at=tx.now(),
            erased=True,
        )
    )


# -- a session --


async def _erase_session_call(tx: Transaction, erasure: Erasure) -> Erasure | None:
    if erasure.call_id is not None:
        return await _erase_call_rows(tx, erasure, erasure.call_id)
    calls = await tx.erased_rows.list_calls(erasure, limit=1)
    return await _erase_call_rows(tx, replace(erasure, seq=0), calls[0]) if calls else None


async def _erase_session_events(tx: Transaction, erasure: Erasure) -> Erasure | None:
    """Erase what the log and the deliveries hold of the session's calls that have expired already."""
    if erasure.seq >= erasure.head:
        return None
    await _lock_log(tx, erasure)
    where = EventFilter(client_session_id=erasure.client_session_id)
    page = await tx.events.list_page(erasure.principal, erasure.seq, where, limit=ERASE_BATCH_SIZE)
    events = [event for event in page if event.seq <= erasure.head]  # newer ones are of calls that stay
    deleted = 0
    for call_id in sorted({event.call_id for event in events if event.call_id is not None}):
        erased = await tx.erased_deliveries.delete_of_call(call_id, limit=ERASE_BATCH_SIZE - deleted)
        deleted += erased.count
        if not erased.is_done:  # the next batch reads this page again
            return replace(erasure, deliveries=erasure.deliveries + deleted)
        await tx.tombstones.mark_erased(call_id)
    for event_id in [event.id for event in events if event.occurred_at is not None]:
        erased = await tx.erased_deliveries.delete_of_event(
            erasure.principal, event_id, limit=ERASE_BATCH_SIZE - deleted
        )
        deleted += erased.count
        if not erased.is_done:
            return replace(erasure, deliveries=erasure.deliveries + deleted)
    await tx.erased_deliveries.replace_events([erase_event(event) for event in events])
    return replace(
        erasure,
        deliveries=erasure.deliveries + deleted,
        events=erasure.events + len(events),
        seq=erasure.head if page.next_position is None else page.next_position,
    )


async def erase_session_links(tx: Transaction, erasure: Erasure) -> Erasure | None:
    """Erase a batch of the portal links to the session."""
    deleted = await tx.portal_links.delete_of_session(
        erasure.principal, erasure.target, until=erasure.requested_at, limit=ERASE_BATCH_SIZE
    )
    return erasure if deleted else None


async def _erase_webhooks(tx: Transaction, erasure: Erasure) -> Erasure | None:
    """Erase the first webhook of the session or the principal that is left."""
    found = await tx.erased_rows.list_webhooks(erasure, limit=1)
    if not found:
        return None
    (webhook_id,) = found
    await tx.webhooks.get(webhook_id)
    await _lock_log(tx, erasure)
    erased = await tx.erased_deliveries.delete_of_webhook(webhook_id, limit=ERASE_BATCH_SIZE)
    after = replace(erasure, deliveries=erasure.deliveries + erased.count)
    if not erased.is_done:
        return after
    subscription = await tx.subscriptions.get(webhook_id)
    if subscription is not None:  # otherwise the trigger's tombstone says that it expired
        await tx.subscriptions.save(end_subscription(subscription, SubscriptionEnd.REMOVED, now=tx.now()))
    await tx.webhooks.delete(webhook_id)
    return replace(after, webhooks=after.webhooks + 1)


# -- a principal --


async def _erase_deliveries(tx: Transaction, erasure: Erasure) -> Erasure | None:
    """Erase deliveries without the lock of the log: later steps lock calls and webhooks first.

    What is inserted meanwhile is deleted with its call or with its webhook.
    """
    erased = await tx.erased_deliveries.delete_of_principal(erasure, limit=ERASE_BATCH_SIZE)
    if erased.is_done and not erased.count:
        return None
    return replace(erasure, deliveries=erasure.deliveries + erased.count)


async def _erase_log(tx: Transaction, erasure: Erasure) -> Erasure | None:
    deleted = await tx.erased_deliveries.delete_events(erasure, limit=ERASE_BATCH_SIZE)
    return replace(erasure, events=erasure.events + deleted) if deleted else None


async def _bury_calls(tx: Transaction, erasure: Erasure) -> Erasure | None:
    """Erase some calls. One that has too many rows for a batch goes on in the next batches as the erasure's `call_id`."""
    if erasure.call_id is not None:
        return await _erase_call_rows(tx, erasure, erasure.call_id)
    ids = await tx.erased_rows.list_calls(erasure, limit=ERASE_CALLS_MAX)
    if not ids:
        return None
    calls = await tx.calls.get_many(ids)
    await _lock_log(tx, erasure)
    after = erasure
    for call in calls:
        erased = (after.deliveries - erasure.deliveries) + (after.events - erasure.events)
        after = await _bury_call_with_late_rows(tx, after, call, limit=ERASE_BATCH_SIZE - erased)
        if after.call_id is not None:
            break
    return after


async def _bury_call_with_late_rows(tx: Transaction, erasure: Erasure, call: Call, *, limit: int) -> Erasure:
    """Erase a call with what it got after the request, such as the event of its cancellation."""
    erased = await tx.erased_deliveries.delete_of_call(call.id, limit=limit)
    after = replace(erasure, deliveries=erasure.deliveries + erased.count)
    left = limit - erased.count
    events = await tx.events.list_after(erasure.principal, erasure.head, EventFilter(call_id=call.id), limit=left + 1)
    if not erased.is_done or len(events) > left:
        return replace(after, call_id=call.id, seq=erasure.head)
    await tx.erased_deliveries.replace_events([erase_event(event) for event in events])
    await _bury_call(tx, call)
    return replace(after, events=after.events + len(events), calls=after.calls + 1)


async def erase_identity(tx: Transaction, erasure: Erasure) -> bool:
    """Erase a batch of the principal's keys, MCP sessions, event types, proven URLs, hourly counts and logins to upstreams.

    Their tokens are erased too. Return whether there were any.
    """
    if await tx.erased_deliveries.delete_identity(erasure, limit=ERASE_BATCH_SIZE) == 0:
        return False
    tx.notify(owner_erased_topic(erasure.principal))
    return True


_STEPS: Final[dict[ErasureKind, tuple[Step, ...]]] = {
    ErasureKind.CALL: (_erase_one_call,),
    ErasureKind.SESSION: (_erase_session_call, _erase_session_events, _erase_webhooks, erase_session_links),
    ErasureKind.PRINCIPAL: (_erase_deliveries, _erase_log, _bury_calls, _erase_webhooks),
}


def _log_finished(erasure: Erasure) -> None:
    log.info(
        "erasure.finished",
        extra={
            "erasure_id": erasure.id,
            "kind": str(erasure.kind),
            "principal": erasure.principal,
            "calls": erasure.calls,
            "deliveries": erasure.deliveries,
            "events": erasure.events,
            "webhooks": erasure.webhooks,
        },
    )
