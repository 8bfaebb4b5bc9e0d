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

HOLD_SECONDS: Final = 0.005
"""Between two pieces of background work that begin while calls are being admitted: about twice what one costs of a core, so a
flood of admissions leaves half of it. All 2,048 attempts that may be in flight pass within 10 s, well inside their leases."""
RELEASED_AT_ONCE: Final = 16
"""After a long turn of the event loop: so many make up for 80 ms, and take some 30 themselves."""

_IS_ADMISSION: Final[ContextVar[bool]] = ContextVar("ringback_is_admission", default=False)


def is_admission() -> bool:
    """Whether the current context is one in which a call is being admitted."""
    return _IS_ADMISSION.get()


def begin_background() -> None:
    """From here on this task is no part of the admission that has started it, and neither is any task that it starts."""
    _IS_ADMISSION.set(False)


class AdmissionGate:
    """Used on one event loop, by whose clock it counts."""

    def __init__(self, *, hold_seconds: float = HOLD_SECONDS) -> None:
        self._hold_seconds = hold_seconds
        self._admissions = 0
        self._passed = False
        """Whether a piece of background work has begun in this turn of the event loop."""
        self._passed_at = 0.0
        self._held: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def admitting(self) -> Generator[None]:
        """A call is being admitted in here."""
        self._admissions += 1
        token = _IS_ADMISSION.set(True)
        try:
            yield
        finally:
            _IS_ADMISSION.reset(token)
            self._admissions -= 1
            self._release_one()

    async def pass_background(self) -> None:
        """Return when a piece of background work may begin."""
        if not (self._passed or self._held or self._admissions):
            self._note_pass()
            return
        may_begin = asyncio.get_running_loop().create_future()
        self._held.append(may_begin)
        self._release_one()
        await may_begin

    def _release_one(self) -> None:
        while self._held and self._held[0].done():  # its waiter was cancelled
            self._held.popleft()
        if not self._held or self._passed:
            return
        loop = asyncio.get_running_loop()
        if self._admissions and loop.time() < (release_at := self._passed_at + self._hold_seconds):
            if self._timer is None:
                self._timer = loop.call_at(release_at, self._release_held)
            return
        for _ in range(self._missed_passes(loop.time()) if self._admissions else 1):
            if self._held and not (first := self._held.popleft()).done():
                first.set_result(None)
        self._note_pass()

    def _missed_passes(self, now: float) -> int:
        """How many would have begun by now if the event loop had had a turn for each."""
        if self._hold_seconds <= 0:
            return 1
        return max(1, min(int((now - self._passed_at) / self._hold_seconds), RELEASED_AT_ONCE))

    def _note_pass(self) -> None:
        loop = asyncio.get_running_loop()
        self._passed, self._passed_at = True, loop.time()
        loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._passed = False
        self._release_one()

    def _release_held(self) -> None:
        self._timer = None
        self._release_one()
