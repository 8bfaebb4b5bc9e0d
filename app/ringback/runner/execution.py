"""One leased call, from its lease to its end, or to where nobody needs to drive it.

    lease ──▶ session ready ──▶ dispatched_at committed ──▶ driver ──▶ ending written down
                 ▲                     (not again, if the call      ├──▶ parked, until it is answered
                 └── upstream away      goes on from a handle)      └──▶ handed back: this process stops

What cuts a drive short, and what it does to the upstream:

    cancellation   told to stop, as often as it takes; the driver knows whether that ends the call or the upstream still tells
    deadline       told to stop, once; the call has timed out, also if nobody drove it when its time was up
    stopping       a call with a handle is handed back, and its upstream notices nothing; another may end until the cut
    lost lease     nothing is written; the next holder finds the call as it is in the store
    cancelled      for good, behind our back: nothing is written; the upstream is told to stop, once
"""

import asyncio
import logging
from collections.abc import Generator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Protocol

from ringback.domain.call import (
    CANCELLED_COMPLETION,
    MRTR_DRIVER,
    Call,
    CallCompletion,
    CallOutcome,
    failed_completion,
    is_upstream_error,
    overdue_completion,
)
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.domain.signals import Waiter, call_cancel_topic
from ringback.notifier.completion_batcher import CompletionBatcher
from ringback.notifier.recorder import Recorder
from ringback.runner.drivers import BoundDriverPort, LeaseLost, ParkedCall
from ringback.runner.leased_call import LeasedCall
from ringback.upstreams.errors import (
    RequestFailed,
    RequestNotSent,
    UpstreamNotConfigured,
    UpstreamUnreachable,
)
from ringback.upstreams.notification_hub import NotificationHub
from ringback.waits import ObservableFlag

log = logging.getLogger(__name__)

CANCEL_TIMEOUT_SECONDS: Final = 6.0
"""How long an abandoned request may take to tell its upstream so, and telling it in words: the SDK gives each 5 s."""
REREAD_SECONDS: Final = 300.0
"""How long a lost ring can delay a cancellation. Ten thousand waiting calls then cost 33 reads a second; looking once a minute
took a tenth of a core (measured)."""
CANCEL_RETRY_SECONDS: Final = 2.0
"""Between two attempts to tell an upstream that cannot be told."""
RECONNECT_RETRY_SECONDS: Final = 5.0
"""Between two attempts to reach the upstream of a call that can be found again."""


ExecutionTask = asyncio.Task[CallCompletion | ParkedCall | None]


class CallSessionProvider(Protocol):
    """What the runner needs of the upstreams."""

    def get_capacity(self) -> Mapping[str, int]:
        """How many calls each upstream takes at once."""
        ...

    def open_call_session(self, call: Call) -> AbstractAsyncContextManager[BoundDriverPort]:
        """A live session for the call. Entering it waits for the upstream; raises `UpstreamUnreachable` if it stays away."""
        ...


class _StopReason(Enum):
    """Why a drive is cut short."""

    LEASE_LOST = auto()
    PAST_DEADLINE = auto()
    SHUTTING_DOWN = auto()
    CANCELLED = auto()


@dataclass(frozen=True, slots=True)
class ShutdownSignal:
    """The two steps of stopping, shared by all drives: first nothing new is dispatched, then what runs is cut off."""

    drain_requested: ObservableFlag = field(default_factory=ObservableFlag)
    abort_requested: ObservableFlag = field(default_factory=ObservableFlag)


class CallExecution:
    def __init__(
        self,
        call: Call,
        *,
        trusted_until: float,
        store: Store,
        clock: Clock,
        recorder: Recorder,
        completion_batcher: CompletionBatcher,
        sessions: CallSessionProvider,
        shutdown: ShutdownSignal,
        notification_hub: NotificationHub,
    ) -> None:
        self.trusted_until = trusted_until
        """By `Clock.monotonic`; prolonged by whoever prolongs the lease."""
        self._leased_call = LeasedCall(
            call,
            store=store,
            clock=clock,
            recorder=recorder,
            completion_batcher=completion_batcher,
            notification_hub=notification_hub,
            abort_requested=shutdown.abort_requested,
        )
        self._store = store
        self._clock = clock
        self._sessions = sessions
        self._shutdown = shutdown
        self._session: BoundDriverPort | None = None
        self._cancel_delivered = False
        self._outcome: CallCompletion | ParkedCall | None = None
        """What the upstream has said, from the moment it has, whatever becomes of the session that it said it in."""

    @property
    def call(self) -> Call:
        return self._leased_call.call

    def abandon_lease(self) -> None:
        """The lease is somebody else's now, or may be: stop the work here, and write nothing."""
        self._leased_call.lease_lost.set()

    async def run(self) -> None:
        outcome = await self._run_until_outcome()
        if self._leased_call.lease_lost.is_set():
            if not await self._leased_call.was_cancelled():
                log.warning("call.lease_lost", extra={"call_id": self.call.id})
        elif isinstance(outcome, CallCompletion):
            await self._leased_call.finish_call(outcome)
        elif isinstance(outcome, ParkedCall):
            await self._leased_call.park_call(outcome)
        else:
            await self._leased_call.requeue_call()

    # -- carrying it out --

    async def _run_until_outcome(self) -> CallCompletion | ParkedCall | None:
        """Where the call stands when this drive is over; None when it is to be handed back."""
        if self._is_past_deadline():
            return await self._complete_past_deadline()
        task = asyncio.create_task(self._run_sessions())
        try:
            with (
                self._store.signals.listen(call_cancel_topic(self.call.id)) as waiter,
                self._notify_on_local_events(waiter, task),
            ):
                while not task.done():
                    await waiter.wait(self._wait_seconds())
                    if not task.done() and (reason := await self._find_stop_reason()):
                        return await self._stop_task(task, reason)
            return self._task_outcome(task)
        finally:
            task.cancel()

    @contextmanager
    def _notify_on_local_events(self, waiter: Waiter, task: ExecutionTask) -> Generator[None]:
        """The bell also rings for what happens here: the end of the attempt, and what may make it time to stop."""
        task.add_done_callback(lambda _: waiter.notify())
        flags = (
            self._leased_call.lease_lost,
            self._leased_call.has_handle,
            self._shutdown.drain_requested,
            self._shutdown.abort_requested,
        )
        for flag in flags:
            flag.add_callback(waiter.notify)
            if (
                flag.is_set()
            ):  # nobody rings for what was before; a call that can be found may have been cancelled by then
                waiter.notify()
        try:
            yield
        finally:
            for flag in flags:
                flag.remove_callback(waiter.notify)

    async def _complete_past_deadline(self) -> CallCompletion:
        """Its time was up before this drive began: an upstream that holds something of it is told, if it is there."""
        if self.call.handle is not None and self.call.handle.driver != MRTR_DRIVER:
            with suppress(UpstreamUnreachable, TimeoutError):
                async with (
                    asyncio.timeout(CANCEL_TIMEOUT_SECONDS),
                    self._sessions.open_call_session(self.call) as session,
                ):
                    await self._send_cancel(session)
        return overdue_completion(self.call)

    async def _run_sessions(self) -> CallCompletion | ParkedCall | None:
        """Drive the call, over as many sessions as it takes if it can be found again."""
        while True:
            try:
                async with self._sessions.open_call_session(self.call) as session:
                    return await self._run_driver(session)
            except (UpstreamUnreachable, RequestNotSent):
                if self.call.handle is None:
                    raise
            await self._clock.sleep(RECONNECT_RETRY_SECONDS)

    async def _run_driver(self, session: BoundDriverPort) -> CallCompletion | ParkedCall | None:
        self._session = session
        try:
            if self.call.cancel_requested and (completion := await self._cancel_in_session()):
                return completion
            await self._leased_call.mark_dispatched()
            async with self._leased_call.write_progress_during():
                self._outcome = await session.run_call(self._leased_call)
                return self._outcome
        except LeaseLost:
            await self._forward_cancellation()
            raise
        finally:
            self._session = None

    @property
    def _depends_on_process(self) -> bool:
        """Whether what runs upstream is lost when this process lets go of it."""
        return self.call.dispatched_at is not None and not self._leased_call.has_handle.is_set()

    def _wait_seconds(self) -> float:
        left = max(0.0, (self.call.deadline_at - self._clock.now()).total_seconds())
        untold = self.call.cancel_requested and not self._cancel_delivered
        return min(left, CANCEL_RETRY_SECONDS if untold else REREAD_SECONDS)

    # -- cutting it short --

    async def _find_stop_reason(self) -> _StopReason | None:
        try:
            call = await self._leased_call.reread_call()
        except LeaseLost:
            await self._forward_cancellation()
            return _StopReason.LEASE_LOST
        if self._leased_call.lease_lost.is_set():
            return _StopReason.LEASE_LOST
        if call.cancel_requested and await self._cancel_ends_call():
            return _StopReason.CANCELLED
        if self._is_past_deadline():
            return _StopReason.PAST_DEADLINE
        return _StopReason.SHUTTING_DOWN if self._is_shutting_down() else None

    async def _forward_cancellation(self) -> None:
        """Tell the upstream to stop when the call is not ours any more because it was cancelled for good."""
        if not self._cancel_delivered and await self._leased_call.was_cancelled():
            await self._cancel_in_session()

    async def _cancel_ends_call(self) -> bool:
        """Tell the upstream to stop; whether that ends the call, or the upstream will still tell how it ended."""
        if self._cancel_delivered:
            return False
        if self._session is None and (self.call.handle is None or self.call.handle.driver == MRTR_DRIVER):
            return True
        completion = await self._cancel_in_session()
        self._leased_call.request_poll()
        return completion is not None

    async def _cancel_in_session(self) -> CallCompletion | None:
        return None if self._session is None else await self._send_cancel(self._session)

    async def _send_cancel(self, session: BoundDriverPort) -> CallCompletion | None:
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT_SECONDS):
                completion = await session.cancel_call(self.call)
        except (RequestFailed, TimeoutError):
            log.info("call.cancel_not_told", extra={"call_id": self.call.id})
            return None
        self._cancel_delivered = True
        return completion

    async def _stop_task(self, task: "ExecutionTask", reason: _StopReason) -> CallCompletion | ParkedCall | None:
        """Stop the request. An upstream that ended in this very moment has ended the call, truthfully.

        Unless what it answered is an error of its own, and it was told to stop: that is how some say that they did.
        """
        if reason is _StopReason.PAST_DEADLINE and not self._cancel_delivered:
            await self._cancel_in_session()
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_TIMEOUT_SECONDS)
        if self._outcome is not None or (task.done() and not task.cancelled()):
            outcome = self._outcome or self._task_outcome(task)
            if not (
                reason is _StopReason.CANCELLED
                and self._cancel_delivered
                and isinstance(outcome, CallCompletion)
                and is_upstream_error(outcome)
            ):
                return outcome
        match reason:
            case _StopReason.CANCELLED:
                return CANCELLED_COMPLETION
            case _StopReason.PAST_DEADLINE:
                return overdue_completion(self.call)
            case _StopReason.LEASE_LOST | _StopReason.SHUTTING_DOWN:
                return None

    def _task_outcome(self, task: "ExecutionTask") -> CallCompletion | ParkedCall | None:
        problem = asyncio.CancelledError() if task.cancelled() else task.exception()
        if problem is None:
            return task.result()
        dispatched = self.call.dispatched_at is not None
        if isinstance(problem, UpstreamNotConfigured):
            return None  # as with those that are still queued: it waits until there is one, or for its deadline
        if isinstance(problem, UpstreamUnreachable):
            return failed_completion(
                CallOutcome.REJECTED, f"Upstream '{self.call.upstream}' could not be reached: {problem}"
            )
        if isinstance(problem, LeaseLost):
            self._leased_call.lease_lost.set()
            return None
        if isinstance(problem, StoreUnavailable) and not self._depends_on_process:
            return None
        # A bug of ours must not leave the call without an end.
        log.error("call.drive_failed", extra={"call_id": self.call.id}, exc_info=problem)
        outcome = CallOutcome.UNKNOWN if dispatched else CallOutcome.REJECTED
        return failed_completion(outcome, "Ringback failed while it ran this call; its log says how.")

    def _is_past_deadline(self) -> bool:
        return self._clock.now() >= self.call.deadline_at

    def _is_shutting_down(self) -> bool:
        return (self._shutdown.abort_requested if self._depends_on_process else self._shutdown.drain_requested).is_set()
