"""Spreads work that is ready at once over several turns of the event loop, and lets its owners take turns.

    run ──▶ fewer than the limit have run in this turn ──▶ runs at once
       └──▶ the queue of its owner ──▶ the next turn, or the first one after a pause: one of each owner

The event loop runs all tasks that are ready before it looks at its timers and sockets again. A hundred requests that arrive
together take a hundred milliseconds, in which no callback is sent and no other request is read. A call needs some twenty turns
from its request to its callback, so each millisecond that a turn takes longer delays it by twenty.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Final

BUSY_TURN_SECONDS: Final = 0.002
"""A longer turn had other work. A slice of a stream takes half a millisecond, 1.5 on a busy machine."""
PAUSED_TURN_SECONDS_MAX: Final = 0.02
"""A turn that takes longer, as while the process is stopped, causes no longer pause."""


class LoopTurns:
    """Belongs to one event loop. An owner is a peer, a principal or a stream."""

    def __init__(
        self, in_turn_max: int, *, pause_factor: float = 0.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`in_turn_max` is the number of functions that run in one turn, of all owners together.

        After a turn in which the loop was busy, what waits pauses for `pause_factor` times its length.
        """
        self._in_turn_max = in_turn_max
        self._pause_factor = pause_factor
        self._now = now
        self._turn_began_at = 0.0
        self._count_in_turn = 0
        self._waiting: OrderedDict[Hashable, deque[Callable[[], None]]] = OrderedDict()
        """By owner. The first one is next."""

    def run(self, owner: Hashable, work: Callable[[], None]) -> None:
        """Call `work` now or in a later turn."""
        if self._waiting or self._count_in_turn >= self._in_turn_max:
            self._waiting.setdefault(owner, deque()).append(work)
        else:
            self._run(work)

    async def wait(self, owner: Hashable) -> None:
        """Return now or in a later turn."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.run(owner, lambda: None if done.done() else done.set_result(None))
        await done

    def _run(self, work: Callable[[], None]) -> None:
        if not self._count_in_turn:
            self._turn_began_at = self._now()
            asyncio.get_running_loop().call_soon(self._end_turn)
        self._count_in_turn += 1
        work()

    def _end_turn(self) -> None:
        length = self._now() - self._turn_began_at
        if self._pause_factor and length > BUSY_TURN_SECONDS:
            pause_seconds = self._pause_factor * min(length, PAUSED_TURN_SECONDS_MAX)
            asyncio.get_running_loop().call_later(pause_seconds, self._begin_turn)
        else:
            self._begin_turn()

    def _begin_turn(self) -> None:
        self._count_in_turn = 0
        while self._waiting and self._count_in_turn < self._in_turn_max:
            self._run(self._take_next())

    def _take_next(self) -> Callable[[], None]:
        """The oldest work of the owner whose turn it is. The owner then moves behind the others."""
        owner, works = self._waiting.popitem(last=False)
        work = works.popleft()
        if works:
            self._waiting[owner] = works
        return work
