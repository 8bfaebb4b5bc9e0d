"""A call under this process's lease, and every change of it that its holder makes.

Each change reads the row, checks the token and writes, in one transaction: somebody else's row is never touched, whatever the
clocks say. Changes on the way to the end (`drivers.Desk`) are also refused once the lease is no longer trusted. The end itself
is not: what was seen is the truth, and as long as the row still carries our token it is nobody else's.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from ringback.domain import inputs
from ringback.domain.call import (
    CANCELLED_COMPLETION,
    Call,
    CallCompletion,
    CallPhase,
    CallStatus,
    Handle,
    Progress,
    enter_phase,
)
from ringback.domain.call_completion import recover_call
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import CALL_QUEUED_TOPIC, call_answered_topic, call_changed_topic
from ringback.notifier.completion_batcher import CompletionBatcher
from ringback.notifier.recorder import LeasedCompletion, Recorder
from ringback.runner.drivers import LeaseLost, ParkedCall
from ringback.upstreams.notification_hub import NotificationHub
from ringback.waits import ObservableFlag, wait_first

# Progress, coalesced: the first at once, then at most one a second, always the newest.

PROGRESS_INTERVAL_SECONDS: Final = 1.0
"""One stored progress a second for each call: more is noise to whoever reads it and a write for each to the store."""


class ProgressWriter:
    """Takes every progress notification, writes down the newest now and then."""

    def __init__(self, write: Callable[[Progress], Awaitable[None]], *, clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._arrived = asyncio.Event()
        self.latest: Progress | None = None

    async def update(self, progress: Progress) -> None:
        self.latest = progress
        self._arrived.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            if self.latest is not None:
                await self._write(self.latest)
            await self._clock.sleep(PROGRESS_INTERVAL_SECONDS)


log = logging.getLogger(__name__)

T_co = TypeVar("T_co", covariant=True)

STORE_RETRY_SECONDS: Final = 1.0
"""Between two attempts to write something down while the store cannot be written."""


class LeasedCall:
    """Implements `runner.drivers.Desk`."""

    def __init__(
        self,
        call: Call,
        *,
        store: Store,
        clock: Clock,
        recorder: Recorder,
        completion_batcher: CompletionBatcher,
        notification_hub: NotificationHub,
        abort_requested: ObservableFlag,
    ) -> None:
        """`cut` is set once this process must end: what the store does not take then is left to the next one."""
        self.call = call
        self.lease_lost = ObservableFlag()
        """Set once the lease is somebody else's, or may be."""
        self.has_handle = ObservableFlag(is_set=call.handle is not None)
        """Set while the call can be found again."""
        self._lease_token = call.lease_token or ""
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._completion_batcher = completion_batcher
        self._notification_hub = notification_hub
        self._abort_requested = abort_requested
        self._poll_requested = ObservableFlag()
        self._progress_writer = ProgressWriter(self._record_progress, clock=clock)
        self._accepts_progress_writes = False
        self._progress_task: asyncio.Task[None] | None = None
        """From the first progress on, which most calls never tell."""

    # -- what drivers do --

    async def report_progress(self, progress: Progress) -> None:
        self._notification_hub.publish_progress(self.call.id, progress)
        await self._progress_writer.update(progress)
        if self._accepts_progress_writes and self._progress_task is None:
            self._progress_task = asyncio.create_task(self._progress_writer.run())

    async def save_handle(self, handle: Handle | None) -> None:
        await self._update_call(CallChange.HANDLE, lambda call, tx: replace(call, handle=handle, updated_at=tx.now()))
        if handle is not None:
            self.has_handle.set()
        else:
            self.has_handle.clear()

    async def request_input(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        if not requests and not self.call.input_requests:
            return  # others take questions away, and add none
        call = await self.reread_call()
        if inputs.request_input(call, requests, now=call.updated_at) is call:
            return

        async def write_input_requests(tx: Transaction) -> Call:
            leased = await self._read_leased(tx)
            updated = inputs.request_input(leased, requests, now=tx.now())
            await self._recorder.record_input_requests(tx, leased, updated, lease_token=self._lease_token)
            return updated

        self.call = await self._write_while_leased(write_input_requests)

    async def wait_for_answers(self, timeout_seconds: float) -> Mapping[str, Any]:
        with self._store.signals.listen(call_answered_topic(self.call.id)) as waiter:
            self._poll_requested.add_callback(waiter.notify)
            try:
                if not (await self.reread_call()).input_responses and timeout_seconds > 0:
                    rung = self._poll_requested.is_set() or await waiter.wait(timeout_seconds)
                    self._poll_requested.clear()
                    if rung:  # a ring that was lost is made up for by the next asking, which begins with a look
                        await self.reread_call()
            finally:
                self._poll_requested.remove_callback(waiter.notify)
        return self.call.input_responses

    async def mark_answers_sent(self, keys: Collection[str]) -> None:
        if keys:
            await self._update_call(
                CallChange.INPUTS,
                lambda call, tx: replace(inputs.remove_sent_responses(call, keys), updated_at=tx.now()),
            )

    # -- what the drive does --

    @asynccontextmanager
    async def write_progress_during(self) -> AsyncGenerator[None]:
        """Write down progress in here, and what comes too late not at all: the end carries the last."""
        self._accepts_progress_writes = True
        try:
            yield
        finally:
            self._accepts_progress_writes = False
            if (writing := self._progress_task) is not None:
                self._progress_task = None
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)

    def request_poll(self) -> None:
        """Have the driver look at its upstream now."""
        self._poll_requested.set()

    async def reread_call(self) -> Call:
        """The call as it is; the last known while the store cannot be read. Raises `LeaseLost`.

        What only we change is as it was acknowledged to us: as long as a dispatch has not returned, nothing was sent.
        """
        known = self.call
        try:
            call = await self._store.read(self._read_leased)
            self.call = replace(call, dispatched_at=known.dispatched_at, runs=known.runs, handle=known.handle)
        except StoreUnavailable:
            log.debug("call.not_read")
        except LeaseLost:
            self.lease_lost.set()
            raise
        return self.call

    async def was_cancelled(self) -> bool:
        """Whether the call that is not ours any more has ended as cancelled; False while the store cannot say."""
        with suppress(StoreUnavailable):
            call = await self._store.read(lambda tx: tx.calls.get(self.call.id))
            return call is not None and call.status is CallStatus.CANCELLED
        return False

    async def mark_dispatched(self) -> None:
        """Commit that the call goes upstream now; one that goes on from its handle is already there.

        Raises `LeaseLost`, and `StoreUnavailable`: then not a byte was sent.
        """
        self.call = await self._store.write(self._write_dispatched)

    async def finish_call(self, completion: CallCompletion) -> None:
        async def write() -> Call:
            finished = await self._completion_batcher.finish_call(self._leased_completion(completion))
            if finished is None:
                raise LeaseLost
            return finished

        ended = await self._write_with_retries(write)
        if ended is None:
            return
        about = {"call_id": ended.id, "upstream": ended.upstream, "tool": ended.tool, "outcome": str(ended.outcome)}
        log.info("call.finished", extra=about)

    async def park_call(self, parked: ParkedCall) -> None:
        if await self._write_with_retries(lambda: self._store.write(lambda tx: self._write_parked(tx, parked))):
            log.info("call.parked", extra={"call_id": self.call.id})

    async def requeue_call(self) -> None:
        """Let another runner have it, or end it if nobody can: whatever is true of a call that nobody drives any more."""
        if await self._write_with_retries(lambda: self._store.write(self._write_requeued)):
            log.info("call.handed_back", extra={"call_id": self.call.id})

    # -- units of work --

    async def _read_leased(self, tx: Transaction) -> Call:
        call = await tx.calls.get(self.call.id)
        if call is None or call.phase is not CallPhase.RUNNING or call.lease_token != self._lease_token:
            raise LeaseLost
        return call

    async def _write_dispatched(self, tx: Transaction) -> Call:
        call = await self._read_leased(tx)
        if call.handle is not None:
            return call
        dispatched = replace(call, dispatched_at=tx.now(), updated_at=tx.now(), runs=call.runs + 1)
        await tx.calls.update(dispatched, CallChange.DISPATCHED, expected=call.status, lease_token=self._lease_token)
        return dispatched

    def _leased_completion(self, completion: CallCompletion) -> LeasedCompletion:
        return LeasedCompletion(
            call_id=self.call.id,
            lease_token=self._lease_token,
            completion=completion,
            progress=self._progress_writer.latest,
        )

    async def _write_completion(self, tx: Transaction, completion: CallCompletion) -> Call | None:
        (finished,) = await self._recorder.finish_leased_calls(tx, [self._leased_completion(completion)])
        return finished

    async def _write_parked(self, tx: Transaction, parked: ParkedCall) -> Call | None:
        """Wait for answers, unless the end was asked for in the meantime: then nobody wants to answer."""
        call = await self._read_leased(tx)
        if call.cancel_requested:
            return await self._write_completion(tx, CANCELLED_COMPLETION)
        latest = self._progress_writer.latest or call.progress
        with_handle = replace(call, handle=parked.handle, progress=latest, input_responses={})
        updated = enter_phase(
            inputs.request_input(with_handle, parked.input_requests, now=tx.now()), CallPhase.PARKED, now=tx.now()
        )
        await self._recorder.record_input_requests(tx, call, updated, lease_token=self._lease_token)
        return updated

    async def _write_requeued(self, tx: Transaction) -> Call | None:
        """As `look`; but a handle that was committed and not acknowledged is as good as any."""
        call = await self._read_leased(tx)
        known = replace(
            call,
            dispatched_at=self.call.dispatched_at,
            runs=self.call.runs,
            handle=self.call.handle or call.handle,
        )
        recovered = recover_call(known, now=tx.now())
        if isinstance(recovered, CallCompletion):
            return await self._write_completion(tx, recovered)
        await tx.calls.update(recovered, CallChange.QUEUED, expected=call.status, lease_token=self._lease_token)
        tx.notify(CALL_QUEUED_TOPIC, call_changed_topic(call.id))
        return recovered

    async def _update_call(self, kind: CallChange, change: Callable[[Call, Transaction], Call]) -> None:
        async def work(tx: Transaction) -> Call:
            leased = await self._read_leased(tx)
            changed_call = change(leased, tx)
            await tx.calls.update(changed_call, kind, expected=leased.status, lease_token=self._lease_token)
            return changed_call

        self.call = await self._write_while_leased(work)

    # -- writing, also while the store cannot be written --

    async def _write_while_leased(self, work: "CallTransaction[Call]") -> Call:
        """Write until the store takes it, or until the lease is not trusted any more."""
        while not self.lease_lost.is_set():
            try:
                return await self._store.write(work)
            except LeaseLost:
                self.lease_lost.set()
            except StoreUnavailable:
                log.warning("call.not_written", extra={"call_id": self.call.id})
                await self._clock.sleep(STORE_RETRY_SECONDS)
        raise LeaseLost

    async def _write_with_retries(self, write: Callable[[], Awaitable[Call | None]]) -> Call | None:
        """Write until the store takes it: what was seen is not forgotten because a disk was full. None when it is not ours.

        Once the process must end there is one attempt more, and then None, too: the lease is voided at the next start, which
        does with the call what is true of one whose runner was lost.
        """
        while True:
            last = self._abort_requested.is_set()
            try:
                return await write()
            except LeaseLost:
                log.warning("call.lease_lost", extra={"call_id": self.call.id})
                return None
            except StoreUnavailable:
                if last:
                    log.error("call.left_unrecorded", extra={"call_id": self.call.id})  # noqa: TRY400 - the store has said why
                    return None
                log.warning("call.not_recorded", extra={"call_id": self.call.id})
                await self._wait_before_retry()

    async def _wait_before_retry(self) -> None:
        """Until the store may be written again, or the process must end."""
        cut = asyncio.Event()
        self._abort_requested.add_callback(cut.set)
        try:
            if not self._abort_requested.is_set():
                await wait_first(self._clock.sleep(STORE_RETRY_SECONDS), cut.wait())
        finally:
            self._abort_requested.remove_callback(cut.set)

    async def _record_progress(self, progress: Progress) -> None:
        try:
            leased = await self._store.write(
                lambda tx: self._recorder.record_progress(tx, self.call, progress, lease_token=self._lease_token)
            )
        except StoreUnavailable:
            return  # the next progress tries again, and the end is written down for certain
        if not leased:
            self.lease_lost.set()


class CallTransaction(Protocol[T_co]):
    async def __call__(self, tx: Transaction, /) -> T_co: ...
