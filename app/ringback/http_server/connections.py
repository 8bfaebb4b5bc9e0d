"""All connections of one server: how many there are, in all and of each peer, and which of them have had their time.

Nothing here runs a timer for each connection. Every phase has one duration, so connections wait in the order in which they
entered it, and one sweep a second looks at the first of each phase. What a peer does not read shows only in the transports, so
they are looked at every few seconds. An idle stream is in no phase and has nothing unread: it costs an entry in a dictionary.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from ringback.http_server.limits import HttpLimits, Phase

log = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 1.0
"""By which a deadline may be missed."""
LOG_SECONDS: Final = 10.0
"""Between two lines about refused and ended connections, however many there were."""
LOOKS_PER_STALL: Final = 4
"""How often unread answers are looked at within the time that a peer has to go on reading."""


class Connection(Protocol):
    """What the sweep needs of one; implemented by `protocol.BoundedHttpProtocol`."""

    peer: str | None

    def on_deadline(self, phase: Phase) -> None:
        """Its time in this phase is over, and it is in no phase any more."""
        ...

    def unread_bytes(self) -> int:
        """What the peer was sent and the system has not taken yet."""
        ...

    def read_bytes(self) -> int:
        """What the system has taken of everything that the peer was sent."""
        ...

    def abort(self) -> None:
        """End the connection at once, without waiting for the peer."""
        ...


class Connections:
    def __init__(self, limits: HttpLimits, *, monotonic: Callable[[], float] | None = None) -> None:
        """By default, time is the running loop's."""
        self.limits = limits
        self._monotonic = monotonic
        self._open: set[Connection] = set()
        self._of_peer: Counter[str] = Counter()
        self._phases: dict[Phase, OrderedDict[Connection, float]] = {phase: OrderedDict() for phase in Phase}
        self._stalled: dict[Connection, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._look_again_at = 0.0
        self._log_again_at = 0.0
        self._unlogged: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        """Connections refused or ended by a limit, by reason, since the start."""

    def __len__(self) -> int:
        return len(self._open)

    def of_peer(self, peer: str) -> int:
        return self._of_peer[peer]

    def in_phase(self, phase: Phase) -> int:
        return len(self._phases[phase])

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for it. It is watched in either case, and `forget` must follow."""
        limits, peer = self.limits, connection.peer
        room = len(self._open) < limits.connections_max
        self._open.add(connection)
        if peer is not None:
            room = room and self._of_peer[peer] < limits.peer_connections_max
            self._of_peer[peer] += 1
        if self._timer is None:
            self._schedule()
        return room

    def forget(self, connection: Connection) -> None:
        if connection not in self._open:
            return
        self._open.discard(connection)
        self._stalled.pop(connection, None)
        if connection.peer is not None:
            self._of_peer[connection.peer] -= 1
            if not self._of_peer[connection.peer]:
                del self._of_peer[connection.peer]

    def enter(self, connection: Connection, phase: Phase) -> None:
        """The time of this phase begins now."""
        waiting = self._phases[phase]
        waiting[connection] = self._now() + self.limits.seconds(phase)
        waiting.move_to_end(connection)

    def leave(self, connection: Connection, phase: Phase) -> None:
        self._phases[phase].pop(connection, None)

    def count(self, reason: str) -> None:
        self.counts[reason] += 1
        self._unlogged[reason] += 1

    def sweep(self) -> None:
        """End what has had its time; tell of what was refused."""
        now = self._now()
        for phase, waiting in self._phases.items():
            while waiting and (first := next(iter(waiting.items())))[1] <= now:
                del waiting[first[0]]
                first[0].on_deadline(phase)
        if now >= self._look_again_at:
            self._look_again_at = now + self.limits.write_seconds / LOOKS_PER_STALL
            self._end_stalled(now)
        if self._unlogged and now >= self._log_again_at:
            self._log_again_at = now + LOG_SECONDS
            log.warning("http.connections_limited", extra={"connections": len(self._open), **self._unlogged})
            self._unlogged.clear()

    def _end_stalled(self, now: float) -> None:
        for connection in list(self._open):
            if not connection.unread_bytes():
                self._stalled.pop(connection, None)
                continue
            read = connection.read_bytes()
            before, since = self._stalled.setdefault(connection, (read, now))
            if read - before >= self.limits.progress_bytes:
                self._stalled[connection] = (read, now)
            elif now - since >= self.limits.write_seconds:
                self.count("answer_not_read")
                connection.abort()

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._open or self._unlogged:
            self._schedule()
        self.sweep()

    def _now(self) -> float:
        return self._monotonic() if self._monotonic is not None else asyncio.get_running_loop().time()
