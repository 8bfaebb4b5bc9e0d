"""The batches of an erasure: each is one transaction that removes a bounded number of rows.

call         its deliveries and those of its own webhooks ─▶ its events become stubs ─▶ its row becomes a tombstone
session      each of its calls ─▶ what the log still holds of its expired calls ─▶ the webhooks registered for it ─▶ its
             portal links
principal    its keys, MCP sessions, tokens and proven URLs ─▶ all deliveries ─▶ the log ─▶ all calls ─▶ all webhooks ─▶ the
             request hashes of its expired calls ─▶ its turns at upstreams and its breakers at origins
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ringback.domain.call import Call
from ringback.domain.call_completion import is_reported
from ringback.domain.call_outcome import CallOutcome, failed_completion
from ringback.domain.call_rows import REMOVED_BYTES_MAX, make_tombstone
from ringback.domain.erasure import ErasedDeliveryBatch, Erasure, ErasureKind, erase_event
from ringback.domain.event_rows import EventFilter
from ringback.domain.event_subscriptions import SubscriptionEnd, end_subscription
from ringback.domain.ids import CallId, WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.signals import API_KEYS_TOPIC, owner_erased_topic
from ringback.domain.webhook import SUBSCRIPTION_ID_PREFIX
from ringback.notifier.recorder import Recorder
from ringback.services.calls.cancellation import cancel_open_call

log = logging.getLogger(__name__)

ERASE_BATCH_SIZE: Final = 200
"""Rows of one kind that a transaction erases: about ten milliseconds of the only writer's time, as the janitor's batches."""
CANCEL_CALLS_MAX: Final = 50
"""Calls that one transaction cancels: each also writes its event and its deliveries."""
ERASE_CALLS_MAX: Final = 50
"""Calls, or webhooks, that one transaction erases: each has rows in several tables, a fifth of a millisecond together (measured
on SQLite, for a call with a result, an event and a delivery)."""
_UNREPORTABLE_COMPLETION: Final = failed_completion(
    CallOutcome.UNKNOWN,
    "The principal of this call is erased, so its server cannot report the end. The tool may have done its work.",
)

Step = Callable[[Transaction, Erasure, int], Awaitable[Erasure | None]]
"""Erases up to so many rows of one kind, and returns the erasure after it; None if nothing was left to erase."""


async def erase_batch(tx: Transaction, recorder: Recorder, erasure: Erasure, *, rows_max: int | None = None) -> Erasure:
    """Erase one batch, and return the erasure after it. None: `ERASE_BATCH_SIZE` rows of one kind at most."""
    rows = ERASE_BATCH_SIZE if rows_max is None else min(rows_max, ERASE_BATCH_SIZE)
    await tx.erased_deliveries.overwrite_deleted()
    after = replace(await _erase_rows(tx, recorder, erasure, rows), worked_at=tx.now())
    await tx.erasures.update(after)
    if after.finished_at is not None:
        tx.on_commit(partial(_log_finished, after))
    return after


async def _erase_rows(tx: Transaction, recorder: Recorder, erasure: Erasure, rows: int) -> Erasure:
    if erasure.kind is ErasureKind.PRINCIPAL and await erase_identity(tx, erasure, rows):
        return erasure  # its keys are first, so that they start no other calls
    if open_calls := await _list_open_calls(tx, erasure, limit=min(rows, CANCEL_CALLS_MAX)):
        return await _end_calls(tx, recorder, erasure, open_calls)
    return await _run_first_step(tx, replace(erasure, is_waiting=False), rows)


async def _list_open_calls(tx: Transaction, erasure: Erasure, *, limit: int) -> list[Call]:
    """Some of the calls that must end first."""
    if erasure.kind is ErasureKind.CALL:
        call = await tx.calls.get(CallId(erasure.target))
        return [] if call is None or call.is_final else [call]
    ids = await tx.erased_rows.list_open_calls(erasure, limit=limit)
    return [call for call in await tx.calls.get_many(ids) if not call.is_final] if ids else []


async def _end_calls(tx: Transaction, recorder: Recorder, erasure: Erasure, calls: list[Call]) -> Erasure:
    """Cancel the calls, and wait once nothing is left to cancel.

    Those that a reporter runs end at once with their principal: its key is gone, so it cannot report their end.
    """
    is_waiting = True
    for call in calls:
        if erasure.kind is ErasureKind.PRINCIPAL and is_reported(call):
            await recorder.finish_call(tx, call, _UNREPORTABLE_COMPLETION, lease_token=None)
            is_waiting = False
        elif erasure.cancels and not call.cancel_requested:
            await cancel_open_call(tx, recorder, call)
            is_waiting = False
    return replace(erasure, is_waiting=is_waiting)


async def _run_first_step(tx: Transaction, erasure: Erasure, rows: int) -> Erasure:
    """Run the first step that has something to do. Without one, the erasure is finished."""
    for step in _STEPS[erasure.kind]:
        after = await step(tx, erasure, rows)
        if after is not None:
            return after
    return replace(erasure, finished_at=tx.now())


# -- calls --


async def _erase_one_call(tx: Transaction, erasure: Erasure, rows: int) -> Erasure | None:
    after = await _erase_calls(
        tx, erasure, [CallId(erasure.target)], rows, after=0 if erasure.call_id is None else erasure.seq
    )
    return replace(after, finished_at=tx.now()) if after.calls > erasure.calls else after


async def _erase_session_calls(tx: Transaction, erasure: Erasure, rows: int) -> Erasure | None:
    return await _erase_next_calls(tx, erasure, rows, after=0)


async def _erase_remaining_calls(tx: Transaction, erasure: Erasure, rows: int) -> Erasure | None:
    """Erase calls whose events up to `head` are gone: what is left came later, such as the event of a cancellation."""
    return await _erase_next_calls(tx, erasure, rows, after=erasure.head)


async def _erase_next_calls(tx: Transaction, erasure: Erasure, rows: int, *, after: int) -> Erasure | None:
    """Erase some calls, with their events after the place `after` of the log."""
    if erasure.call_id is not None:
        return await _erase_calls(tx, erasure, [erasure.call_id], rows, after=erasure.seq)
    ids = await tx.erased_rows.list_calls(erasure, limit=min(rows, ERASE_CALLS_MAX), bytes_max=REMOVED_BYTES_MAX)
    return await _erase_calls(tx, erasure, ids, rows, after=after) if ids else None


async def _erase_calls(tx: Transaction, erasure: Erasure, ids: Sequence[CallId], rows: int, *, after: int) -> Erasure:
    """One batch of these calls: deliveries until none is left, then events, and then the calls whose events are erased.

    If their events are too many for a batch, the next batches go on with the first call that has some left, as `call_id`.
    """
    calls = await tx.calls.get_many(ids)
    own = await tx.erased_rows.list_call_webhooks(erasure.principal, ids, limit=rows)
    if own:
        await tx.webhooks.get_many(own, lock=True)
    await _lock_log(tx, erasure)
    erased = await _delete_deliveries(tx, ids, own, limit=rows)
    erasure = replace(erasure, deliveries=erasure.deliveries + erased.count)
    if not erased.is_done:
        return erasure
    events = await tx.erased_rows.list_events(erasure.principal, ids, seq=after, limit=rows)
    await tx.erased_deliveries.replace_events([erase_event(event) for event in events])
    erasure = replace(erasure, events=erasure.events + len(events), call_id=None, seq=0)
    if len(events) == rows and (last := events[-1]).call_id is not None:
        ids = ids[: ids.index(last.call_id)]
        erasure = replace(erasure, call_id=last.call_id, seq=last.seq)
    await _delete_calls_and_webhooks(tx, ids, calls, own)
    return replace(erasure, calls=erasure.calls + len(ids), webhooks=erasure.webhooks + len(own))


async def _delete_deliveries(
    tx: Transaction, call_ids: Sequence[CallId], own_webhooks: Sequence[WebhookId], *, limit: int
) -> ErasedDeliveryBatch:
    erased = await tx.erased_deliveries.delete_of_calls(call_ids, limit=limit)
    if not own_webhooks:
        return erased
    more = await tx.erased_deliveries.delete_of_webhooks(own_webhooks, limit=limit - erased.count)
    return ErasedDeliveryBatch(erased.count + more.count, is_done=erased.is_done and more.is_done)


async def _delete_calls_and_webhooks(
    tx: Transaction, ids: Sequence[CallId], calls: Sequence[Call], own_webhooks: Sequence[WebhookId]
) -> None:
    for webhook_id in own_webhooks:
        await tx.webhooks.delete(webhook_id)
    tombstones = [make_tombstone(call, expired_at=tx.now(), erased=True) for call in calls if call.id in ids]
    if tombstones:
        await tx.tombstones.archive(*tombstones)
    await tx.tombstones.mark_erased(*(set(ids) - {tombstone.call_id for tombstone in tombstones}))  # have expired


async def _lock_log(tx: Transaction, erasure: Erasure) -> None:
    """Until the unit ends, no event, catch-up or replay inserts a delivery of what the unit erases."""
    await tx.event_log.get_head(erasure.principal, lock=True)


# -- a session --


async def _erase_session_events(tx: Transaction, erasure: Erasure, rows: int) -> Erasure | None:
    """Erase what the log and the deliveries hold of the session's calls that have expired already."""
    if erasure.seq >= erasure.head:
        return None
    await _lock_log(tx, erasure)
    where = EventFilter(client_session_id=erasure.client_session_id)
    page = await tx.events.list_page(erasure.principal, erasure.seq, where, limit=rows)
    events = [event for event in page if event.seq <= erasure.head]  # newer ones are of calls that stay
    call_ids = sorted({event.call_id for event in events if event.call_id is not None})
    erased = await tx.erased_deliveries.delete_of_calls(call_ids, limit=rows)
    if not erased.is_done:  # the next batch reads this page again
        return replace(erasure, deliveries=erasure.deliveries + erased.count)
    await tx.tombstones.mark_erased(*call_ids)
    deleted = erased.count
    for event_id in [event.id for event in events if event.occurred_at is not None]:
        erased = await tx.erased_deliveries.delete_of_event(erasure.principal, event_id, limit=rows - deleted)
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


async def erase_session_links(tx: Transaction, erasure: Erasure, rows: int | None = None) -> Erasure | None:
    deleted = await tx.portal_links.delete_of_session(
        erasure.principal, erasure.target, until=erasure.requested_at, limit=rows or ERASE_BATCH_SIZE
    )
    return erasure if deleted else None


async def _erase_webhooks(tx: Transaction, erasure: Erasure, rows: int) -> Erasure | None:
    """Erase the first webhooks of the session or the principal that are left."""
    ids = await tx.erased_rows.list_webhooks(erasure, limit=min(rows, ERASE_CALLS_MAX))
    if not ids:
        return None
    await tx.webhooks.get_many(ids, lock=True)
    await _lock_log(tx, erasure)
    erased = await tx.erased_deliveries.delete_of_webhooks(ids, limit=rows)
    after = replace(erasure, deliveries=erasure.deliveries + erased.count)
    if not erased.is_done:
        return after
    for webhook_id in ids:
        await _delete_webhook(tx, webhook_id)
    return replace(after, webhooks=after.webhooks + len(ids))


async def _delete_webhook(tx: Transaction, webhook_id: WebhookId) -> None:
    subscription = await tx.subscriptions.get(webhook_id) if webhook_id.startswith(SUBSCRIPTION_ID_PREFIX) else None
    if subscription is not None:  # otherwise the trigger's tombstone says that it expired
        await tx.subscriptions.save(end_subscription(subscription, SubscriptionEnd.REMOVED, now=tx.now()))
    await tx.webhooks.delete(webhook_id)


# -- a principal --


async def _erase_deliveries(tx: Transaction, erasure: Erasure, rows: int) -> Erasure | None:
    """Erase deliveries without the lock of the log: later steps lock calls and webhooks first.

    What is inserted meanwhile is deleted with its call or with its webhook.
    """
    erased = await tx.erased_deliveries.delete_of_principal(erasure, limit=rows)
    if erased.is_done and not erased.count:
        return None
    return replace(erasure, deliveries=erasure.deliveries + erased.count)


async def _erase_log(tx: Transaction, erasure: Erasure, rows: int) -> Erasure | None:
    deleted = await tx.erased_deliveries.delete_events(erasure, limit=rows)
    return replace(erasure, events=erasure.events + deleted) if deleted else None


async def _erase_request_hashes(tx: Transaction, erasure: Erasure, _rows: int) -> Erasure | None:
    """Erase what tombstones hold of calls that had expired before: a hash says whether a call had certain arguments."""
    position = await tx.tombstones.mark_expired_erased(
        erasure.principal, position=erasure.seq, until=erasure.requested_at
    )
    return None if position is None else replace(erasure, seq=position)


async def _erase_remainder(tx: Transaction, erasure: Erasure, rows: int) -> Erasure | None:
    """Erase where else the principal is named: which upstreams served it, and which origins it failed to reach."""
    return erasure if await tx.erased_rows.delete_remainder(erasure.principal, limit=rows) else None


async def erase_identity(tx: Transaction, erasure: Erasure, rows: int | None = None) -> bool:
    """Erase a batch of the principal's keys, MCP sessions, event types, proven URLs, hourly counts and logins to upstreams.

    Their tokens are erased too. Return whether there were any.
    """
    if await tx.erased_deliveries.delete_identity(erasure, limit=rows or ERASE_BATCH_SIZE) == 0:
        return False
    tx.notify(owner_erased_topic(erasure.principal), API_KEYS_TOPIC)
    return True


_STEPS: Final[dict[ErasureKind, tuple[Step, ...]]] = {
    ErasureKind.CALL: (_erase_one_call,),
    ErasureKind.SESSION: (_erase_session_calls, _erase_session_events, _erase_webhooks, erase_session_links),
    ErasureKind.PRINCIPAL: (
        _erase_deliveries,
        _erase_log,
        _erase_remaining_calls,
        _erase_webhooks,
        _erase_request_hashes,
        _erase_remainder,
    ),
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
