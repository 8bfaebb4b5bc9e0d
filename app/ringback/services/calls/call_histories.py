"""Read the history of a call, and what a chart of a session shows of its calls."""

from collections.abc import Sequence
from typing import Any, Final

from ringback.domain.call import Call
from ringback.domain.call_histories import (
    HISTORY_ATTEMPTS_MAX,
    HISTORY_DELIVERIES_MAX,
    HISTORY_EVENTS_MAX,
    CallHistory,
    CallMarks,
    DeliveryHistory,
)
from ringback.domain.call_rows import CallFilter
from ringback.domain.cursor import Page
from ringback.domain.delivery import Attempt, Delivery
from ringback.domain.event import EventName, build_call_event
from ringback.domain.ids import EventId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.webhook import Webhook
from ringback.notifier.fan_out import find_matching_webhooks
from ringback.notifier.payload import choose_message_id
from ringback.services.calls.call_reads import get_own_call

MARKED_DELIVERIES_MAX: Final = 5
"""Of each call in a chart of a session."""


class CallHistories:
    def __init__(self, *, store: Store) -> None:
        self._store = store

    async def read_history(self, caller: Caller, call_id: str) -> CallHistory:
        """The caller's own call with its latest events, deliveries, attempts and resumes. Raises as `Calls.get_call`."""
        caller.require_scope(Scope.READ)
        return await self._store.scan(caller.principal, lambda tx: _read_history(tx, caller.principal, call_id))

    async def read_arguments(self, caller: Caller, call_id: str) -> dict[str, Any]:
        """The arguments of the caller's own call. Raises as `Calls.get_call`."""
        caller.require_scope(Scope.READ)

        async def read(tx: Transaction) -> dict[str, Any]:
            call = await get_own_call(tx, caller.principal, call_id)
            whole = await tx.calls.get_whole(call.id)
            return (None if whole is None else whole.arguments) or {}

        return await self._store.scan(caller.principal, read)

    async def list_marks(
        self, caller: Caller, client_session_id: str | None, *, position: str | None, limit: int
    ) -> Page[CallMarks, str]:
        """The calls of a client session, or of all (None), newest first, with their latest deliveries and their resumes."""
        caller.require_scope(Scope.READ)
        where = CallFilter(client_session_id=client_session_id)

        async def read(tx: Transaction) -> Page[CallMarks, str]:
            page = await tx.calls.list_page(caller.listed_principal, where, position=position, limit=limit)
            return Page(await read_marks(tx, list(page)), next_position=page.next_position)

        return await self._store.scan(caller.principal, read)


async def _read_history(tx: Transaction, principal: Principal, call_id: str) -> CallHistory:
    call = await get_own_call(tx, principal, call_id)
    rows = tx.call_histories
    events = await rows.list_events(call.id, limit=HISTORY_EVENTS_MAX + 1)
    deliveries = (await rows.list_deliveries([call.id], limit=HISTORY_DELIVERIES_MAX + 1)).get(call.id, ())
    return CallHistory(
        call=call,
        events=events[-HISTORY_EVENTS_MAX:],
        deliveries=await _read_deliveries(tx, deliveries[-HISTORY_DELIVERIES_MAX:]),
        resumes=await tx.call_resumes.list_of_calls([call.id]),
        awaiting_webhooks=() if call.is_final else await _find_awaiting(tx, call),
        is_truncated=len(events) > HISTORY_EVENTS_MAX or len(deliveries) > HISTORY_DELIVERIES_MAX,
    )


async def _find_awaiting(tx: Transaction, call: Call) -> Sequence[Webhook]:
    """The webhooks that the end of the call matches, as the response to its start names them; always in the same order."""
    end = build_call_event(EventName.CALL_FINISHED, call, event_id=EventId(""), seq=0, now=tx.now())
    return sorted(await find_matching_webhooks(tx, end), key=lambda webhook: webhook.id)


async def _read_deliveries(tx: Transaction, deliveries: Sequence[Delivery]) -> Sequence[DeliveryHistory]:
    if not deliveries:
        return ()
    ids = [delivery.id for delivery in deliveries]
    attempts = await tx.call_histories.list_attempts(ids, limit=HISTORY_ATTEMPTS_MAX)
    webhooks = {each.id: each for each in await tx.webhooks.get_many({each.webhook_id for each in deliveries})}
    return [
        _build_delivery(delivery, webhooks.get(delivery.webhook_id), attempts.get(delivery.id, ()))
        for delivery in deliveries
    ]


def _build_delivery(delivery: Delivery, webhook: Webhook | None, attempts: Sequence[Attempt]) -> DeliveryHistory:
    return DeliveryHistory(
        delivery=delivery,
        webhook=webhook,
        message_id=delivery.message_id if webhook is None else choose_message_id(delivery, webhook),
        attempts=attempts,
    )


async def read_marks(tx: Transaction, calls: Sequence[Call]) -> Sequence[CallMarks]:
    """Each of these calls with its latest deliveries and its resumes."""
    ids = [call.id for call in calls]
    deliveries = await tx.call_histories.list_deliveries(ids, limit=MARKED_DELIVERIES_MAX)
    resumes = await tx.call_resumes.list_of_calls(ids)
    return [
        CallMarks(
            call=call,
            deliveries=sorted(deliveries.get(call.id, ()), key=lambda each: (each.webhook_id, each.id)),
            resumes=[resume for resume in resumes if resume.call_id == call.id],
        )
        for call in calls
    ]
