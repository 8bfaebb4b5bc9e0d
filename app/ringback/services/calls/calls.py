"""Calls: start, read, list, join and cancel them; wait for them; read their results."""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import Final

from ringback.admission import AdmissionGate
from ringback.attended_calls import AttendedCalls
from ringback.domain.call import Call
from ringback.domain.call_outcome import CANCELLED_COMPLETION
from ringback.domain.call_rows import CallChange, CallFilter
from ringback.domain.clock import Clock
from ringback.domain.cursor import Page
from ringback.domain.errors import (
    CallEnded,
    CallExpired,
    IdempotencyConflict,
    NotFound,
    ResultNotReady,
    StoreUnavailable,
)
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import call_cancel_topic, call_changed_topic
from ringback.domain.upstreams import CheckWork
from ringback.notifier.recorder import Recorder
from ringback.post_commit import CallHandoff, CallLeases
from ringback.services.audit import record_own_change
from ringback.services.calls.attended_waits import AttendedWait
from ringback.services.calls.call_reads import ResultReader, get_changeable_call, get_own_call, is_large
from ringback.services.calls.call_starts import CallStarter, PreparedCall, StartCallRequest, naming_call
from ringback.services.calls.cancellation import cancel_open_call
from ringback.services.calls.given_up_starts import give_up_start
from ringback.services.calls.new_calls import StartedCall, log_started_calls
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.limits.unread_responses import ResponseMemory
from ringback.services.long_polling import WAIT_SECONDS_MAX_DEFAULT, poll_until
from ringback.telemetry.spans import link_current_span

JOINED_AT_ONCE_MAX: Final = 8
"""Calls of one wait that are read on the event loop, a twentieth of a millisecond each. More are read beside it."""
JOIN_PAUSE_SECONDS: Final = 0.1
"""Between two reads of more calls. Each of a hundred running calls may report progress, and so cause a read, every second."""


class JoinMode(StrEnum):
    ANY = "any"
    ALL = "all"


class Calls:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        recorder: Recorder,
        attended_calls: AttendedCalls,
        starter: CallStarter,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
        call_handoff: CallHandoff,
        admission: AdmissionGate,
        wait_seconds_max: float = WAIT_SECONDS_MAX_DEFAULT,
    ) -> None:
        """`wait_seconds_max` bounds every wait, however long the client asks to wait."""
        self._store = store
        self._results = ResultReader(store=store)
        self._clock = clock
        self._recorder = recorder
        self._attended_calls = attended_calls
        self._starter = starter
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._call_handoff = call_handoff
        self._admission = admission
        self._wait_seconds_max = wait_seconds_max

    async def start_call(self, caller: Caller, request: StartCallRequest) -> StartedCall:
        """Store the call and return. The call runs from then on, also if the client disconnects.

        The same idempotency key with the same request returns the same call in its current state.
        """
        self._starter.require_allowed(caller, request)
        if request.idempotency_key is not None:
            existing = await self._store.read(lambda tx: self._starter.find_started_call(tx, caller.principal, request))
            if existing is not None:
                link_current_span(existing.call.id, existing.call.traceparent)
                return existing
        self._lifecycle.require_running()  # not before: a client that repeats a start would read that nothing was started
        self._quotas.acquire_start(caller.principal, key_id=caller.key_id)
        prepared = await self._starter.prepare_call(caller, request, now=self._clock.now())
        with await self._wait_for_admission(caller.principal):
            prepare_leases = None if request.is_cancelled else self._call_handoff.consumer
            leases = None if prepare_leases is None else prepare_leases()
            started = await self._store.write_for(
                caller.principal, lambda tx: self._insert_call(tx, caller, prepared, leases)
            )
        log_started_calls([started])
        link_current_span(started.call.id, started.call.traceparent)
        return started

    async def _insert_call(
        self, tx: Transaction, caller: Caller, prepared: PreparedCall, leases: CallLeases | None
    ) -> StartedCall:
        started = await self._starter.insert_call(tx, caller, prepared, leases=leases)
        if not prepared.request.is_cancelled or not started.is_new:
            return started
        await record_own_change(tx, caller, "cancel_call", started.call.id)
        return replace(started, call=await cancel_open_call(tx, self._recorder, started.call))

    async def start_batch(self, caller: Caller, requests: Sequence[StartCallRequest]) -> Sequence[StartedCall]:
        """Store all of these calls in one transaction, or none of them. At most `BATCH_SIZE_MAX`.

        A call whose idempotency key names a call already is that call. An error names the first refused call by its index.
        """
        for request in requests:
            self._starter.require_allowed(caller, request)
        is_known = await self._store.read(lambda tx: self._find_known_calls(tx, caller.principal, requests))
        new_count = is_known.count(False)
        if new_count:
            self._lifecycle.require_running()
        self._quotas.acquire_start(caller.principal, key_id=caller.key_id, count=new_count)
        batch = await self._prepare_batch(caller, requests, is_known)
        with await self._wait_for_admission(caller.principal):
            started = await self._store.write_for(
                caller.principal,
                lambda tx: self._starter.insert_batch(tx, caller, batch, new_count=new_count),
            )
        log_started_calls(started)
        return started

    async def _wait_for_admission(self, principal: Principal) -> AbstractContextManager[None]:
        """Call it late: resolving the callback's host can take seconds. Enter its result around the transaction."""
        has_many = self._quotas.has_many_open_calls(principal)
        return await self._admission.wait_for_admission(principal, is_background=has_many)

    async def _prepare_batch(
        self, caller: Caller, requests: Sequence[StartCallRequest], is_known: Sequence[bool]
    ) -> Sequence[PreparedCall]:
        work, now = CheckWork(), self._clock.now()
        batch: list[PreparedCall] = []
        for index, request in enumerate(requests):
            if is_known[index]:
                batch.append(PreparedCall(request=request))
                continue
            with naming_call(index):
                batch.append(await self._starter.prepare_call(caller, request, now=now, work=work))
            await asyncio.sleep(0)  # a check may work for a tenth of a second
        return batch

    async def _find_known_calls(
        self, tx: Transaction, principal: Principal, requests: Sequence[StartCallRequest]
    ) -> Sequence[bool]:
        """For each request, whether its idempotency key names a call. Raises if a key is used for two requests."""
        found: list[bool] = []
        hashes: dict[str, str] = {}
        for index, request in enumerate(requests):
            with naming_call(index):
                found.append(await self._starter.find_known_call(tx, principal, request) is not None)
                key = request.idempotency_key
                if key is not None and hashes.setdefault(key, request.compute_hash()) != request.compute_hash():
                    raise IdempotencyConflict("Another call of the batch has this idempotency_key.")
        return found

    async def get_call(self, caller: Caller, call_id: str, *, wait_seconds: float = 0.0) -> Call:
        """Return the call; with `wait_seconds`, when its status changes or when that time has passed."""
        caller.require_scope(Scope.READ)
        first = await self._store.read(lambda tx: get_own_call(tx, caller.principal, call_id))
        if wait_seconds <= 0 or first.is_final:
            return first
        return await self._poll_call(caller, first, wait_seconds, until_final=False)

    async def get_for_waiting(self, caller: Caller, call_id: str) -> Call:
        """Return an existing call for a caller with the scope `calls`, who waits for it again or is about to change it."""
        caller.require_scope(Scope.CALLS)
        return await self._store.read(lambda tx: get_own_call(tx, caller.principal, call_id))

    async def give_up_start(self, caller: Caller, call_id: CallId) -> Call | None:
        """The call if it was started; otherwise no node will start it. Uses a start, because it may write a row."""
        caller.require_scope(Scope.CALLS)
        self._quotas.acquire_start(caller.principal, key_id=caller.key_id)
        return await self._store.write_for(caller.principal, lambda tx: give_up_start(tx, caller.principal, call_id))

    async def mark_unattended(self, caller: Caller, call_id: str) -> None:
        """Record that the client of the open request has disconnected. `detached` webhooks then receive the end of the call."""
        caller.require_scope(Scope.CALLS)

        async def mark(tx: Transaction) -> None:
            call = await get_own_call(tx, caller.principal, call_id)
            if not call.is_final:
                unattended = replace(call, attended_until=None)
                await tx.calls.update(unattended, CallChange.UNATTENDED, expected=call.status, lease_token=None)

        await self._store.write_for(caller.principal, mark)

    def attend(self, call: Call) -> AttendedWait:
        """The wait of the request that has started this call, until its response."""
        return AttendedWait(call, store=self._store, attended_calls=self._attended_calls)

    async def wait_for_call(
        self, caller: Caller, call: Call, *, wait_seconds: float, until_final: bool = True
    ) -> tuple[Call, bytes | None]:
        """Wait for the end of a call that was just started. Return the call, and its result if it has one.

        Without `until_final`, any other status than that of `call` ends the wait too. The scope `calls` is enough: after the
        start, a missing scope `read` must not become an error. Nor must an unavailable store: the client would think that
        nothing was started, and start the call again. Then the call is returned as it was known last.
        """
        caller.require_scope(Scope.CALLS)
        started = call
        if wait_seconds > 0 and not call.is_final:
            call = await self._poll_call(caller, call, wait_seconds, until_final=until_final, survives_outage=True)
        if not call.is_final:
            return call, None
        if (end := self._attended_calls.find_end(call.id)) is not None:
            return call, end.result
        try:
            return call, await self._results.read_result(call)
        except StoreUnavailable:
            if started.is_final:
                raise
            return started, None

    async def join_calls(
        self, caller: Caller, call_ids: Sequence[str], mode: JoinMode, *, wait_seconds: float
    ) -> tuple[Sequence[Call], bool]:
        """Wait until any or all of these calls have ended, as `mode` says. Return the calls, and whether that is so."""
        caller.require_scope(Scope.READ)
        is_satisfied, has_many = any if mode is JoinMode.ANY else all, len(call_ids) > JOINED_AT_ONCE_MAX
        ended: dict[str, Call] = {}
        """Calls that have ended change no more, so they are read once."""

        async def read_calls(tx: Transaction) -> Sequence[Call]:
            found = dict(ended)
            for index, call_id in enumerate(call_ids):
                if call_id not in found:
                    with _naming_place(index):
                        found[call_id] = await get_own_call(tx, caller.principal, call_id)
            ended.update({call_id: call for call_id, call in found.items() if call.is_final})
            return [found[call_id] for call_id in call_ids]

        async def read() -> Sequence[Call]:
            if has_many:
                return await self._store.scan(caller.principal, read_calls)
            return await self._store.read(read_calls)

        def is_done(calls: Sequence[Call]) -> bool:
            return is_satisfied(call.is_final for call in calls)

        calls = await poll_until(
            read,
            is_done,
            signals=self._store.signals,
            topics=[call_changed_topic(CallId(call_id)) for call_id in call_ids],
            wait_seconds=min(wait_seconds, self._wait_seconds_max),
            clock=self._clock,
            lifecycle=self._lifecycle,
            pause_seconds=JOIN_PAUSE_SECONDS if has_many else 0.0,
        )
        return calls, is_done(calls)

    async def list_calls(
        self, caller: Caller, call_filter: CallFilter, *, position: str | None, limit: int
    ) -> Page[Call, str]:
        caller.require_scope(Scope.READ)
        return await self._store.scan(
            caller.principal,
            lambda tx: tx.calls.list_page(caller.listed_principal, call_filter, position=position, limit=limit),
        )

    async def get_result(
        self, caller: Caller, call_id: str, *, memory: ResponseMemory | None = None
    ) -> tuple[Call, bytes]:
        """Return the call and its stored CallToolResult as JSON. `memory` may have it, or refuse to read a large one."""
        caller.require_scope(Scope.READ)

        async def read(tx: Transaction) -> tuple[Call, bytes | None]:
            call = await get_own_call(tx, caller.principal, call_id)
            return call, None if is_large(call) else await tx.call_completions.get_result(call.id)

        call, result = await self._store.read(read)
        if is_large(call):
            result = await self._results.read_large_result(call, memory)
            if result is None:  # the call was deleted since it was read, and this says so
                call, result = await self._store.read(read)
        if result is None:
            raise ResultNotReady(_no_result_detail(call), call_id=call.id, call_status=str(call.status))
        link_current_span(call.id, call.traceparent)
        return call, result

    async def cancel_call(self, caller: Caller, call_id: str) -> Call:
        """Request the end of the call. Repeating the request, or sending it after the end, changes nothing.

        A call that was not dispatched, or for which the upstream holds no state, ends at once. For a running call, the upstream
        gets a cancellation, and the upstream's response decides how the call ends.
        """
        caller.require_scope(Scope.CALLS)

        async def cancel(tx: Transaction) -> Call:
            call = await get_changeable_call(tx, caller, call_id)
            if call.is_final:
                return call
            if not call.cancel_requested:
                await record_own_change(tx, caller, "cancel_call", call.id)
            return await cancel_open_call(tx, self._recorder, call)

        return await self._store.write_for(caller.principal, cancel)

    async def cancel_immediately(self, caller: Caller, call_id: str) -> Call:
        """End the call as cancelled now. The upstream gets a cancellation too, but its response is not awaited.

        For clients that treat a cancellation as final: the tasks of MCP 2025-11-25. Raises `CallEnded` if the call has ended.
        """
        caller.require_scope(Scope.CALLS)

        async def cancel(tx: Transaction) -> Call:
            call = await get_changeable_call(tx, caller, call_id)
            if call.is_final:
                raise CallEnded(f"The call has ended as {call.status}.", call_id=call.id)
            await record_own_change(tx, caller, "cancel_call", call.id)
            tx.notify(call_cancel_topic(call.id))
            return (
                await self._recorder.finish_call(
                    tx, replace(call, cancel_requested=True), CANCELLED_COMPLETION, lease_token=None
                )
                or call
            )

        return await self._store.write_for(caller.principal, cancel)

    # -- waiting --

    async def _poll_call(
        self,
        caller: Caller,
        previous: Call,
        wait_seconds: float,
        *,
        until_final: bool,
        survives_outage: bool = False,
    ) -> Call:
        """With `survives_outage`, the call counts as unchanged while the store is unavailable."""

        def is_done(call: Call) -> bool:
            return call.is_final or (not until_final and call.status is not previous.status)

        latest = previous

        async def read_call() -> Call:
            nonlocal latest
            if (end := self._attended_calls.find_end(previous.id)) is not None:
                return end.call
            try:
                latest = await self._store.read(lambda tx: get_own_call(tx, caller.principal, previous.id))
            except StoreUnavailable:
                if not survives_outage:
                    raise
            return latest

        return await poll_until(
            read_call,
            is_done,
            known=previous if self._attended_calls.is_first_wait(previous) else None,
            signals=self._store.signals,
            topics=[call_changed_topic(previous.id)],
            wait_seconds=min(wait_seconds, self._wait_seconds_max),
            clock=self._clock,
            lifecycle=self._lifecycle,
        )


@contextmanager
def _naming_place(index: int) -> Generator[None]:
    """An error of one of several calls names its place in the request."""
    try:
        yield
    except (NotFound, CallExpired) as error:
        error.detail = f"call_ids[{index}]: {error.detail}"
        error.extra["index"] = index
        raise


def _no_result_detail(call: Call) -> str:
    if not call.is_final:
        return f"The call is still {call.status}. Wait for it: GET /v1/calls/{call.id}?wait_seconds=45"
    return (
        f"The call ended as {call.status} ({call.outcome}) and has no result. Its error is in GET /v1/calls/{call.id}"
    )
