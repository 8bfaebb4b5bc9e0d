"""Requests that start calls have priority over background work.

    Calls.start_call ──admit_call──▶ checked, stored ──its commit begins──▶ committed ──▶ 202
    an execution or attempt ──wait_for_background_turn──▶ begins: while no call is admitted, in each turn of the event loop
                                                          one execution or some attempts

The execution and callback of a call take about fifty turns of the event loop, its admission takes five. With equal priority a
202 would wait under load as long as all other work (46 ms at the median instead of 4, measured). So background work waits to
begin while a call is admitted, and the store writes admissions first. It does not wait for the disk: an admission ends for the
gate when its commit begins, and while admissions wait for the commit before theirs, the event loop has nothing to do, which
the gate probes. (At 150 starts a second, without these two, the callback of a call arrived after 0.8 s at the median, and after
0.06 to 0.15 s with them.)

A flood of requests does not stop the background work: one piece begins after each `BACKGROUND_INTERVAL_SECONDS` of CPU time,
and several at once after a turn of the event loop that took longer. Work that has begun is never delayed: it holds leases,
connections and permits.

Principals take turns. A principal that starts 250 calls a second has 200 pieces that wait; the one piece of another principal
would begin after all of them (0.8 of the 1.3 s until the end of a call that takes 5 ms upstream, measured).

The starts of a principal with many unfinished calls are background work themselves (`start_turns`): its ends keep up with them,
and the starts of other principals come before them. They wait for `START_WAIT_SECONDS` at most.
"""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Final, NamedTuple

from ringback.domain.principal import Principal
from ringback.start_turns import START_WAIT_SECONDS, StartTurns

BACKGROUND_INTERVAL_SECONDS: Final = 0.005
"""CPU time of the event loop's thread between two pieces of background work that begin while calls are admitted: about twice
the CPU time of a piece, so a flood of admissions leaves half of it. It is not the time of a clock: where other processes use
the cores, much time passes in one turn, pieces would begin by the dozen, and the calls that follow them would all arrive at
once (a 202 of a saturated service took three times as long, measured on two cores shared by twenty processes)."""
IDLE_INTERVALS: Final = 4
"""Or so many intervals by the clock, if they are over first: other processes may use the cores."""
PROBE_INTERVALS: Final = 0.2
"""The length of a probe, as a part of the interval: 1 ms. Its timer has no shorter pauses: one that waits for the rest of an
interval of CPU time would ring again and again, because a waiting event loop uses none."""
PROBE_DELAY_MAX: Final = 3
"""A probe that took more than so many times its length has waited for a turn of the event loop, or for a core."""
BACKGROUND_WAIT_SECONDS: Final = 5.0
"""A piece that has waited this long begins with the next `RELEASE_BATCH_MAX`. So all 2,048 attempts that may be in flight begin
within ten seconds, inside their leases."""
EXECUTION_WEIGHT: Final = 32
"""Of the beginning of an execution, as attempts: its first step takes 1 to 2 ms, that of an attempt a tenth of one."""
TURN_WEIGHT: Final = EXECUTION_WEIGHT
"""What begins in one turn of the event loop while no call is admitted: some 3 ms. If each attempt had a turn of its own,
responses would arrive one by one, and each transaction would record a few (1.6 times the CPU time of a delivery, measured)."""
ATTEMPT_WEIGHT_BESIDE_STARTS: Final = 8
"""Of an attempt within `STARTS_SECONDS` of an admission, because the next one waits for the turns before it. Measured with 64
clients that start calls all the time: one attempt in each turn gives a 202 of 19 ms and 1.05 times the CPU time of a naive
service, four give 23 ms and 0.9 times, and thirty-two 36 ms and 0.75 times."""
STARTS_SECONDS: Final = 1.0
RELEASE_BATCH_MAX: Final = 16
"""Pieces that begin at once after a long turn of the event loop: 16 compensate for 80 ms of CPU time, and take about 30 ms."""


class Admission:
    """The admission of a call. It has priority until it ends."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end: Callable[[], None] | None = on_end

    def end(self) -> None:
        """Call it when the commit begins: from then on the call waits for the disk. It may be called again."""
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()


_ADMISSION: Final[ContextVar[Admission | None]] = ContextVar("ringback_admission", default=None)


def find_admission() -> Admission | None:
    """The admission that the current context belongs to, also if it has ended."""
    return _ADMISSION.get()


def leave_admission_context() -> None:
    """This task, and each task that it starts, no longer belongs to the admission that started it."""
    _ADMISSION.set(None)


class _WaitingPiece(NamedTuple):
    may_begin: asyncio.Future[None]
    weight: int
    since: float
    """By the clock of the event loop."""


class _WaitingPieces:
    """Pieces begin in turns between principals, or the oldest first. Those that began, or were cancelled, are dropped later."""

    def __init__(self) -> None:
        self._by_age: deque[_WaitingPiece] = deque()
        self._by_principal: OrderedDict[Principal, deque[_WaitingPiece]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_age)

    @property
    def oldest_since(self) -> float:
        return self._by_age[0].since

    def add_piece(self, principal: Principal, piece: _WaitingPiece) -> None:
        self._by_age.append(piece)
        self._by_principal.setdefault(principal, deque()).append(piece)

    def drop_oldest_done(self) -> None:
        """If any piece is left afterwards, the oldest one waits."""
        while self._by_age and self._by_age[0].may_begin.done():
            self._by_age.popleft()
        if not self._by_age:
            self._by_principal.clear()

    def begin_oldest(self) -> None:
        if self._by_age:
            self._by_age[0].may_begin.set_result(None)
            self.drop_oldest_done()

    def begin_next(self) -> int:
        """Begin the oldest piece of the principal that comes next, and return its weight. The principal goes behind others."""
        weight = 0
        while self._by_principal and not weight:
            principal, pieces = self._by_principal.popitem(last=False)
            while pieces and pieces[0].may_begin.done():
                pieces.popleft()
            if pieces:
                piece = pieces.popleft()
                piece.may_begin.set_result(None)
                weight = piece.weight
                if pieces:
                    self._by_principal[principal] = pieces
        self.drop_oldest_done()
        return weight


class AdmissionGate:
    """Belongs to one event loop and uses its clock. `cpu_time` returns the CPU time of the calling thread in seconds."""

    def __init__(
        self,
        *,
        interval_seconds: float = BACKGROUND_INTERVAL_SECONDS,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._interval_seconds = interval_seconds
        self._idle_interval_seconds = IDLE_INTERVALS * interval_seconds
        self._probe_seconds = PROBE_INTERVALS * interval_seconds
        self._cpu_time = cpu_time
        self._admissions = 0
        self._last_admission_at = -math.inf
        """By the clock of the event loop."""
        self._weight_left = TURN_WEIGHT
        """What may still begin in this turn of the event loop."""
        self._released_at = self._released_at_cpu_time = 0.0
        self._probed_at = self._probed_at_cpu_time = 0.0
        self._waiting = _WaitingPieces()
        self._timer: asyncio.TimerHandle | None = None
        self._start_turns = StartTurns()

    @contextmanager
    def admit_call(self) -> Generator[None]:
        """A call is admitted while this is entered, until its commit begins."""
        self._begin_admission()
        admission = Admission(self._end_admission)
        token = _ADMISSION.set(admission)
        try:
            yield
        finally:
            _ADMISSION.reset(token)
            admission.end()

    def _end_admission(self) -> None:
        self._admissions -= 1
        self._release_next()

    def _begin_admission(self) -> None:
        self._last_admission_at = asyncio.get_running_loop().time()
        if not self._admissions:
            self._released_at_cpu_time = (
                self._cpu_time()
            )  # read only here and beside admissions: reading it takes microseconds
        self._admissions += 1

    @property
    def is_quiet(self) -> bool:
        """Whether at most one call is admitted and no background work waits to begin."""
        return self._admissions <= 1 and not self._waiting

    def hold_work(self, principal: Principal) -> AbstractContextManager[None]:
        """While this is entered, the service works on a call of the principal, and no upstream or receiver does."""
        return self._start_turns.hold_work(principal)

    def hold_end(self, principal: Principal) -> AbstractContextManager[None]:
        """While this is entered, the service writes the end of a call of the principal."""
        return self._start_turns.hold_end(principal)

    async def wait_for_admission(self, principal: Principal, *, is_background: bool) -> AbstractContextManager[None]:
        """Return what to enter while a call of this principal is admitted.

        With `is_background`, for a principal with many unfinished calls, wait for a turn; the start then has no priority.
        After `START_WAIT_SECONDS` it begins without a turn, with the priority of any start: behind the other work of its
        principal it would wait for many seconds more.
        """
        if is_background:
            with suppress(TimeoutError):
                async with asyncio.timeout(START_WAIT_SECONDS), self._start_turns.begin_start(principal):
                    if not self._begins_now(EXECUTION_WEIGHT):
                        await self._wait_for_turn(principal, EXECUTION_WEIGHT)
                return nullcontext()
        return self.admit_call()

    async def wait_for_background_turn(self, principal: Principal, *, is_attempt: bool = False) -> None:
        """Return when an execution of a call of this principal, or an attempt of a delivery, may begin."""
        weight = self._weigh_attempt() if is_attempt else EXECUTION_WEIGHT
        if not self._begins_now(weight):
            with self.hold_work(principal):
                await self._wait_for_turn(principal, weight)

    def _weigh_attempt(self) -> int:
        may_start_calls = asyncio.get_running_loop().time() - self._last_admission_at < STARTS_SECONDS
        return ATTEMPT_WEIGHT_BESIDE_STARTS if may_start_calls else 1

    def _begins_now(self, weight: int) -> bool:
        """Whether work of this weight may begin without waiting. It then counts as begun."""
        if self._admissions or self._waiting or self._weight_left <= 0:
            return False
        self._record_release(weight)
        return True

    async def _wait_for_turn(self, principal: Principal, weight: int) -> None:
        loop = asyncio.get_running_loop()
        may_begin = loop.create_future()
        self._waiting.add_piece(principal, _WaitingPiece(may_begin, weight, loop.time()))
        self._release_next()
        await may_begin

    def _release_next(self) -> None:
        self._waiting.drop_oldest_done()  # its waiter was cancelled
        if not self._admissions:
            self._begin_turn()
        elif self._waiting and self._weight_left == TURN_WEIGHT:
            self._release_due()

    def _begin_turn(self) -> None:
        """Begin what may begin in this turn of the event loop."""
        while self._waiting and self._weight_left > 0:
            self._record_release(self._waiting.begin_next())

    def _release_due(self) -> None:
        """Begin the pieces that may begin although a call is admitted."""
        loop = asyncio.get_running_loop()
        cpu_seconds, seconds = self._cpu_time() - self._released_at_cpu_time, loop.time() - self._released_at
        count = self._count_due(cpu_seconds, seconds, loop.time())
        if not count:
            self._begin_probe()
            return
        self._begin_pieces(count, oldest_first=self._is_overdue(loop.time()))
        self._record_release(TURN_WEIGHT)

    def _begin_pieces(self, count: int, *, oldest_first: bool) -> None:
        """Begin up to so many pieces. With `oldest_first`, only the first one is the next in turn."""
        for number in range(count):
            if oldest_first and number:
                self._waiting.begin_oldest()
            else:
                self._waiting.begin_next()

    def _is_overdue(self, now: float) -> bool:
        return now - self._waiting.oldest_since >= BACKGROUND_WAIT_SECONDS

    def _count_due(self, cpu_seconds: float, seconds: float, now: float) -> int:
        """How many pieces may begin, after these times since the last one began. After a long turn: those that it delayed."""
        if self._is_overdue(now):
            return RELEASE_BATCH_MAX
        if cpu_seconds >= self._interval_seconds > 0:
            return min(int(cpu_seconds / self._interval_seconds), RELEASE_BATCH_MAX)
        return int(self._interval_seconds <= 0 or seconds >= self._idle_interval_seconds)

    def _begin_probe(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._probed_at, self._probed_at_cpu_time = loop.time(), self._cpu_time()
            self._timer = loop.call_later(self._probe_seconds, self._end_probe)

    def _end_probe(self) -> None:
        self._timer = None
        if self._was_idle():
            self._begin_turn()
        else:
            self._release_next()

    def _was_idle(self) -> bool:
        """Whether the event loop waited for most of the probe, and no other process kept it from a core."""
        seconds = asyncio.get_running_loop().time() - self._probed_at
        cpu_seconds = self._cpu_time() - self._probed_at_cpu_time
        return cpu_seconds < seconds / 2 and seconds <= PROBE_DELAY_MAX * self._probe_seconds

    def _record_release(self, weight: int) -> None:
        if self._weight_left == TURN_WEIGHT:
            loop = asyncio.get_running_loop()
            self._released_at = loop.time()
            if self._admissions:
                self._released_at_cpu_time = self._cpu_time()
            loop.call_soon(self._begin_loop_turn)
        self._weight_left -= weight

    def _begin_loop_turn(self) -> None:
        self._weight_left = TURN_WEIGHT
        self._release_next()
