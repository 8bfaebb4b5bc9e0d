"""Requests that start calls go before work that goes on in the background.

    Calls.start ──admitting──▶ checked, stored, committed ──▶ 202
    an execution, an attempt ──pass_background──▶ begins: one a turn of the event loop, while nothing is being admitted

A call costs some fifty turns of the event loop for its execution and its callback, and five for its admission. If all of them
took turns alike, a 202 would wait under load for as long as everything else does (46 ms at the median against 4, measured). So
background work that has not begun yet waits while a call is being admitted, and the store writes admissions first. A flood of
requests does not stop the background: one piece begins every `HOLD_SECONDS` all the same, several at once after a turn of the
event loop that took longer. Work that has begun is never held: it holds leases, connections and permits.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

BACKGROUND_INTERVAL_SECONDS: Final = 0.005
"""Between two pieces of background work that begin while calls are being admitted: about twice what one costs of a core, so a
flood of admissions leaves half of it. All 2,048 attempts that may be in flight pass within 10 s, well inside their leases."""
RELEASE_BATCH_MAX: Final = 16
"""After a long turn of the event loop: so many make up for 80 ms, and take some 30 themselves."""

_IS_ADMISSION: Final[ContextVar[bool]] = ContextVar("ringback_is_admission", default=False)


def is_in_admission() -> bool:
    """Whether the current context is one in which a call is being admitted."""
    return _IS_ADMISSION.get()


def leave_admission_context() -> None:
    """From here on this task is no part of the admission that has started it, and neither is any task that it starts."""
    _IS_ADMISSION.set(False)


class AdmissionGate:
    """Used on one event loop, by whose clock it counts."""

    def __init__(self, *, interval_seconds: float = BACKGROUND_INTERVAL_SECONDS) -> None:
        self._interval_seconds = interval_seconds
        self._admissions = 0
        self._has_released_this_turn = False
        """Whether a piece of background work has begun in this turn of the event loop."""
        self._released_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def admit_call(self) -> Generator[None]:
        """A call is being admitted in here."""
        self._admissions += 1
        token = _IS_ADMISSION.set(True)
        try:
            yield
        finally:
            _IS_ADMISSION.reset(token)
            self._admissions -= 1
            self._release_next()

    async def wait_for_background_turn(self) -> None:
        """Return when a piece of background work may begin."""
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
        """How many would have begun by now if the event loop had had a turn for each."""
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
