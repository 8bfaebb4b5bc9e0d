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
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from ringback.domain import inputs
from ringback.domain.call import CANCELLED, Call, Ending, Handle, Phase, Progress, Status, enter
from ringback.domain.call_rows import Change
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.recovery import recover
from ringback.domain.signals import QUEUED, answered, changed
from ringback.notifier.ends import Ends
from ringback.notifier.record import End, Recorder
from ringback.runner.drivers import LeaseLost, Parked
from ringback.runner.live import LiveHub
from ringback.runner.progress import ProgressKeeper
from ringback.waits import Flag, first_of

log = logging.getLogger(__name__)

T_co = TypeVar("T_co", covariant=True)

STORE_PAUSE_SECONDS: Final = 1.0
"""Between two attempts to write something down while the store cannot be written."""


class LeasedCall:
    """Implements `runner.drivers.Desk`."""

    def __init__(
        self, call: Call, *, store: Store, clock: Clock, recorder: Recorder, ends: Ends, live: LiveHub, cut: Flag
    ) -> None:
        """`cut` is set once this process must end: what the store does not take then is left to the next one."""
        self.call = call
        self.lost = Flag()
        """Set once the lease is somebody else's, or may be."""
        self.kept = Flag(is_set=call.handle is not None)
        """Set while the call can be found again."""
        self._lease_token = call.lease_token or ""
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._ends = ends
        self._live = live
        self._cut = cut
        self._nudged = Flag()
        self._progress_keeper = ProgressKeeper(self._write_progress, clock=clock)
        self._may_write_progress = False
        self._writing_progress: asyncio.Task[None] | None = None
        """From the first progress on, which most calls never tell."""

    # -- what drivers do --

    async def progress(self, progress: Progress) -> None:
        self._live.progress(self.call.id, progress)
        await self._progress_keeper.take(progress)
        if self._may_write_progress and self._writing_progress is None:
            self._writing_progress = asyncio.create_task(self._progress_keeper.run())

    async def keep(self, handle: Handle | None) -> None:
        await self._change(Change.HANDLE, lambda call, tx: replace(call, handle=handle, updated_at=tx.now()))
        if handle is not None:
            self.kept.set()
        else:
            self.kept.clear()

    async def ask(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        if not requests and not self.call.input_requests:
            return  # others take questions away, and add none
        call = await self.look()
        if inputs.ask(call, requests, now=call.updated_at) is call:
            return

        async def ask(tx: Transaction) -> Call:
            held = await self._held(tx)
            asked = inputs.ask(held, requests, now=tx.now())
            await self._recorder.ask(tx, held, asked, lease_token=self._lease_token)
            return asked

        self.call = await self._write(ask)

    async def answers(self, timeout_seconds: float) -> Mapping[str, Any]:
        with self._store.signals.listen(answered(self.call.id)) as bell:
            self._nudged.watch(bell.ring)
            try:
                if not (await self.look()).input_responses and timeout_seconds > 0:
                    rung = self._nudged.is_set() or await bell.wait(timeout_seconds)
                    self._nudged.clear()
                    if rung:  # a ring that was lost is made up for by the next asking, which begins with a look
                        await self.look()
            finally:
                self._nudged.unwatch(bell.ring)
        return self.call.input_responses

    async def passed_on(self, keys: Collection[str]) -> None:
        if keys:
            await self._change(Change.INPUTS, lambda call, tx: replace(inputs.pass_on(call, keys), updated_at=tx.now()))

    # -- what the drive does --

    @asynccontextmanager
    async def writing_progress(self) -> AsyncGenerator[None]:
        """Write down progress in here, and what comes too late not at all: the end carries the last."""
        self._may_write_progress = True
        try:
            yield
        finally:
            self._may_write_progress = False
            if (writing := self._writing_progress) is not None:
                self._writing_progress = None
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)

    def nudge(self) -> None:
        """Have the driver look at its upstream now."""
        self._nudged.set()

    async def look(self) -> Call:
        """The call as it is; the last known while the store cannot be read. Raises `LeaseLost`.

        What only we change is as it was acknowledged to us: as long as a dispatch has not returned, nothing was sent.
        """
        known = self.call
        try:
            call = await self._store.read(self._held)
            self.call = replace(call, dispatched_at=known.dispatched_at, runs=known.runs, handle=known.handle)
        except StoreUnavailable:
            log.debug("call.not_read")
        except LeaseLost:
            self.lost.set()
            raise
        return self.call

    async def was_cancelled(self) -> bool:
        """Whether the call that is not ours any more has ended as cancelled; False while the store cannot say."""
        with suppress(StoreUnavailable):
            call = await self._store.read(lambda tx: tx.calls.get(self.call.id))
            return call is not None and call.status is Status.CANCELLED
        return False

    async def dispatch(self) -> None:
        """Commit that the call goes upstream now; one that goes on from its handle is already there.

        Raises `LeaseLost`, and `StoreUnavailable`: then not a byte was sent.
        """
        self.call = await self._store.write(self._dispatch)

    async def finish(self, ending: Ending) -> None:
        ended = await self._persist(lambda: self._ends.finish(partial(self._end, ending=ending)))
        if ended is None:
            return
        about = {"call_id": ended.id, "upstream": ended.upstream, "tool": ended.tool, "outcome": str(ended.outcome)}
        log.info("call.finished", extra=about)

    async def park(self, parked: Parked) -> None:
        if await self._persist(lambda: self._store.write(lambda tx: self._park(tx, parked))):
            log.info("call.parked", extra={"call_id": self.call.id})

    async def hand_back(self) -> None:
        """Let another runner have it, or end it if nobody can: whatever is true of a call that nobody drives any more."""
        if await self._persist(lambda: self._store.write(self._hand_back)):
            log.info("call.handed_back", extra={"call_id": self.call.id})

    # -- units of work --

    async def _held(self, tx: Transaction) -> Call:
        call = await tx.calls.get(self.call.id)
        if call is None or call.phase is not Phase.RUNNING or call.lease_token != self._lease_token:
            raise LeaseLost
        return call

    async def _dispatch(self, tx: Transaction) -> Call:
        call = await self._held(tx)
        if call.handle is not None:
            return call
        dispatched = replace(call, dispatched_at=tx.now(), updated_at=tx.now(), runs=call.runs + 1)
        await tx.calls.update(dispatched, Change.DISPATCHED, expected=call.status, lease_token=self._lease_token)
        return dispatched

    async def _end(self, tx: Transaction, *, ending: Ending) -> End | None:
        """The end of the call as it stands, with the last progress; None when it is not ours."""
        try:
            call = await self._held(tx)
        except LeaseLost:
            log.warning("call.lease_lost", extra={"call_id": self.call.id})
            return None
        latest = replace(call, progress=self._progress_keeper.latest or call.progress)
        return End(call=latest, ending=ending, lease_token=self._lease_token)

    async def _finish(self, tx: Transaction, ending: Ending) -> Call | None:
        end = await self._end(tx, ending=ending)
        return None if end is None else await self._recorder.finish(tx, end.call, ending, lease_token=end.lease_token)

    async def _park(self, tx: Transaction, parked: Parked) -> Call | None:
        """Wait for answers, unless the end was asked for in the meantime: then nobody wants to answer."""
        call = await self._held(tx)
        if call.cancel_requested:
            return await self._finish(tx, CANCELLED)
        latest = self._progress_keeper.latest or call.progress
        told = replace(call, handle=parked.handle, progress=latest, input_responses={})
        asked = enter(inputs.ask(told, parked.requests, now=tx.now()), Phase.PARKED, now=tx.now())
        await self._recorder.ask(tx, call, asked, lease_token=self._lease_token)
        return asked

    async def _hand_back(self, tx: Transaction) -> Call | None:
        """As `look`; but a handle that was committed and not acknowledged is as good as any."""
        call = await self._held(tx)
        known = replace(
            call,
            dispatched_at=self.call.dispatched_at,
            runs=self.call.runs,
            handle=self.call.handle or call.handle,
        )
        recovered = recover(known, now=tx.now())
        if isinstance(recovered, Ending):
            return await self._finish(tx, recovered)
        await tx.calls.update(recovered, Change.QUEUED, expected=call.status, lease_token=self._lease_token)
        tx.ring(QUEUED, changed(call.id))
        return recovered

    async def _change(self, kind: Change, change: Callable[[Call, Transaction], Call]) -> None:
        async def work(tx: Transaction) -> Call:
            held = await self._held(tx)
            changed_call = change(held, tx)
            await tx.calls.update(changed_call, kind, expected=held.status, lease_token=self._lease_token)
            return changed_call

        self.call = await self._write(work)

    # -- writing, also while the store cannot be written --

    async def _write(self, work: "Work[Call]") -> Call:
        """Write until the store takes it, or until the lease is not trusted any more."""
        while not self.lost.is_set():
            try:
                return await self._store.write(work)
            except LeaseLost:
                self.lost.set()
            except StoreUnavailable:
                log.warning("call.not_written", extra={"call_id": self.call.id})
                await self._clock.sleep(STORE_PAUSE_SECONDS)
        raise LeaseLost

    async def _persist(self, write: Callable[[], Awaitable[Call | None]]) -> Call | None:
        """Write until the store takes it: what was seen is not forgotten because a disk was full. None when it is not ours.

        Once the process must end there is one attempt more, and then None, too: the lease is voided at the next start, which
        does with the call what is true of one whose runner was lost.
        """
        while True:
            last = self._cut.is_set()
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
                await self._pause()

    async def _pause(self) -> None:
        """Until the store may be written again, or the process must end."""
        cut = asyncio.Event()
        self._cut.watch(cut.set)
        try:
            if not self._cut.is_set():
                await first_of(self._clock.sleep(STORE_PAUSE_SECONDS), cut.wait())
        finally:
            self._cut.unwatch(cut.set)

    async def _write_progress(self, progress: Progress) -> None:
        try:
            held = await self._store.write(
                lambda tx: self._recorder.progress(tx, self.call, progress, lease_token=self._lease_token)
            )
        except StoreUnavailable:
            return  # the next progress tries again, and the end is written down for certain
        if not held:
            self.lost.set()


class Work(Protocol[T_co]):
    async def __call__(self, tx: Transaction, /) -> T_co: ...
