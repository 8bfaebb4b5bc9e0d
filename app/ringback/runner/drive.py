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

from ringback.domain.call import CANCELLED, MRTR, Call, Ending, Outcome, failed, is_refusal, overdue
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.domain.signals import Bell, cancelling
from ringback.notifier.ends import Ends
from ringback.notifier.record import Recorder
from ringback.runner.desk import LeasedCall
from ringback.runner.drivers import CallSession, LeaseLost, Parked
from ringback.runner.failures import NotSent, RequestFailed
from ringback.runner.live import LiveHub
from ringback.waits import Flag

log = logging.getLogger(__name__)

ABANDON_SECONDS: Final = 6.0
"""How long an abandoned request may take to tell its upstream so, and telling it in words: the SDK gives each 5 s."""
LOOK_AGAIN_SECONDS: Final = 300.0
"""How long a lost ring can delay a cancellation. Ten thousand waiting calls then cost 33 reads a second; looking once a minute
took a tenth of a core (measured)."""
CANCEL_AGAIN_SECONDS: Final = 2.0
"""Between two attempts to tell an upstream that cannot be told."""
AWAY_SECONDS: Final = 5.0
"""Between two attempts to reach the upstream of a call that can be found again."""


Attempt = asyncio.Task[Ending | Parked | None]


class UpstreamUnreachable(Exception):
    """The upstream stayed away for as long as one waits for it; the message says how it failed last."""


class UpstreamNotConfigured(UpstreamUnreachable):
    """Nothing goes by the upstream's name any more, or not yet again."""


class Sessions(Protocol):
    """What the runner needs of the upstreams."""

    def capacity(self) -> Mapping[str, int]:
        """How many calls each upstream takes at once."""
        ...

    def session(self, call: Call) -> AbstractAsyncContextManager[CallSession]:
        """A live session for the call. Entering it waits for the upstream; raises `UpstreamUnreachable` if it stays away."""
        ...


class _Cut(Enum):
    """Why a drive is cut short."""

    LOST = auto()
    OVERDUE = auto()
    HALTED = auto()
    CANCELLED = auto()


@dataclass(frozen=True, slots=True)
class Halt:
    """The two steps of stopping, shared by all drives: first nothing new is dispatched, then what runs is cut off."""

    stopping: Flag = field(default_factory=Flag)
    cut: Flag = field(default_factory=Flag)


class Drive:
    def __init__(
        self,
        call: Call,
        *,
        trusted_until: float,
        store: Store,
        clock: Clock,
        recorder: Recorder,
        ends: Ends,
        sessions: Sessions,
        halt: Halt,
        live: LiveHub,
    ) -> None:
        self.trusted_until = trusted_until
        """By `Clock.monotonic`; prolonged by whoever prolongs the lease."""
        self._desk = LeasedCall(call, store=store, clock=clock, recorder=recorder, ends=ends, live=live, cut=halt.cut)
        self._store = store
        self._clock = clock
        self._sessions = sessions
        self._halt = halt
        self._session: CallSession | None = None
        self._told_to_stop = False
        self._came: Ending | Parked | None = None
        """What the upstream has said, from the moment it has, whatever becomes of the session that it said it in."""

    @property
    def call(self) -> Call:
        return self._desk.call

    def lose(self) -> None:
        """The lease is somebody else's now, or may be: stop the work here, and write nothing."""
        self._desk.lost.set()

    async def run(self) -> None:
        outcome = await self._carry()
        if self._desk.lost.is_set():
            if not await self._desk.was_cancelled():
                log.warning("call.lease_lost", extra={"call_id": self.call.id})
        elif isinstance(outcome, Ending):
            await self._desk.finish(outcome)
        elif isinstance(outcome, Parked):
            await self._desk.park(outcome)
        else:
            await self._desk.hand_back()

    # -- carrying it out --

    async def _carry(self) -> Ending | Parked | None:
        """Where the call stands when this drive is over; None when it is to be handed back."""
        if self._overdue():
            return await self._end_overdue()
        attempt = asyncio.create_task(self._attempt())
        try:
            with self._store.signals.listen(cancelling(self.call.id)) as bell, self._ringing(bell, attempt):
                while not attempt.done():
                    await bell.wait(self._patience())
                    if not attempt.done() and (cut := await self._must_stop()):
                        return await self._abandon(attempt, cut)
            return self._outcome_of(attempt)
        finally:
            attempt.cancel()

    @contextmanager
    def _ringing(self, bell: Bell, attempt: Attempt) -> Generator[None]:
        """The bell also rings for what happens here: the end of the attempt, and what may make it time to stop."""
        attempt.add_done_callback(lambda _: bell.ring())
        flags = (self._desk.lost, self._desk.kept, self._halt.stopping, self._halt.cut)
        for flag in flags:
            flag.watch(bell.ring)
            if (
                flag.is_set()
            ):  # nobody rings for what was before; a call that can be found may have been cancelled by then
                bell.ring()
        try:
            yield
        finally:
            for flag in flags:
                flag.unwatch(bell.ring)

    async def _end_overdue(self) -> Ending:
        """Its time was up before this drive began: an upstream that holds something of it is told, if it is there."""
        if self.call.handle is not None and self.call.handle.driver != MRTR:
            with suppress(UpstreamUnreachable, TimeoutError):
                async with asyncio.timeout(ABANDON_SECONDS), self._sessions.session(self.call) as session:
                    await self._tell(session)
        return overdue(self.call)

    async def _attempt(self) -> Ending | Parked | None:
        """Drive the call, over as many sessions as it takes if it can be found again."""
        while True:
            try:
                async with self._sessions.session(self.call) as session:
                    return await self._drive(session)
            except (UpstreamUnreachable, NotSent):
                if self.call.handle is None:
                    raise
            await self._clock.sleep(AWAY_SECONDS)

    async def _drive(self, session: CallSession) -> Ending | Parked | None:
        self._session = session
        try:
            if self.call.cancel_requested and (ending := await self._tell_to_stop()):
                return ending
            await self._desk.dispatch()
            async with self._desk.writing_progress():
                self._came = await session.drive(self._desk)
                return self._came
        except LeaseLost:
            await self._pass_on_cancellation()
            raise
        finally:
            self._session = None

    @property
    def _needs_us(self) -> bool:
        """Whether what runs upstream is lost when this process lets go of it."""
        return self.call.dispatched_at is not None and not self._desk.kept.is_set()

    def _patience(self) -> float:
        left = max(0.0, (self.call.deadline_at - self._clock.now()).total_seconds())
        untold = self.call.cancel_requested and not self._told_to_stop
        return min(left, CANCEL_AGAIN_SECONDS if untold else LOOK_AGAIN_SECONDS)

    # -- cutting it short --

    async def _must_stop(self) -> _Cut | None:
        try:
            call = await self._desk.look()
        except LeaseLost:
            await self._pass_on_cancellation()
            return _Cut.LOST
        if self._desk.lost.is_set():
            return _Cut.LOST
        if call.cancel_requested and await self._cancelled_by_telling():
            return _Cut.CANCELLED
        if self._overdue():
            return _Cut.OVERDUE
        return _Cut.HALTED if self._halted() else None

    async def _pass_on_cancellation(self) -> None:
        """Tell the upstream to stop when the call is not ours any more because it was cancelled for good."""
        if not self._told_to_stop and await self._desk.was_cancelled():
            await self._tell_to_stop()

    async def _cancelled_by_telling(self) -> bool:
        """Tell the upstream to stop; whether that ends the call, or the upstream will still tell how it ended."""
        if self._told_to_stop:
            return False
        if self._session is None and (self.call.handle is None or self.call.handle.driver == MRTR):
            return True
        ending = await self._tell_to_stop()
        self._desk.nudge()
        return ending is not None

    async def _tell_to_stop(self) -> Ending | None:
        return None if self._session is None else await self._tell(self._session)

    async def _tell(self, session: CallSession) -> Ending | None:
        try:
            async with asyncio.timeout(ABANDON_SECONDS):
                ending = await session.cancel(self.call)
        except (RequestFailed, TimeoutError):
            log.info("call.cancel_not_told", extra={"call_id": self.call.id})
            return None
        self._told_to_stop = True
        return ending

    async def _abandon(self, attempt: "Attempt", cut: _Cut) -> Ending | Parked | None:
        """Stop the request. An upstream that ended in this very moment has ended the call, truthfully.

        Unless what it answered is an error of its own, and it was told to stop: that is how some say that they did.
        """
        if cut is _Cut.OVERDUE and not self._told_to_stop:
            await self._tell_to_stop()
        attempt.cancel()
        await asyncio.wait({attempt}, timeout=ABANDON_SECONDS)
        if self._came is not None or (attempt.done() and not attempt.cancelled()):
            ended = self._came or self._outcome_of(attempt)
            if not (cut is _Cut.CANCELLED and self._told_to_stop and isinstance(ended, Ending) and is_refusal(ended)):
                return ended
        match cut:
            case _Cut.CANCELLED:
                return CANCELLED
            case _Cut.OVERDUE:
                return overdue(self.call)
            case _Cut.LOST | _Cut.HALTED:
                return None

    def _outcome_of(self, attempt: "Attempt") -> Ending | Parked | None:
        problem = asyncio.CancelledError() if attempt.cancelled() else attempt.exception()
        if problem is None:
            return attempt.result()
        dispatched = self.call.dispatched_at is not None
        if isinstance(problem, UpstreamNotConfigured):
            return None  # as with those that are still queued: it waits until there is one, or for its deadline
        if isinstance(problem, UpstreamUnreachable):
            return failed(Outcome.REJECTED, f"Upstream '{self.call.upstream}' could not be reached: {problem}")
        if isinstance(problem, LeaseLost):
            self._desk.lost.set()
            return None
        if isinstance(problem, StoreUnavailable) and not self._needs_us:
            return None
        # A bug of ours must not leave the call without an end.
        log.error("call.drive_failed", extra={"call_id": self.call.id}, exc_info=problem)
        outcome = Outcome.UNKNOWN if dispatched else Outcome.REJECTED
        return failed(outcome, "Ringback failed while it ran this call; its log says how.")

    def _overdue(self) -> bool:
        return self._clock.now() >= self.call.deadline_at

    def _halted(self) -> bool:
        return (self._halt.cut if self._needs_us else self._halt.stopping).is_set()
