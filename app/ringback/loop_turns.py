"""Spreads work that is ready at once over several turns of the event loop, and lets its owners take turns.

    run ──▶ fewer than the limit have run in this turn, and its owner does not rest ──▶ runs at once
       └──▶ the queue of its owner ──▶ the next turn, or the first one after a pause: one of each owner

The event loop runs all tasks that are ready before it looks at its timers and sockets again. A hundred requests that arrive
together take a hundred milliseconds, in which no callback is sent and no other request is read. A call needs some twenty turns
from its request to its callback, so each millisecond that a turn takes longer delays it by twenty.

A rest is counted in turns and not in time: a turn of an idle loop takes microseconds, so a rest costs nothing there, and a turn
of a busy loop has the work of others.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Final

Work = Callable[[], bool | None]

BUSY_TURN_SECONDS: Final = 0.0001
"""A longer turn had other work, and a pause follows. What waits for a turn runs in the next one, and is not in this time."""
PAUSED_TURN_SECONDS_MAX: Final = 0.02
"""A turn that takes longer, as while the process is stopped, causes no longer pause."""


class LoopTurns:
    """Belongs to one event loop. An owner is a peer, a principal or a stream."""

    def __init__(
        self,
        in_turn_max: int,
        *,
        rest_turns: int = 0,
        pause_factor: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`in_turn_max` is the number of functions that run in one turn, of all owners together.

        An owner rests for `rest_turns` after each of its functions. After a turn in which the loop had other work, what waits
        pauses for `pause_factor` times its length.
        """
        self._in_turn_max = in_turn_max
        self._rest_turns = rest_turns
        self._pause_factor = pause_factor
        self._now = now
        self._turn_number = 0
        self._turn_began_at = 0.0
        self._is_turn_open = False
        self._count_in_turn = 0
        self._waiting: OrderedDict[Hashable, deque[Work]] = OrderedDict()
        """By owner. The first one is next."""
        self._rests_until: OrderedDict[Hashable, int] = OrderedDict()
        """The number of the turn before which the owner has no other one. The first one is over first."""

    def run(self, owner: Hashable, work: Work) -> None:
        """Call `work` now or in a later turn. If it returns False, it had nothing to do, and another one runs in its turn."""
        if self._count_in_turn >= self._in_turn_max or owner in self._waiting or owner in self._rests_until:
            self._waiting.setdefault(owner, deque()).append(work)
        else:
            self._run(owner, work)

    async def wait(self, owner: Hashable, is_needed: Callable[[], bool] = lambda: True) -> None:
        """Return now or in a later turn. A wait that is not needed any more, or is cancelled, takes no turn."""
        if not is_needed():
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def go_on() -> bool:
            if done.done():
                return False
            done.set_result(None)
            return is_needed()

        self.run(owner, go_on)
        await done

    def _run(self, owner: Hashable, work: Work) -> None:
        self._open_turn()
        self._count_in_turn += 1
        if self._rest_turns:
            self._rests_until[owner] = self._turn_number + self._rest_turns + 1
        if work() is False:
            self._count_in_turn -= 1
            self._rests_until.pop(owner, None)

    def _open_turn(self) -> None:
        if not self._is_turn_open:
            self._is_turn_open = True
            self._turn_began_at = self._now()
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        length = self._now() - self._turn_began_at
        if self._pause_factor and length > BUSY_TURN_SECONDS:
            pause_seconds = self._pause_factor * min(length, PAUSED_TURN_SECONDS_MAX)
            asyncio.get_running_loop().call_later(pause_seconds, self._begin_turn)
        else:
            self._begin_turn()

    def _begin_turn(self) -> None:
        self._is_turn_open = False
        self._count_in_turn = 0
        self._turn_number += 1
        while self._rests_until and next(iter(self._rests_until.values())) <= self._turn_number:
            self._rests_until.popitem(last=False)
        while self._count_in_turn < self._in_turn_max and (found := self._take_next()) is not None:
            self._run(*found)
        if self._rests_until:
            self._open_turn()

    def _take_next(self) -> tuple[Hashable, Work] | None:
        """The owner whose turn it is, and its oldest work; None if none waits, or all that wait rest.

        The owner then moves behind the others. An owner may be None: requests through a trusted proxy have no peer.
        """
        for owner in self._waiting:
            if owner not in self._rests_until:
                works = self._waiting.pop(owner)
                work = works.popleft()
                if works:
                    self._waiting[owner] = works
                return owner, work
        return None
