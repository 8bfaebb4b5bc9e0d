"""Starts of a principal with many unfinished calls take turns with the service's work for its own calls.

    its execution or attempt waits for its turn, its dispatch or end is written ── hold_work ──▶ its starts wait
    one of its calls has ended ── hold_end ──▶ `STARTS_FOR_END` of them begin
    the service has no work for its calls (they run upstream) ──▶ they begin one after the other
    `START_WAIT_SECONDS` after it arrived ──▶ the start begins in any case, with priority (`AdmissionGate`)

A start takes one transaction, and the way from the lease of a call to its end takes three. 64 clients of one principal that
only start calls got nine starts for each end, until a quota stopped them; the calls then waited in the queue for minutes
(measured).
Calls that run for hours upstream delay no start, however many there are.

The starts of other principals neither wait here nor are counted here.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from ringback.domain.principal import Principal

STARTS_FOR_END: Final = 2
"""Starts that begin for each end while the service has work for the principal's calls."""
EARNED_STARTS_MAX: Final = 64
"""The most starts that a group of ends earns: about as many as the clients of one principal wait for."""
START_WAIT_SECONDS: Final = 2.0
"""The longest wait of a start, for its turn here and then as background work: well below the time-out of HTTP clients, which is
five seconds or more."""


@dataclass(slots=True)
class _PrincipalTurns:
    work_in_hand: int = 0
    """Pieces of work for calls of the principal that this process has to do now, not its upstreams or receivers."""
    earned_starts: int = 0
    starting: int = 0
    """Starts that have begun and still wait for the event loop."""
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque[asyncio.Future[None]])

    def begin_waiting(self) -> None:
        """Begin as many of the waiting starts as may begin, the oldest first."""
        while self.waiting:
            if self.waiting[0].done():  # it was cancelled
                self.waiting.popleft()
            elif self._use_turn():
                self.starting += 1
                self.waiting.popleft().set_result(None)
            else:
                return

    def _use_turn(self) -> bool:
        """Whether one more start may begin now. It uses what the ends have earned first."""
        if self.earned_starts > 0:
            self.earned_starts -= 1
            return True
        return not self.work_in_hand and not self.starting

    @property
    def is_unused(self) -> bool:
        return not (self.work_in_hand or self.starting or self.waiting)


class StartTurns:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._by_principal: dict[Principal, _PrincipalTurns] = {}

    def __len__(self) -> int:
        """The principals for which anything is remembered."""
        return len(self._by_principal)

    @contextmanager
    def hold_work(self, principal: Principal) -> Generator[None]:
        """While this is entered, the service works on a call of the principal."""
        turns = self._by_principal.setdefault(principal, _PrincipalTurns())
        turns.work_in_hand += 1
        try:
            yield
        finally:
            turns.work_in_hand -= 1
            self._continue(principal, turns)

    @contextmanager
    def hold_end(self, principal: Principal) -> Generator[None]:
        """While this is entered, the service writes the end of a call. The end earns starts, unless it fails."""
        with self.hold_work(principal):
            yield
            turns = self._by_principal[principal]
            turns.earned_starts = min(turns.earned_starts + STARTS_FOR_END, EARNED_STARTS_MAX)

    @asynccontextmanager
    async def begin_start(self, principal: Principal) -> AsyncGenerator[None]:
        """Entered when a start of the principal may begin. Leave it when the event loop runs the start.

        The caller cancels this after `START_WAIT_SECONDS`.
        """
        turns = self._by_principal.setdefault(principal, _PrincipalTurns())
        may_begin = asyncio.get_running_loop().create_future()
        turns.waiting.append(may_begin)
        turns.begin_waiting()
        try:
            await may_begin
            yield
        finally:
            if not may_begin.cancelled():
                turns.starting -= 1
            self._continue(principal, turns)

    def _continue(self, principal: Principal, turns: _PrincipalTurns) -> None:
        turns.begin_waiting()
        if turns.is_unused and self._by_principal.get(principal) is turns:
            del self._by_principal[principal]
