"""Requests that start calls have priority over background work.

    Calls.start_call ──admit_call──▶ checked, stored, committed ──▶ 202
    an execution or attempt ──wait_for_background_turn──▶ begins: one in each turn of the event loop while no call is admitted

The execution and callback of a call take about fifty turns of the event loop, its admission takes five. With equal priority a
202 would wait under load as long as all other work (46 ms at the median instead of 4, measured). So background work waits to
begin while a call is admitted, and the store writes admissions first. A flood of requests does not stop the background work:
one piece begins every `BACKGROUND_INTERVAL_SECONDS`, and several at once after a turn of the event loop that took longer. Work
that has begun is never delayed: it holds leases, connections and permits.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

BACKGROUND_INTERVAL_SECONDS: Final = 0.005
"""The interval between two pieces of background work that begin while calls are admitted: about twice the CPU time of a piece,
so a flood of admissions leaves half a core. All 2,048 attempts that may be in flight begin within 10 s, inside their leases."""
RELEASE_BATCH_MAX: Final = 16
"""Pieces that begin at once after a long turn of the event loop: 16 make up for 80 ms, and take about 30 ms themselves."""

_IS_ADMISSION: Final[ContextVar[bool]] = ContextVar("ringback_is_admission", default=False)


def is_in_admission() -> bool:
    """Whether the current context admits a call."""
    return _IS_ADMISSION.get()


def leave_admission_context() -> None:
    """This task, and each task that it starts, no longer belongs to the admission that started it."""
    _IS_ADMISSION.set(False)


class AdmissionGate:
    """Belongs to one event loop and uses the clock of that loop."""

    def __init__(self, *, interval_seconds: float = BACKGROUND_INTERVAL_SECONDS) -> None:
        self._interval_seconds = interval_seconds
        self._admissions = 0
        self._has_released_this_turn = False
        """Whether background work has begun in this turn of the event loop."""
        self._released_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def admit_call(self) -> Generator[None]:
        """A call is admitted while this is entered."""
        self._admissions += 1
        token = _IS_ADMISSION.set(True)
        try:
            yield
        finally:
            _IS_ADMISSION.reset(token)
            self._admissions -= 1
            self._release_next()

    @property
    def is_quiet(self) -> bool:
        """Whether at most one call is admitted and no background work waits to begin."""
        return self._admissions <= 1 and not self._waiting

    async def wait_for_background_turn(self) -> None:
        """Return when background work may begin."""
        if not (self._has_released_this_turn or self._waiting or self._admissions):
            self._record_release()
            return
        may_begin = asyncio.get_running_loop().create_future()
        self._waiting.append(may_begin)
        self._release_next()
        await may_begin

    def _release_next(self) -> None:
        while self._waiting and self._waiting[0].done():  # its waiter was cancelled
            self._waiting.popleft()
        if not self._waiting or self._has_released_this_turn:
            return
        loop = asyncio.get_running_loop()
        if self._admissions and loop.time() < (release_at := self._released_at + self._interval_seconds):
            if self._timer is None:
                self._timer = loop.call_at(release_at, self._release_after_timer)
            return
        for _ in range(self._overdue_releases(loop.time()) if self._admissions else 1):
            if self._waiting and not (first := self._waiting.popleft()).done():
                first.set_result(None)
        self._record_release()

    def _overdue_releases(self, now: float) -> int:
        """How many pieces would have begun by now if the event loop had had a turn for each."""
        if self._interval_seconds <= 0:
            return 1
        return max(1, min(int((now - self._released_at) / self._interval_seconds), RELEASE_BATCH_MAX))

    def _record_release(self) -> None:
        loop = asyncio.get_running_loop()
        self._has_released_this_turn, self._released_at = True, loop.time()
        loop.call_soon(self._begin_loop_turn)

    def _begin_loop_turn(self) -> None:
        self._has_released_this_turn = False
        self._release_next()

    def _release_after_timer(self) -> None:
        self._timer = None
        self._release_next()
