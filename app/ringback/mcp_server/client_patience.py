"""How long clients wait, learnt from the waits that they gave up.

A client that times out during a wait loses the answer, and would lose it again at each further wait. So the next answers in its
session come before the shortest time after which it gave up.
"""

from collections import OrderedDict
from typing import Final

WINDOW_SHARE: Final = 0.6
"""The part of that time which a window may take. The rest, 2 s of a time-out of 5 s, is for the network and a busy machine."""
WINDOW_SECONDS_MIN: Final = 1.0
"""No window becomes shorter than this: most tools end within a second, and a user may have cancelled at once."""
TRACKED_CLIENTS_MAX: Final = 10_000
"""Clients that are remembered, about 3 MB: as many as one endpoint may have sessions. The one unused the longest is dropped."""

ClientKey = tuple[str, ...]
"""Names one session, or one client without sessions."""


def shorten_window(window_seconds: float, gave_up_after_seconds: float | None) -> float:
    """The window for a client that gave up a wait after this time; None if it never did."""
    if gave_up_after_seconds is None:
        return window_seconds
    return min(window_seconds, max(WINDOW_SECONDS_MIN, gave_up_after_seconds * WINDOW_SHARE))


class ClientPatience:
    """Remembers the shortest wait that each client gave up."""

    def __init__(self, *, tracked_clients_max: int = TRACKED_CLIENTS_MAX) -> None:
        self._tracked_clients_max = tracked_clients_max
        self._shortest_waits: OrderedDict[ClientKey, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._shortest_waits)

    def record_give_up(self, client: ClientKey | None, *, after_seconds: float) -> None:
        if client is None:
            return
        self._shortest_waits[client] = min(after_seconds, self._shortest_waits.get(client, after_seconds))
        self._shortest_waits.move_to_end(client)
        if len(self._shortest_waits) > self._tracked_clients_max:
            self._shortest_waits.popitem(last=False)

    def forget_client(self, client: ClientKey | None) -> None:
        if client is not None:
            self._shortest_waits.pop(client, None)

    def get_shortest_wait(self, client: ClientKey | None) -> float | None:
        """Seconds after which the client gave up; None if it did not, or was forgotten."""
        if client is None or client not in self._shortest_waits:
            return None
        self._shortest_waits.move_to_end(client)
        return self._shortest_waits[client]
