"""How long clients wait, learnt from the waits that they gave up.

A client that times out during a wait loses the answer, and would lose it again at each further wait. So the next answers in its
session come before the shortest time after which it gave up. A user who stops a call looks the same. So

    a wait given up sooner than `WINDOW_SECONDS_MIN`     counts for nothing: no client times out so soon
    a wait that the client did not give up               lengthens the next window to `WINDOW_GROWTH` times this wait
    two waits given up after about the same time         are a time-out, which stays for the rest of the session

until a wait shows that the client waits longer than that.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

WINDOW_SHARE: Final = 0.6
"""The part of that time which a window may take. The rest, 2 s of a time-out of 5 s, is for the network and a busy machine."""
WINDOW_SECONDS_MIN: Final = 2.0
"""No window becomes shorter than this: most tools end within a second, and no client times out sooner by itself."""
WINDOW_GROWTH: Final = 1.5
"""After one wait that the client did not give up, a window of 2 s takes 3 s, and then the 4 s of the default."""
TIMEOUT_DEVIATION_MAX: Final = 0.1
"""Two waits that differ by less than this share are given up by the same time-out."""
TRACKED_CLIENTS_MAX: Final = 10_000
"""Clients that are remembered, about 4 MB: as many as sessions are in memory. The one unused the longest is dropped."""

ClientKey = tuple[str, ...]
"""Names one session, or one client without sessions."""


def shorten_window(window_seconds: float, gave_up_after_seconds: float | None) -> float:
    """The window for a client that gave up a wait after this time; None if it never did."""
    if gave_up_after_seconds is None:
        return window_seconds
    return min(window_seconds, max(WINDOW_SECONDS_MIN, gave_up_after_seconds * WINDOW_SHARE))


@dataclass(slots=True)
class _GivenUpWaits:
    shortest_seconds: float
    """As far as later waits have not shown that the client waits longer."""
    last_seconds: float
    is_timeout: bool = False


class ClientTimeouts:
    """Remembers the shortest wait that each client gave up."""

    def __init__(self, *, tracked_clients_max: int = TRACKED_CLIENTS_MAX) -> None:
        self._tracked_clients_max = tracked_clients_max
        self._given_up: OrderedDict[ClientKey, _GivenUpWaits] = OrderedDict()

    def __len__(self) -> int:
        return len(self._given_up)

    def record_give_up(self, client: ClientKey | None, *, after_seconds: float) -> None:
        if client is None or after_seconds < WINDOW_SECONDS_MIN:
            return
        if (known := self._given_up.get(client)) is None:
            self._given_up[client] = _GivenUpWaits(after_seconds, after_seconds)
        else:
            known.is_timeout |= abs(after_seconds - known.last_seconds) <= TIMEOUT_DEVIATION_MAX * after_seconds
            known.shortest_seconds = min(after_seconds, known.shortest_seconds)
            known.last_seconds = after_seconds
        self._given_up.move_to_end(client)
        if len(self._given_up) > self._tracked_clients_max:
            self._given_up.popitem(last=False)

    def record_wait(self, client: ClientKey | None, *, seconds: float) -> None:
        """Record a wait that the client did not give up."""
        known = None if client is None else self._given_up.get(client)
        if known is None or (known.is_timeout and seconds <= known.last_seconds):
            return
        known.is_timeout = False
        known.shortest_seconds = max(known.shortest_seconds, WINDOW_GROWTH * seconds / WINDOW_SHARE)

    def forget_client(self, client: ClientKey | None) -> None:
        if client is not None:
            self._given_up.pop(client, None)

    def get_shortest_wait(self, client: ClientKey | None) -> float | None:
        """Seconds after which the client gave up; None if it did not, or was forgotten."""
        if client is None or client not in self._given_up:
            return None
        self._given_up.move_to_end(client)
        return self._given_up[client].shortest_seconds
