"""Starts the requests that arrive at once in several turns of the event loop, and lets peers take turns.

    headers complete ──▶ start_request ──▶ fewer than REQUESTS_IN_TURN have started in this turn ──▶ starts at once
                                  └──▶ the queue of its peer ──▶ the next turn: one of each peer

The event loop runs all tasks that are ready before it looks at its timers and sockets again. A hundred requests that arrive
together take a hundred milliseconds, in which no callback is sent and no other request is read.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

REQUESTS_IN_TURN: Final = 4
"""A request takes about a millisecond of CPU time until its first wait."""


class RequestTurns:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._started_in_turn = 0
        self._waiting: OrderedDict[str | None, deque[Callable[[], None]]] = OrderedDict()
        """By peer. The first one is next."""

    def start_request(self, peer: str | None, start: Callable[[], None]) -> None:
        """Call `start` now or in a later turn."""
        if self._waiting or self._started_in_turn >= REQUESTS_IN_TURN:
            self._waiting.setdefault(peer, deque()).append(start)
        else:
            self._start(start)

    def _start(self, start: Callable[[], None]) -> None:
        if not self._started_in_turn:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._started_in_turn += 1
        start()

    def _begin_turn(self) -> None:
        self._started_in_turn = 0
        while self._waiting and self._started_in_turn < REQUESTS_IN_TURN:
            self._start(self._take_next())

    def _take_next(self) -> Callable[[], None]:
        """The oldest request of the peer whose turn it is. The peer then moves behind the others."""
        peer, starts = self._waiting.popitem(last=False)
        start = starts.popleft()
        if starts:
            self._waiting[peer] = starts
        return start
