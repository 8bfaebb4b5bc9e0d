"""The end of a lease: the call ends, is parked, or is queued again for another runner.

Each of them is one transaction, which reads the row and checks the lease token (`leased_call`). It is repeated while the store
is unavailable (`lease_writer`), and is not refused when the lease is no longer trusted: the end was observed, and while the
row carries this token no other process works on the call.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from ringback.domain import inputs
from ringback.domain.call import Call, CallPhase, awaits_confirmation, enter_phase
from ringback.domain.call_completion import recover_call
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import seconds
from ringback.domain.clock_confirmation import CONFIRMATION_SECONDS
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import CALL_QUEUED_TOPIC, call_changed_topic
from ringback.notifier.call_ends import LeasedCompletion
from ringback.notifier.completion_batcher import CompletionBatcher
from ringback.notifier.recorder import Recorder
from ringback.runner.drivers.driver import LeaseLost, ParkedCall
from ringback.runner.leased_call import LeasedCall
from ringback.services.logins.login_waits import LoginWaits, RefusedCall, note_login_accepted, write_for_owner


class LeaseEnd:
    """One of the public methods is called, once, after the run has ended."""

    def __init__(
        self,
        leased: LeasedCall,
        *,
        store: Store,
        recorder: Recorder,
        completion_batcher: CompletionBatcher,
        login_waits: LoginWaits,
    ) -> None:
        self._leased = leased
        self._store = store
        self._recorder = recorder
        self._completion_batcher = completion_batcher
        self._login_waits = login_waits

    async def finish_call(self, completion: CallCompletion) -> None:
        async def write() -> Call:
            finished = await self._completion_batcher.finish_call(self._leased_completion(completion))
            if finished is None:
                raise LeaseLost
            return finished

        await self._leased.writer.write_with_retries(write)

    async def park_call(self, parked: ParkedCall) -> None:
        await self._leased.writer.write_with_retries(
            lambda: self._store.write_for(self._leased.call.principal, lambda tx: self._write_parked(tx, parked))
        )

    async def park_for_login(self, owner: Principal, tokens_version: int | None) -> None:
        """Park the call until the owner of its credentials signs in; `tokens_version` did not suffice."""
        await self._park(
            owner,
            lambda tx, call: self._login_waits.park_call(
                tx,
                RefusedCall(
                    call=call, owner=owner, tokens_version=tokens_version, lease_token=self._leased.lease_token
                ),
            ),
        )

    async def park_again(self, owner: Principal) -> None:
        """Park a call that waits for a login and was sent again in vain. Nothing reached the upstream."""
        await self._park(
            owner, lambda tx, call: self._login_waits.park_again(tx, call, lease_token=self._leased.lease_token)
        )

    async def _park(self, owner: Principal, park_call: Callable[[Transaction, Call], Awaitable[Call]]) -> None:
        async def park(tx: Transaction) -> Call | None:
            await tx.login_waits.lock(self._leased.call.upstream, owner)
            call = await self._leased.read_leased(tx)
            if call.cancel_requested:
                return await self._write_completion(tx, CANCELLED_COMPLETION)
            return await park_call(tx, self._with_latest_progress(self._with_known_dispatch(call)))

        await self._leased.writer.write_with_retries(lambda: write_for_owner(self._store, owner, park))

    async def requeue_call(self) -> None:
        """Queue the call for another runner, or finish it if no runner can go on with it (`recover_call`).

        A call whose deadline has passed by an unconfirmed clock is scheduled for the time when the clock is confirmed.
        """
        await self._leased.store_latest_progress()
        await self._leased.writer.write_with_retries(
            lambda: self._store.write_for(self._leased.call.principal, self._write_requeued)
        )

    def _leased_completion(self, completion: CallCompletion) -> LeasedCompletion:
        return LeasedCompletion(
            call_id=self._leased.call.id,
            principal=self._leased.call.principal,
            lease_token=self._leased.lease_token,
            completion=completion,
            progress=self._leased.last_progress,
        )

    async def _write_completion(self, tx: Transaction, completion: CallCompletion) -> Call | None:
        (finished,) = await self._recorder.finish_leased_calls(tx, [self._leased_completion(completion)])
        return finished

    async def _write_parked(self, tx: Transaction, parked: ParkedCall) -> Call | None:
        """Park the call until its questions are answered. A call whose cancellation was requested ends instead."""
        call = await self._leased.read_leased(tx)
        if call.cancel_requested:
            return await self._write_completion(tx, CANCELLED_COMPLETION)
        handle = self._leased.mark_handle(parked.handle)
        with_handle = replace(self._with_latest_progress(call), handle=handle, input_responses={})
        asking = inputs.request_input(with_handle, parked.input_requests, now=tx.now())
        updated = enter_phase(asking, CallPhase.PARKED, now=tx.now())
        await self._recorder.record_input_requests(tx, call, updated, lease_token=self._leased.lease_token)
        await note_login_accepted(tx, call)
        return updated

    async def _write_requeued(self, tx: Transaction) -> Call | None:
        call = await self._leased.read_leased(tx)
        recovered = recover_call(self._with_known_dispatch(call), now=tx.now(), is_handed_back=True)
        if isinstance(recovered, CallCompletion):
            return await self._write_completion(tx, recovered)
        if awaits_confirmation(recovered, now=tx.now(), confirmed_now=tx.confirmed_now()):
            starts_at = tx.confirmed_now() + seconds(CONFIRMATION_SECONDS)
            recovered = replace(recovered, phase=CallPhase.SCHEDULED, not_before=starts_at)
        await tx.calls.update(recovered, CallChange.QUEUED, expected=call.status, lease_token=self._leased.lease_token)
        tx.notify(CALL_QUEUED_TOPIC, call_changed_topic(call.id))
        return recovered

    def _with_known_dispatch(self, call: Call) -> Call:
        """Acknowledged values, as in `reread_call`, but also a handle whose commit was not acknowledged."""
        known = self._leased.call
        return replace(call, dispatched_at=known.dispatched_at, runs=known.runs, handle=known.handle or call.handle)

    def _with_latest_progress(self, call: Call) -> Call:
        return replace(call, progress=self._leased.latest_progress or call.progress)
