"""The CPU time that all live lists of this process share.

    credit += BUSY_SHARE of the CPU time of this process + WALL_SHARE of the time
    credit -= CPU time of reads, of rendering and of writes to viewers

A read waits until the credit is positive. A share of the process's own CPU time is right under load, also beside other
processes; the share of the time lets an idle service follow what happens at once.
"""

import time
from asyncio import Future, get_running_loop
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Generic, TypeVar

from ringback.domain.clock import Clock
from ringback.domain.principal import Principal

T = TypeVar("T")

BUSY_SHARE: Final = 0.02
"""Of the CPU time that this process uses."""
WALL_SHARE: Final = 0.008
"""Of the time, also while the process is idle."""
CREDIT_SECONDS_MAX: Final = 0.1
"""What an idle service saves up: some reads in a row."""
CREDIT_CHECK_SECONDS: Final = 0.25
"""Between two looks at the CPU time of a busy process."""


class CpuBudget:
    """Used on one event loop. An owner is a principal, or None for the lists of all principals."""

    def __init__(self, *, clock: Clock, read_cpu_seconds: Callable[[], float] = time.process_time) -> None:
        """`read_cpu_seconds`: the CPU time that this process has used so far."""
        self._clock = clock
        self._read_cpu_seconds = read_cpu_seconds
        self._credit = CREDIT_SECONDS_MAX
        self._credited_at = clock.monotonic(), read_cpu_seconds()
        self._is_taken = False
        self._waiting: defaultdict[Principal | None, deque[Future[None]]] = defaultdict(deque)
        self._used: dict[Principal | None, float] = {}
        """The CPU time of each owner, counted from `_served` for an owner that had nothing to read before."""
        self._served = 0.0
        """What the owner had used that got the last turn."""

    @asynccontextmanager
    async def wait_for_turn(self, owner: Principal | None) -> AsyncGenerator[None]:
        """Wait for the turn of this owner and for credit. One read at a time, and next that of the owner that used least.

        So an owner with long reads does not delay those of other owners by more than one of its reads.
        """
        await self._acquire_turn(owner)
        try:
            await self._wait_for_credit()
            yield
        finally:
            self._release_turn()

    async def measure(self, owner: Principal | None, work: Awaitable[T]) -> T:
        """The result of `work`, whose CPU time on this thread counts for the owner."""
        return await Measured(work, partial(self.spend, owner))

    def spend(self, owner: Principal | None, cpu_seconds: float) -> None:
        self._credit -= cpu_seconds
        self._used[owner] = max(self._used.get(owner, 0.0), self._served) + cpu_seconds

    async def _acquire_turn(self, owner: Principal | None) -> None:
        if not self._is_taken:
            self._is_taken = True
            self._served = self._count_used(owner)
            return
        turn = get_running_loop().create_future()
        self._waiting[owner].append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._release_turn()
            raise

    def _release_turn(self) -> None:
        for owner in sorted(self._waiting, key=self._count_used):
            queue = self._waiting[owner]
            while queue:
                turn = queue.popleft()
                if not turn.done():
                    self._served = self._count_used(owner)
                    turn.set_result(None)
                    self._forget_idle_owners()
                    return
        self._waiting.clear()
        self._forget_idle_owners()
        self._is_taken = False

    def _count_used(self, owner: Principal | None) -> float:
        return max(self._used.get(owner, 0.0), self._served)

    def _forget_idle_owners(self) -> None:
        self._used = {owner: used for owner, used in self._used.items() if used > self._served}
        for owner in [owner for owner, queue in self._waiting.items() if not queue]:
            del self._waiting[owner]

    async def _wait_for_credit(self) -> None:
        while self._add_credit() <= 0:
            await self._clock.sleep(min(-self._credit / WALL_SHARE + 0.001, CREDIT_CHECK_SECONDS))

    def _add_credit(self) -> float:
        (at, cpu), self._credited_at = self._credited_at, (self._clock.monotonic(), self._read_cpu_seconds())
        earned = (self._credited_at[0] - at) * WALL_SHARE + (self._credited_at[1] - cpu) * BUSY_SHARE
        self._credit = min(self._credit + earned, CREDIT_SECONDS_MAX)
        return self._credit


class Measured(Generic[T]):
    """An awaitable that reports the CPU time of each of its steps on the thread that runs it."""

    __slots__ = ("_spend", "_work")

    def __init__(self, work: Awaitable[T], spend: Callable[[float], None]) -> None:
        self._work = work
        self._spend = spend

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        resume: Callable[[], Any] = partial(next, steps)
        while True:
            began = time.thread_time()
            try:
                awaited = resume()
            except StopIteration as end:
                return end.value
            finally:
                self._spend(time.thread_time() - began)
            resume = partial(next, steps)
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - also a cancellation: the work decides
                resume = partial(_throw, steps, error)


def _throw(steps: Generator[Any, Any, Any], error: BaseException) -> Any:
    return steps.throw(error)
