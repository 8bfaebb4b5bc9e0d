"""Runs one leased call until it ends, is parked or is handed back to the queue.

    lease ──▶ session opened ──▶ dispatched_at committed ──▶ driver runs ──▶ completion recorded
                 ▲                 (skipped if the call         ├──▶ parked until its questions are answered, or until a login
                 └── upstream away      has a handle)           └──▶ handed back, because this process stops

What stops an execution early, and what the upstream sees:

    cancellation   a cancel request, repeated until it is delivered; the driver says whether that ends the call
    deadline       a cancel request, once; the call has timed out, even if nothing ran it when its deadline passed
    shutdown       nothing, if the call has a handle: it is handed back; another call may end until the abort
    paused         nothing: a call that waits unsent after HTTP 429 goes back to the queue of its paused upstream
    lost lease     nothing is written; the next holder finds the call as it is in the store
    call cancelled in the store by another process: nothing is written; one cancel request
"""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Final

from ringback.admission import AdmissionGate
from ringback.domain.call import (
    MRTR_DRIVER,
    UNREADABLE_MEMBER,
    Call,
    awaits_confirmation,
    overdue_completion,
    sends_arguments,
)
from ringback.domain.call_completion import completion_after_runs
from ringback.domain.call_outcome import (
    CANCELLED_COMPLETION,
    CallCompletion,
    CallOutcome,
    failed_completion,
    is_upstream_error,
)
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.login_waits import awaits_login
from ringback.domain.ports import Store
from ringback.domain.signals import Waiter, call_cancel_topic
from ringback.notifier.completion_batcher import CompletionBatcher
from ringback.notifier.recorder import Recorder
from ringback.protocol.errors import LoginRequired, RequestNotSent, TokensUnreadable
from ringback.runner.cancel_request import CANCEL_TIMEOUT_SECONDS, CancelRequest
from ringback.runner.drivers.driver import BoundDriverPort, CallSessionProvider, LeaseLost, ParkedCall, RefusedForLogin
from ringback.runner.held_execution import wait_for_commit
from ringback.runner.lease_end import LeaseEnd
from ringback.runner.leased_call import LeasedCall
from ringback.runner.permits import CallPermit
from ringback.runner.run_spans import note_completion, note_dispatch
from ringback.services.logins.login_waits import LoginWaits
from ringback.telemetry.logs import call_facts
from ringback.upstreams.errors import (
    ServerChanged,
    UpstreamLoginRequired,
    UpstreamNotConfigured,
    UpstreamTokensUnreadable,
    UpstreamUnreachable,
)
from ringback.upstreams.notification_hub import NotificationHub
from ringback.waits import ObservableFlag

log = logging.getLogger(__name__)

REREAD_SECONDS: Final = 300.0
"""How often a waiting call is read without a reason. At 300 s, ten thousand waiting calls cost 33 reads a second; at 60 s the
reads took a tenth of a core (measured). A lost notification of a cancellation is made good by the next heartbeat."""
CANCEL_RETRY_SECONDS: Final = 2.0
"""The pause between two attempts to deliver a cancel request."""
_UNREADABLE: Final = "The call's arguments were sealed with a key that the service does not have."
_UNREADABLE_COMPLETION: Final = failed_completion(
    CallOutcome.REJECTED, f"{_UNREADABLE} Nothing was sent to the upstream."
)
_UNREADABLE_ROUND: Final = failed_completion(
    CallOutcome.UNKNOWN,
    f"{_UNREADABLE} So the answers were not sent to the upstream. The tool may have done part of its work.",
)
RECONNECT_RETRY_SECONDS: Final = 5.0
"""The pause between two attempts to reach the upstream of a call that has a handle."""

ExecutionEnd = CallCompletion | ParkedCall | RefusedForLogin | None
"""How an execution ends; None hands the call back to the queue."""


@dataclass(frozen=True, slots=True)
class ShutdownSignal:
    """The two steps of a shutdown, shared by all executions: first no new dispatch, then the running requests are aborted."""

    drain_requested: ObservableFlag = field(default_factory=ObservableFlag)
    abort_requested: ObservableFlag = field(default_factory=ObservableFlag)


class _StopReason(Enum):
    LEASE_LOST = auto()
    PAST_DEADLINE = auto()
    SHUTTING_DOWN = auto()
    UPSTREAM_PAUSED = auto()
    CANCELLED = auto()


class CallExecution:
    def __init__(
        self,
        call: Call,
        *,
        permit: CallPermit | None,
        committed: asyncio.Event,
        trusted_until: float,
        store: Store,
        clock: Clock,
        recorder: Recorder,
        completion_batcher: CompletionBatcher,
        sessions: CallSessionProvider,
        shutdown: ShutdownSignal,
        notification_hub: NotificationHub,
        login_waits: LoginWaits,
        admission: AdmissionGate,
    ) -> None:
        self.trusted_until = trusted_until
        """By `Clock.monotonic`; the runner moves it on when it extends the lease."""
        self.committed = committed
        """Set once the store has the call as it is here (`held_execution`)."""
        self._leased_call = LeasedCall(
            call,
            permit=permit,
            store=store,
            clock=clock,
            recorder=recorder,
            notification_hub=notification_hub,
            abort_requested=shutdown.abort_requested,
        )
        self._lease_end = LeaseEnd(
            self._leased_call,
            store=store,
            recorder=recorder,
            completion_batcher=completion_batcher,
            login_waits=login_waits,
        )
        self._store = store
        self._clock = clock
        self._sessions = sessions
        self._shutdown = shutdown
        self._admission = admission
        self._session: BoundDriverPort | None = None
        self._cancel_request = CancelRequest(self._leased_call)
        self._cancel_noticed = ObservableFlag()
        self._began_unconfirmed = False
        """Whether this execution began with an unconfirmed clock and its deadline ahead. Then it passes by `Clock.now`, else by
        confirmed time, so that a later step of the clock does not end the call."""
        self._driver_end: ExecutionEnd = None
        """What the driver returned. It counts even if closing the session fails or is cancelled afterwards."""

    @property
    def call(self) -> Call:
        return self._leased_call.call

    def abandon_lease(self) -> None:
        """Stop the work and write nothing: another process holds the lease, or may hold it."""
        self._leased_call.lease_lost.set()

    def notice_cancellation(self) -> None:
        """Read the call again, unless the cancellation was sent to its upstream."""
        if not self._cancel_request.is_delivered:
            self._cancel_noticed.set()
            self._cancel_noticed.clear()

    async def run(self) -> None:
        end = await self._run_until_end()
        await self.committed.wait()
        if self._leased_call.lease_lost.is_set():
            if not await self._leased_call.was_cancelled():
                log.warning("call.lease_lost", extra=call_facts(self.call))
        elif isinstance(end, CallCompletion) and self._is_failed_check(end):
            await self._lease_end.park_again(self._sessions.get_login_owner(self.call))
        elif isinstance(end, CallCompletion):
            completion = completion_after_runs(self.call, end)
            note_completion(completion)
            with self._admission.hold_end(self.call.principal):
                await self._lease_end.finish_call(completion)
        elif isinstance(end, ParkedCall):
            await self._lease_end.park_call(end)
        elif isinstance(end, RefusedForLogin):
            await self._lease_end.park_for_login(self._sessions.get_login_owner(self.call), end.tokens_version)
        else:
            await self._lease_end.requeue_call()

    def _is_failed_check(self, completion: CallCompletion) -> bool:
        """Whether nothing reached the upstream of a call that waits for a login and was only checked: it waits on."""
        return completion.outcome is CallOutcome.REJECTED and awaits_login(self.call)

    async def _run_until_end(self) -> ExecutionEnd:
        now, confirmed_now = self._clock.now(), self._clock.confirmed_now()
        self._began_unconfirmed = confirmed_now < now < self.call.deadline_at
        if awaits_confirmation(self.call, now=now, confirmed_now=confirmed_now):
            return None  # handed back: it is scheduled for later
        if self._is_past_deadline():
            return await self._complete_past_deadline()
        task = asyncio.create_task(self._run_sessions())
        try:
            with (
                self._store.signals.listen(call_cancel_topic(self.call.id)) as waiter,
                self._notify_on_local_events(waiter, task),
            ):
                await self.committed.wait()  # until then, there is no row to read
                while not task.done():
                    await waiter.wait(self._wait_seconds())
                    if not task.done() and (reason := await self._find_stop_reason()):
                        return await self._stop_task(task, reason)
            return self._read_end(task)
        finally:
            task.cancel()

    @contextmanager
    def _notify_on_local_events(self, waiter: Waiter, task: "asyncio.Task[ExecutionEnd]") -> Generator[None]:
        """Notify the waiter also at the end of the task and at each flag that may stop the execution."""
        task.add_done_callback(lambda _: waiter.notify())
        flags = (
            self._leased_call.lease_lost,
            self._leased_call.has_handle,
            self._leased_call.upstream_paused,
            self._cancel_noticed,
            self._shutdown.drain_requested,
            self._shutdown.abort_requested,
        )
        for flag in flags:
            flag.add_callback(waiter.notify)
            if flag.is_set():  # also for a call with a handle: it may have been cancelled before this subscription
                waiter.notify()
        try:
            yield
        finally:
            for flag in flags:
                flag.remove_callback(waiter.notify)

    async def _complete_past_deadline(self) -> CallCompletion:
        """The deadline passed before this execution began: cancel what the upstream still holds, if it can be reached."""
        if self.call.handle is not None and self.call.handle.driver != MRTR_DRIVER:
            with suppress(UpstreamUnreachable, TimeoutError):
                async with (
                    asyncio.timeout(CANCEL_TIMEOUT_SECONDS),
                    self._sessions.open_call_session(self.call) as session,
                ):
                    await self._cancel_request.send(session)
        return overdue_completion(self.call)

    async def _run_sessions(self) -> ExecutionEnd:
        """Run the driver; a call with a handle goes on in the next session when one is lost."""
        while True:
            try:
                async with self._sessions.open_call_session(self.call) as session:
                    return await self._run_driver(session)
            except ServerChanged as problem:
                return failed_completion(CallOutcome.UNKNOWN, str(problem))
            except (TokensUnreadable, UpstreamTokensUnreadable):
                await self._leased_call.leave_to_others()
                return None
            except (LoginRequired, UpstreamLoginRequired) as problem:
                return RefusedForLogin(problem.tokens_version)
            except (UpstreamUnreachable, RequestNotSent):
                if self.call.handle is None:
                    raise
            await self._clock.sleep(RECONNECT_RETRY_SECONDS)

    async def _run_driver(self, session: BoundDriverPort) -> ExecutionEnd:
        await wait_for_commit(self.committed)
        if self.call.handle is None and self._is_past_deadline():
            return overdue_completion(self.call)  # the commit took that long, or the process was stopped meanwhile
        self._session = session
        try:
            if self.call.cancel_requested and (completion := await self._cancel_request.send(session)):
                return completion
            if self._is_shutting_down():
                return None
            await self._leased_call.read_arguments()
            if UNREADABLE_MEMBER in self.call.meta and sends_arguments(self.call):
                return await self._end_unreadable()
            with self._admission.hold_work(self.call.principal):
                await self._leased_call.mark_dispatched(trusts_lease=self._clock.monotonic() < self.trusted_until)
            note_dispatch(self.call)
            self._leased_call.begin_run()
            self._driver_end = await session.run_call(self._leased_call)
        except LeaseLost:
            await self._forward_cancellation()
            raise
        else:
            return self._driver_end
        finally:
            self._session = None
            await self._leased_call.end_run()

    async def _end_unreadable(self) -> ExecutionEnd:
        """Without its arguments the call cannot be sent here. A node that has their key sends it; the call ends if none has."""
        if await self._leased_call.leave_to_others():
            return None
        return _UNREADABLE_COMPLETION if self.call.dispatched_at is None else _UNREADABLE_ROUND

    # -- stopping early --

    async def _find_stop_reason(self) -> _StopReason | None:
        try:
            call = await self._leased_call.reread_call()
        except LeaseLost:
            await self._forward_cancellation()
            return _StopReason.LEASE_LOST
        if self._leased_call.lease_lost.is_set():
            return _StopReason.LEASE_LOST
        if call.cancel_requested and not self._cancel_request.is_delivered:
            if not self._may_run_upstream():
                return _StopReason.CANCELLED
            completion = await self._cancel_in_session()
            self._leased_call.request_poll()
            if completion is not None:
                return _StopReason.CANCELLED
        if self._is_past_deadline():
            return _StopReason.PAST_DEADLINE
        return self._find_reason_to_hand_back()

    def _find_reason_to_hand_back(self) -> _StopReason | None:
        if self._leased_call.upstream_paused.is_set():
            return _StopReason.UPSTREAM_PAUSED
        return _StopReason.SHUTTING_DOWN if self._is_shutting_down() else None

    def _may_run_upstream(self) -> bool:
        """Whether the upstream may be working on the call, so that a cancellation must reach it first."""
        return self._session is not None or (self.call.handle is not None and self.call.handle.driver != MRTR_DRIVER)

    async def _forward_cancellation(self) -> None:
        """Send a cancel request if the lease was lost because the call was cancelled in the store."""
        if not self._cancel_request.is_delivered and await self._leased_call.was_cancelled():
            await self._cancel_in_session()

    async def _cancel_in_session(self) -> CallCompletion | None:
        return None if self._session is None else await self._cancel_request.send(self._session)

    async def _stop_task(self, task: "asyncio.Task[ExecutionEnd]", reason: _StopReason) -> ExecutionEnd:
        """Stop the request. If the driver returns at this moment, what it returns counts.

        The exception is an upstream error after a delivered cancel request: some upstreams confirm a cancellation that way.
        """
        if reason is _StopReason.PAST_DEADLINE and not self._cancel_request.is_delivered:
            await self._cancel_in_session()
        self._leased_call.give_up_run()
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_TIMEOUT_SECONDS)
        if self._driver_end is not None or (task.done() and not task.cancelled()):
            end = self._driver_end or self._read_end(task)
            is_cancelled = reason is _StopReason.CANCELLED and self._cancel_request.is_delivered
            if not (is_cancelled and isinstance(end, CallCompletion) and is_upstream_error(end)):
                return end
        match reason:
            case _StopReason.CANCELLED:
                return CANCELLED_COMPLETION
            case _StopReason.PAST_DEADLINE:
                return overdue_completion(self.call)
            case _StopReason.LEASE_LOST | _StopReason.SHUTTING_DOWN | _StopReason.UPSTREAM_PAUSED:
                return None

    def _read_end(self, task: "asyncio.Task[ExecutionEnd]") -> ExecutionEnd:
        problem = asyncio.CancelledError() if task.cancelled() else task.exception()
        if problem is None:
            return task.result()
        if isinstance(problem, UpstreamNotConfigured):
            return None  # like a queued call, it waits for the upstream's configuration until its deadline
        if isinstance(problem, UpstreamUnreachable):
            return failed_completion(
                CallOutcome.REJECTED, f"Upstream '{self.call.upstream}' could not be reached: {problem}"
            )
        if isinstance(problem, LeaseLost):
            self._leased_call.lease_lost.set()
            return None
        if isinstance(problem, StoreUnavailable) and not self._depends_on_process:
            return None
        # A bug in Ringback must not leave the call without an end.
        log.error("call.execution_failed", extra=call_facts(self.call), exc_info=problem)
        outcome = CallOutcome.REJECTED if self.call.dispatched_at is None else CallOutcome.UNKNOWN
        return failed_completion(outcome, "Ringback failed while it ran this call; its log says how.")

    # -- the state of the execution --

    @property
    def _depends_on_process(self) -> bool:
        """Whether the work upstream is lost when this process ends: it was dispatched and has no handle."""
        return self.call.dispatched_at is not None and not self._leased_call.has_handle.is_set()

    def _wait_seconds(self) -> float:
        remaining = max(0.0, (self.call.deadline_at - self._deadline_clock()).total_seconds())
        must_cancel = self.call.cancel_requested and not self._cancel_request.is_delivered
        return min(remaining, CANCEL_RETRY_SECONDS if must_cancel else REREAD_SECONDS)

    def _is_past_deadline(self) -> bool:
        return self._deadline_clock() >= self.call.deadline_at

    def _deadline_clock(self) -> datetime:
        return self._clock.now() if self._began_unconfirmed else self._clock.confirmed_now()

    def _is_shutting_down(self) -> bool:
        return (self._shutdown.abort_requested if self._depends_on_process else self._shutdown.drain_requested).is_set()
