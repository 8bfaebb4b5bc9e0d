"""Cancels calls: one in its transaction, or the open calls that match a filter, in batches.

A call that was not dispatched, or for which the upstream holds no state, ends at once. So does a call that waits for a login,
without which the upstream accepts no cancellation. For a running call the upstream gets a cancellation, and the upstream's
response decides how the call ends.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ringback.domain.call import Call, CallStatus
from ringback.domain.call_outcome import CANCELLED_COMPLETION
from ringback.domain.call_rows import CallChange, CallFilter
from ringback.domain.cursor import Page
from ringback.domain.errors import InvalidRequest
from ringback.domain.ids import CallId
from ringback.domain.login_waits import ends_when_cancelled
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.signals import call_cancel_topic, call_changed_topic
from ringback.notifier.call_ends import CompletionRequest
from ringback.notifier.recorder import Recorder
from ringback.services.audit import record_own_change
from ringback.services.limits.pacing import BatchPace
from ringback.services.limits.quotas import QuotaEnforcer

CANCELLATIONS_MAX: Final = 1_000
"""Calls of one request. Each that ends at once writes its event and its deliveries: some 300 µs of the one writer's time."""
CANCELLED_CALLS_BATCH_SIZE: Final = 50
"""Calls in one transaction, as many as the janitor finishes in one."""
SPARSE_PAGES_MAX: Final = 100
"""Pages of one request that are not full: half a million rows are visited. Full pages do not count: their calls are open, so
the quota of open calls limits them, and all of them may have been cancelled before."""
OPEN_STATUSES: Final = (CallStatus.WORKING, CallStatus.INPUT_REQUIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkCancellation:
    cancelled: int
    """Calls that ended at once: their upstream has no state of them."""
    requested: int
    """Calls whose upstream gets a cancellation. Its response decides how they end."""
    has_more: bool
    """Whether the request reached its limit. A repeated request continues."""


class BulkCancellations:
    def __init__(self, *, store: Store, recorder: Recorder, quotas: QuotaEnforcer) -> None:
        self._store = store
        self._recorder = recorder
        self._quotas = quotas

    async def cancel_calls(self, caller: Caller, where: CallFilter, *, dry_run: bool) -> BulkCancellation:
        """Cancel at most `CANCELLATIONS_MAX` open calls of the caller, newest first. With `dry_run`, only count them.

        Calls whose cancellation was requested before, and calls of upstreams that the key may not use, are left out. Raises
        `QuotaExceeded` while another bulk request of the principal runs on this node.
        """
        caller.require_scope(Scope.CALLS)
        if where == CallFilter():
            raise InvalidRequest(
                "Send at least one filter: client_session_id, correlation_id, upstream, tool or status. Nothing was cancelled."
            )
        if where.status not in {None, *OPEN_STATUSES}:
            raise InvalidRequest("status: only calls that are working or input_required can be cancelled.")
        counts: Counter[bool] = Counter()
        has_more, pace = False, self._quotas.pace_batches()
        with self._quotas.open_bulk_request(caller.principal):
            for status in OPEN_STATUSES if where.status is None else (where.status,):
                where = replace(where, status=status)
                has_more |= await self._cancel_status(caller, where, counts, pace, dry_run=dry_run)
        return BulkCancellation(cancelled=counts[True], requested=counts[False], has_more=has_more)

    async def _cancel_status(
        self, caller: Caller, where: CallFilter, counts: Counter[bool], pace: BatchPace, *, dry_run: bool
    ) -> bool:
        """Count the calls by whether they ended at once. Return whether more are left."""
        position: str | None = None
        sparse_pages = 0
        while sparse_pages < SPARSE_PAGES_MAX:
            limit = min(CANCELLED_CALLS_BATCH_SIZE, CANCELLATIONS_MAX - counts.total())
            if limit <= 0:
                return True
            async with pace.next_batch():
                page = await self._find_open_calls(caller, where, position=position, limit=limit)
                counts.update(await self._cancel_page(caller, page, is_first=not counts.total(), dry_run=dry_run))
            position = page.next_position
            if position is None:
                return False
            sparse_pages += len(page) < limit
        return True

    async def _find_open_calls(
        self, caller: Caller, where: CallFilter, *, position: str | None, limit: int
    ) -> Page[Call, str]:
        return await self._store.scan(
            caller.principal, lambda tx: tx.calls.list_page(caller.principal, where, position=position, limit=limit)
        )

    async def _cancel_page(
        self, caller: Caller, page: Sequence[Call], *, is_first: bool, dry_run: bool
    ) -> Counter[bool]:
        wanted = [call for call in page if not call.cancel_requested and caller.may_use_upstream(call.upstream)]
        if dry_run:
            return Counter(map(ends_when_cancelled, wanted))
        if not wanted:
            return Counter()
        wanted_ids = [call.id for call in wanted]
        return await self._store.write_for(
            caller.principal, lambda tx: self._cancel_batch(tx, caller, wanted_ids, is_first=is_first)
        )

    async def _cancel_batch(
        self, tx: Transaction, caller: Caller, call_ids: Sequence[CallId], *, is_first: bool
    ) -> Counter[bool]:
        calls = [call for call in await tx.calls.get_many(call_ids) if not call.is_final and not call.cancel_requested]
        if is_first and calls:
            await record_own_change(tx, caller, "cancel_calls")
        return Counter(call.is_final for call in await cancel_open_calls(tx, self._recorder, calls))


async def cancel_open_call(tx: Transaction, recorder: Recorder, call: Call) -> Call:
    """End the call now if its upstream holds no state for it; else request its cancellation."""
    (cancelled,) = await cancel_open_calls(tx, recorder, [call])
    return cancelled


async def cancel_open_calls(tx: Transaction, recorder: Recorder, calls: Sequence[Call]) -> Sequence[Call]:
    """As `cancel_open_call`, for several calls, whose rows the caller has locked. Their ends come last: they lock the log."""
    cancelled: dict[CallId, Call] = {}
    for call in calls:
        tx.notify(call_cancel_topic(call.id))
        cancelled[call.id] = call if ends_when_cancelled(call) else await _request_cancellation(tx, call)
    requests = [
        CompletionRequest(call=replace(call, cancel_requested=True), completion=CANCELLED_COMPLETION, lease_token=None)
        for call in calls
        if ends_when_cancelled(call)
    ]
    ended = await recorder.finish_calls(tx, requests)
    return list((cancelled | {call.id: call for call in ended if call is not None}).values())


async def _request_cancellation(tx: Transaction, call: Call) -> Call:
    cancelling = replace(call, cancel_requested=True, updated_at=tx.now())
    await tx.calls.update(cancelling, CallChange.CANCELLING, expected=call.status, lease_token=None)
    tx.notify(call_changed_topic(call.id))
    return cancelling
