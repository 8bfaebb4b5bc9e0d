"""One leased call, from its lease to its end.

    lease ──▶ session ready ──▶ dispatched_at committed ──▶ tools/call ──▶ end written down
                 │                                            │
                 └ stopping: handed back, queued again        └ stopping: `unknown`, because it may have run

Whatever cuts a drive short (a cancellation, the deadline, the end of the service, a lost lease) abandons the request, which
tells the upstream to stop, and decides the outcome by one question: was it dispatched?
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from ringback.domain.call import CANCELLED, Call, Ending, Outcome, Progress, Status, failed
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction, cancelling
from ringback.notifier.record import Recorder
from ringback.runner.drivers import CallSession
from ringback.runner.progress import ProgressKeeper
from ringback.waits import first_of

log = logging.getLogger(__name__)

STORE_PAUSE_SECONDS: Final = 1.0
"""Between two attempts to write down an end while the store cannot be written."""
ABANDON_SECONDS: Final = 6.0
"""How long an abandoned request may take to tell its upstream so: the SDK gives that notification 5 s."""
LOOK_AGAIN_SECONDS: Final = 60.0
"""How long a lost ring can delay a cancellation. Ten thousand waiting calls then cost 170 reads a second."""


class UpstreamUnreachable(Exception):
    """The upstream stayed away for as long as one waits for it; the message says how it failed last."""


class Sessions(Protocol):
    """What the runner needs of the upstreams."""

    def capacity(self) -> Mapping[str, int]:
        """How many calls each upstream takes at once."""
        ...

    def session(self, upstream: str) -> AbstractAsyncContextManager[CallSession]:
        """A live session; entering it waits for the upstream, and raises `UpstreamUnreachable` when it stays away."""
        ...


@dataclass(slots=True)
class Halt:
    """The two steps of stopping, shared by all drives: first nothing new is dispatched, then what runs is cut off."""

    stopping: asyncio.Event
    cut: asyncio.Event


class Drive:
    def __init__(
        self, call: Call, *, store: Store, clock: Clock, recorder: Recorder, sessions: Sessions, halt: Halt
    ) -> None:
        self._call = call
        self._lease_token = call.lease_token or ""
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._sessions = sessions
        self._halt = halt
        self._lost = asyncio.Event()
        self._progress = ProgressKeeper(self._write_progress, clock=clock)

    @property
    def call(self) -> Call:
        return self._call

    def lose(self) -> None:
        """The lease is somebody else's now: stop the work here, and write nothing."""
        self._lost.set()

    async def run(self) -> None:
        ending = await self._carry()
        if self._lost.is_set():
            log.warning("call.lease_lost", extra={"call_id": self._call.id})
        elif ending is None:
            await self._persist(self._hand_back)
        else:
            await self._persist(lambda tx: self._finish(tx, ending))

    @property
    def _dispatched(self) -> bool:
        return self._call.dispatched_at is not None

    # -- carrying it out --

    async def _carry(self) -> Ending | None:
        """The call's end; None when it was not begun and may be begun by somebody else."""
        attempt = asyncio.create_task(self._attempt())
        try:
            with self._store.signals.listen(cancelling(self._call.id)) as bell:
                while not attempt.done():
                    left = max(0.0, (self._call.deadline_at - self._clock.now()).total_seconds())
                    await first_of(
                        asyncio.shield(attempt),
                        bell.wait(min(left, LOOK_AGAIN_SECONDS)),
                        self._lost.wait(),
                        self._halt.cut.wait() if self._dispatched else self._halt.stopping.wait(),
                    )
                    if not attempt.done() and await self._must_stop():
                        return await self._abandon(attempt)
            return self._ending_of(attempt)
        finally:
            attempt.cancel()

    async def _attempt(self) -> Ending | None:
        async with self._sessions.session(self._call.upstream) as session:
            dispatched = await self._store.write(self._dispatch)
            if dispatched is None:
                return None
            self._call = dispatched
            writing = asyncio.create_task(self._progress.run())
            try:
                return await session.drive(dispatched, on_progress=self._progress.take)
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)

    async def _must_stop(self) -> bool:
        if self._lost.is_set() or self._overdue() or self._halted():
            return True
        try:
            call = await self._store.read(lambda tx: tx.calls.get(self._call.id))
        except StoreUnavailable:
            return False
        if call is None or call.final:
            self.lose()
        elif call.cancel_requested:
            self._call = replace(self._call, cancel_requested=True)
        return self._lost.is_set() or self._call.cancel_requested

    async def _abandon(self, attempt: "asyncio.Task[Ending | None]") -> Ending | None:
        """Stop the request. An upstream that ended in this very moment has ended the call, truthfully."""
        attempt.cancel()
        await asyncio.wait({attempt}, timeout=ABANDON_SECONDS)
        if attempt.done() and not attempt.cancelled():
            return self._ending_of(attempt)
        return self._why_abandoned()

    def _why_abandoned(self) -> Ending | None:
        if self._call.cancel_requested:
            return CANCELLED
        if self._overdue():
            if self._dispatched:
                return failed(Outcome.TIMED_OUT, "The call's deadline passed before the tool answered.")
            return failed(Outcome.REJECTED, "The call's deadline passed before the upstream could take it.")
        if self._dispatched:
            return failed(Outcome.UNKNOWN, "Ringback was stopped while the tool ran. It may have done its work.")
        return None

    def _ending_of(self, attempt: "asyncio.Task[Ending | None]") -> Ending | None:
        problem = asyncio.CancelledError() if attempt.cancelled() else attempt.exception()
        if problem is None:
            return attempt.result()
        if isinstance(problem, UpstreamUnreachable):
            return failed(Outcome.REJECTED, f"Upstream '{self._call.upstream}' could not be reached: {problem}")
        if isinstance(problem, StoreUnavailable) and not self._dispatched:
            return None
        # A bug of ours must not leave the call without an end.
        log.error("call.drive_failed", extra={"call_id": self._call.id}, exc_info=problem)
        outcome = Outcome.UNKNOWN if self._dispatched else Outcome.REJECTED
        return failed(outcome, "Ringback failed while it ran this call; its log says how.")

    def _overdue(self) -> bool:
        return self._clock.now() >= self._call.deadline_at

    def _halted(self) -> bool:
        return (self._halt.cut if self._dispatched else self._halt.stopping).is_set()

    # -- writing it down --

    async def _persist(self, work: "Work") -> None:
        """Write until the store takes it: an end that was seen is not forgotten because a disk was full."""
        while True:
            try:
                await self._store.write(work)
            except StoreUnavailable:
                log.warning("call.not_recorded", extra={"call_id": self._call.id})
                await self._clock.sleep(STORE_PAUSE_SECONDS)
            else:
                return

    async def _dispatch(self, tx: Transaction) -> Call | None:
        """Commit that the call goes upstream now, unless it has ended or belongs to somebody else."""
        call = await tx.calls.get(self._call.id)
        if call is None or call.final or call.lease_token != self._lease_token:
            self.lose()
            return None
        dispatched = replace(call, dispatched_at=tx.now(), updated_at=tx.now(), runs=call.runs + 1)
        await tx.calls.update(dispatched, expected=call.status, lease_token=self._lease_token)
        return dispatched

    async def _finish(self, tx: Transaction, ending: Ending) -> None:
        call = await tx.calls.get(self._call.id)
        if call is None or call.final:
            return
        latest = replace(call, progress=self._progress.latest or call.progress)
        ended = await self._recorder.finish(tx, latest, ending, lease_token=self._lease_token)
        _report(ended or call, ending, held=ended is not None)

    async def _hand_back(self, tx: Transaction) -> None:
        """Queue it again. Not a byte of it went out, even if its dispatch was committed in the moment of stopping."""
        call = await tx.calls.get(self._call.id)
        if call is not None and call.status is Status.WORKING:
            queued = replace(
                call, dispatched_at=None, runs=self._call.runs, lease_owner=None, lease_token=None, lease_until=None
            )
            await tx.calls.update(queued, expected=call.status, lease_token=self._lease_token)

    async def _write_progress(self, progress: Progress) -> None:
        try:
            held = await self._store.write(
                lambda tx: self._recorder.progress(tx, self._call, progress, lease_token=self._lease_token)
            )
        except StoreUnavailable:
            return  # the next progress tries again, and the end is written down for certain
        if not held:
            self.lose()


class Work(Protocol):
    async def __call__(self, tx: Transaction, /) -> None: ...


def _report(call: Call, ending: Ending, *, held: bool) -> None:
    log.info(
        "call.finished" if held else "call.lease_lost",
        extra={"call_id": call.id, "upstream": call.upstream, "tool": call.tool, "outcome": str(ending.outcome)},
    )
