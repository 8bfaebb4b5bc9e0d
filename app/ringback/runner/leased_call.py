"""A call under this process's lease, with every change that the lease holder makes to it.

Each change reads the row, checks the lease token and writes, in one transaction: a row under another lease is never changed,
whatever the clocks say. A driver's changes (`drivers.driver.CallContext`) are also refused once the lease is no longer trusted.
`lease_end` has the changes with which the lease ends.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from ringback.domain import inputs
from ringback.domain.call import (
    Call,
    CallPhase,
    CallStatus,
    Handle,
    Progress,
    ServerFingerprint,
    is_dispatched_by_lease,
    is_lease_current,
    without_dispatch,
)
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import Clock, format_iso
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import call_answered_topic
from ringback.domain.upstream_rows import UpstreamIntake
from ringback.domain.wait_words import describe_pause
from ringback.notifier.recorder import Recorder
from ringback.runner.drivers.driver import LeaseLost
from ringback.runner.lease_writer import LeaseWriter
from ringback.runner.leased_dispatch_record import LeasedDispatchRecord
from ringback.runner.permits import CallPermit
from ringback.runner.throttled_writer import ProgressRecord
from ringback.services.logins.login_waits import note_login_accepted
from ringback.telemetry.logs import call_facts
from ringback.upstreams.dispatch_records import enter_dispatch_record, leave_dispatch_record
from ringback.upstreams.notification_hub import NotificationHub
from ringback.waits import ObservableFlag

log = logging.getLogger(__name__)

SHOWN_WAIT_SECONDS_MIN: Final = 5.0
"""A shorter wait is over before its user looks, and each message is an event."""
_TOO_MANY_REQUESTS: Final = "The upstream takes no more requests now (HTTP 429)."
_SENT_AGAIN: Final = "The call was sent again."
"""Stays true while the tool runs, and after its end: many tools report no progress."""
_NOT_SENT_AGAIN: Final = "The upstream took no more requests (HTTP 429), and the call was not sent again."


class LeasedCall:
    """Implements `drivers.driver.CallContext`."""

    def __init__(
        self,
        call: Call,
        *,
        store: Store,
        clock: Clock,
        recorder: Recorder,
        notification_hub: NotificationHub,
        abort_requested: ObservableFlag,
        permit: CallPermit | None = None,
    ) -> None:
        """Once `abort_requested` is set, a write that the store refuses is left to the next process.

        A call without a permit counts towards no limit.
        """
        self._committed = call if is_dispatched_by_lease(call) else None
        """The call as committed, if it was leased as dispatched and its request is not sent yet."""
        self.call = self._unsent = call if self._committed is None else without_dispatch(call)
        self.lease_lost = ObservableFlag()
        """Set once another process holds the lease, or may hold it."""
        self.has_handle = ObservableFlag(is_set=call.handle is not None)
        """Set while another process could go on with the call."""
        self.upstream_paused = ObservableFlag()
        """Set once the call waits unsent although an operator has paused its upstream: it belongs in the queue."""
        self.lease_token = call.lease_token or ""
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._notification_hub = notification_hub
        self.writer = LeaseWriter(
            call, store=store, clock=clock, lease_lost=self.lease_lost, abort_requested=abort_requested
        )
        self._permit = permit
        self._poll_requested = ObservableFlag()
        self._progress = ProgressRecord(clock=clock)
        self._dispatch_record = LeasedDispatchRecord(self)
        self.sent_round: Handle | None = None
        """The handle that `save_handle(None)` removed: a round of the call is sent that continues from it."""
        self._server_fingerprint: ServerFingerprint | None = None

    # -- for drivers: `CallContext` --

    def enter_server(self, fingerprint: ServerFingerprint | None) -> None:
        self._server_fingerprint = fingerprint

    async def report_progress(self, progress: Progress) -> None:
        self._notification_hub.publish_progress(self.call.id, progress)
        self._progress.update(progress)

    async def save_handle(self, handle: Handle | None) -> None:
        if handle == self.call.handle:
            return
        is_accepted = handle is not None and handle != self.sent_round

        async def write_handle(tx: Transaction) -> Call:
            leased = await self.read_leased(tx)
            updated = replace(leased, handle=self.mark_handle(handle), updated_at=tx.now())
            await tx.calls.update(updated, CallChange.HANDLE, expected=leased.status, lease_token=self.lease_token)
            if is_accepted:
                await note_login_accepted(tx, leased)
            return updated

        if handle is None or is_accepted:
            self.sent_round = self.call.handle if handle is None else None
        record = self._dispatch_record
        written = await self.writer.write_while_leased(write_handle)
        if handle is None and not record.is_open:
            return  # the run was given up meanwhile, so the round is not sent: the call still goes on from its handle
        self.call = written
        if handle is not None:
            self.has_handle.set()
        else:
            self.has_handle.clear()

    async def request_input(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        if not requests and not self.call.input_requests:
            return  # other processes answer questions; only this one adds them
        call = await self.reread_call()
        if inputs.request_input(call, requests, now=call.updated_at) is call:
            return

        async def write_input_requests(tx: Transaction) -> Call:
            leased = await self.read_leased(tx)
            updated = inputs.request_input(leased, requests, now=tx.now())
            await self._recorder.record_input_requests(tx, leased, updated, lease_token=self.lease_token)
            await note_login_accepted(tx, leased)
            return updated

        self.call = await self.writer.write_while_leased(write_input_requests)

    async def wait_for_answers(self, timeout_seconds: float) -> Mapping[str, Any]:
        with self._store.signals.listen(call_answered_topic(self.call.id)) as waiter:
            self._poll_requested.add_callback(waiter.notify)
            try:
                if not (await self.reread_call()).input_responses and timeout_seconds > 0:
                    notified = self._poll_requested.is_set() or await waiter.wait(timeout_seconds)
                    self._poll_requested.clear()
                    if notified:  # a lost notification costs one timeout: the next wait begins with a read
                        await self.reread_call()
            finally:
                self._poll_requested.remove_callback(waiter.notify)
        return self.call.input_responses

    async def mark_answers_sent(self, keys: Collection[str]) -> None:
        if not keys:
            return

        async def write_inputs(tx: Transaction) -> Call:
            leased = await self.read_leased(tx)
            updated = replace(inputs.remove_sent_responses(leased, keys), updated_at=tx.now())
            await tx.calls.update(updated, CallChange.INPUTS, expected=leased.status, lease_token=self.lease_token)
            return updated

        self.call = await self.writer.write_while_leased(write_inputs)

    # -- for the execution --

    def begin_run(self) -> None:
        """Store progress, and refusals of the call's requests, from now on."""
        self._dispatch_record = LeasedDispatchRecord(self)
        enter_dispatch_record(self._dispatch_record)
        self._progress.begin_writes(self._record_progress)
        if _shows_wait(self.call.progress, self.call.upstream):  # of an earlier run, which was handed back or died
            self._report_message(_SENT_AGAIN)

    async def end_run(self) -> None:
        """Store no further progress by itself, because the completion carries the last, and send no request again."""
        self.give_up_run()
        leave_dispatch_record()
        await self._progress.end_writes()

    def give_up_run(self) -> None:
        """Let no request of the run be sent from now on, if the last one waits for a token."""
        self._dispatch_record.close()

    def request_poll(self) -> None:
        """End the driver's wait for answers, so that it polls its upstream now."""
        self._poll_requested.set()

    async def reread_call(self) -> Call:
        """The call as it is in the store; the last known one while the store is unavailable. Raises `LeaseLost`.

        Fields that only this process changes keep their acknowledged values: until `mark_dispatched` returns, nothing is sent.
        """
        try:
            call = await self._store.read(self.read_leased)
            known = self.call  # after the read: the call may have been dispatched meanwhile, and its arguments read
            self.call = replace(
                call,
                dispatched_at=known.dispatched_at,
                runs=known.runs,
                handle=known.handle,
                arguments=known.arguments,
                meta=known.meta,
            )
        except StoreUnavailable:
            log.debug("call.not_read", extra=call_facts(self.call))
        except LeaseLost:
            self.lease_lost.set()
            raise
        return self.call

    async def read_arguments(self) -> None:
        """Read the arguments if the lease has left them out. Raises `LeaseLost` or `StoreUnavailable`."""
        if self.call.arguments is not None:
            return
        whole = await self._store.read(lambda tx: tx.calls.get_whole(self.call.id))
        if whole is None:
            raise LeaseLost
        self.call = replace(self.call, arguments=whole.arguments, meta=whole.meta)

    async def leave_to_others(self) -> bool:
        """Whether other nodes may have the key of the arguments or of the login's tokens, which this one lacks.

        Then it leases no call of the principal for a while.

        Raises `StoreUnavailable`.
        """
        if not await self._store.read(lambda tx: tx.sealing_keys.lacks_any()):
            return False
        if self._permit is not None:
            self._permit.leave_to_others()
        return True

    async def was_cancelled(self) -> bool:
        """Whether the call has ended as cancelled; False while the store is unavailable."""
        with suppress(StoreUnavailable):
            call = await self._store.read(lambda tx: tx.calls.get(self.call.id))
            return call is not None and call.status is CallStatus.CANCELLED
        return False

    async def mark_dispatched(self, *, trusts_lease: bool) -> None:
        """Commit that the call is sent upstream now. A call with a handle was sent earlier and is not changed.

        If the lease has already committed it and is still trusted, there is nothing to write. Raises `LeaseLost` or
        `StoreUnavailable`: then no byte was sent.
        """
        committed, self._committed = self._committed, None
        if committed is None or not trusts_lease or not is_lease_current(committed, now=self._clock.now()):
            self.call = await self._store.write_for(self.call.principal, self._write_dispatched)
        elif self.call is self._unsent:
            self.call = committed
        else:
            self.call = replace(self.call, dispatched_at=committed.dispatched_at, runs=committed.runs)

    async def retract_dispatch(self) -> None:
        """Commit that the last tools/call did not reach its tool. For this process that counts before the commit."""
        self.call = without_dispatch(self.call)
        self.call = await self.writer.write_while_leased(lambda tx: self._write_dispatch(tx, at=None))

    async def wait_without_permit(self, seconds: float) -> None:
        """Wait, so that another call of the upstream may run meanwhile. Returns once this one may run again."""
        is_shown = seconds >= SHOWN_WAIT_SECONDS_MIN
        if is_shown:
            sent_at = self._clock.now() + timedelta(seconds=seconds)
            self._report_message(f"{_TOO_MANY_REQUESTS} The call is sent again at {format_iso(sent_at)}.")
        async with nullcontext() if self._permit is None else self._permit.given_back():
            await self._clock.sleep(seconds)
            await self._stay_while_paused()
        if is_shown:
            self._report_message(_SENT_AGAIN)

    async def _stay_while_paused(self) -> None:
        """Return at once, unless an operator has paused the upstream: then the execution hands the call back, unsent."""
        with suppress(StoreUnavailable):
            controls = await self._store.read(lambda tx: tx.upstream_controls.list_all())
            if any(each.upstream == self.call.upstream and each.intake is UpstreamIntake.PAUSED for each in controls):
                self._report_message(describe_pause(self.call.upstream))
                self.upstream_paused.set()
                await asyncio.Event().wait()

    def _report_message(self, message: str) -> None:
        """Show the message with the progress that the tool has reported. It goes to no listener: it is not the tool's."""
        latest = self._progress.latest or self.call.progress or Progress(progress=0.0)
        self._progress.update(replace(latest, message=message))

    async def repeat_dispatch(self) -> None:
        dispatched = await self.writer.write_while_leased(self._write_dispatched)
        self.call = dispatched if self._dispatch_record.is_open else self.call

    # -- for the end of the lease (`lease_end`) --

    @property
    def latest_progress(self) -> Progress | None:
        """The latest progress of this run, stored or not."""
        return self._progress.latest

    @property
    def last_progress(self) -> Progress | None:
        """The progress of the call at its end, without the time at which it would have been sent again."""
        latest = self._progress.latest
        if latest is None or not _shows_wait(latest, self.call.upstream):
            return latest
        return replace(latest, message=_NOT_SENT_AGAIN)

    async def store_latest_progress(self) -> None:
        if self._progress.unstored is not None:
            await self._record_progress(self._progress.unstored)

    def mark_handle(self, handle: Handle | None) -> Handle | None:
        """The handle with the server on which it is valid."""
        return None if handle is None else replace(handle, server_fingerprint=self._server_fingerprint)

    # -- transactions --

    async def read_leased(self, tx: Transaction) -> Call:
        """The row, with the arguments that are known. Raises `LeaseLost`."""
        call = await tx.calls.get(self.call.id)
        if call is None or call.phase is not CallPhase.RUNNING or call.lease_token != self.lease_token:
            raise LeaseLost
        return replace(call, arguments=self.call.arguments, meta=self.call.meta)

    async def _write_dispatched(self, tx: Transaction) -> Call:
        return await self._write_dispatch(tx, at=tx.now())

    async def _write_dispatch(self, tx: Transaction, *, at: datetime | None) -> Call:
        call = await self.read_leased(tx)
        if call.handle is not None:
            return call
        runs = self.call.runs + (at is not None)
        changed = replace(call, dispatched_at=at, runs=runs, updated_at=tx.now())
        await tx.calls.update(changed, CallChange.DISPATCHED, expected=call.status, lease_token=self.lease_token)
        return changed

    async def _record_progress(self, progress: Progress) -> None:
        try:
            leased = await self._store.write_for(
                self.call.principal,
                lambda tx: self._recorder.record_progress(tx, self.call, progress, lease_token=self.lease_token),
            )
        except StoreUnavailable:
            return  # the next progress is another attempt, and the completion carries the last one
        if not leased:
            self.lease_lost.set()


def _shows_wait(progress: Progress | None, upstream: str) -> bool:
    """Whether the progress says that the call waits unsent, after HTTP 429 or for a paused upstream."""
    message = "" if progress is None else progress.message or ""
    return message.startswith(_TOO_MANY_REQUESTS) or message == describe_pause(upstream)
