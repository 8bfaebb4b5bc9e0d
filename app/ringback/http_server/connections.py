"""Limits the connections of one server: their number, in all and by peer, and their time in each phase.

No connection has a timer of its own. Every phase has one duration, so its connections are in the order of their deadlines, and
one sweep a second checks the first of each phase. Only the transport knows what a peer has not read, so the sweep asks all
transports every few seconds. An idle stream is in no phase and has nothing unread: it costs one dictionary entry.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from ringback.http_server.limits import ConnectionPhase, HttpLimits
from ringback.loop_turns import LoopTurns

log = logging.getLogger(__name__)

REQUESTS_IN_TURN: Final = 4
"""Requests that start in one turn of the event loop. Each takes about a millisecond of CPU time until its first wait."""
READ_REST_TURNS: Final = 7
"""Turns after which a peer's next read starts. A burst of a hundred reads took two milliseconds of each turn, and with four
reads in a turn eight: the calls of others took 120 ms and more beside it."""
EXPIRED_IN_TURN: Final = 16
"""Connections that end in one turn. Hundreds that were opened together exceed their time together, and each costs 0.1 ms."""
READ_METHODS: Final = frozenset({"GET", "HEAD"})
SWEEP_INTERVAL_SECONDS: Final = 1.0
"""A connection may exceed its deadline by this much."""
LOG_INTERVAL_SECONDS: Final = 10.0
"""Between two log lines about rejected and ended connections."""
STALL_CHECKS_PER_TIMEOUT: Final = 4
"""How often unread responses are checked within `write_seconds`."""


class LimitedConnection(Protocol):
    """A connection as the sweep needs it; implemented by `protocol.BoundedHttpProtocol`."""

    peer: str | None

    def on_phase_timeout(self, phase: ConnectionPhase) -> None:
        """Called when the connection has exceeded the time of this phase. It is in no phase then."""
        ...

    def unread_bytes(self) -> int:
        """Bytes written to the connection that the operating system has not accepted."""
        ...

    def read_bytes(self) -> int:
        """Bytes written to the connection that the operating system has accepted."""
        ...

    def abort(self) -> None:
        """End the connection at once, without waiting for the peer."""
        ...


class ConnectionLimiter:
    def __init__(self, limits: HttpLimits, *, monotonic: Callable[[], float] | None = None) -> None:
        """`monotonic` defaults to the running loop's clock."""
        self.limits = limits
        self._monotonic = monotonic
        self._open: set[LimitedConnection] = set()
        self._count_by_peer: Counter[str] = Counter()
        self._phases: dict[ConnectionPhase, OrderedDict[LimitedConnection, float]] = {
            phase: OrderedDict() for phase in ConnectionPhase
        }
        self._stalled: dict[LimitedConnection, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_stall_check_at = 0.0
        self._next_log_at = 0.0
        self._unlogged: Counter[str] = Counter()
        self._turns = LoopTurns(REQUESTS_IN_TURN)
        self._read_turns = LoopTurns(REQUESTS_IN_TURN, rest_turns=READ_REST_TURNS)
        self.rejection_counts: Counter[str] = Counter()
        """Connections rejected or ended by a limit since the start, by reason."""

    def __len__(self) -> int:
        return len(self._open)

    def run_in_turn(self, peer: str | None, method: str, start: Callable[[], bool | None]) -> None:
        """Start a request now or in a later turn of the event loop. Clients of a trusted proxy are no one peer (None).

        `start` returns False if the request has ended meanwhile.
        """
        is_read = method in READ_METHODS and peer is not None
        (self._read_turns if is_read else self._turns).run(peer, start)

    def count_for_peer(self, peer: str) -> int:
        return self._count_by_peer[peer]

    def count_in_phase(self, phase: ConnectionPhase) -> int:
        return len(self._phases[phase])

    def add_connection(self, connection: LimitedConnection) -> bool:
        """Whether the limits allow the connection. It counts in either case, until `remove_connection`."""
        limits, peer = self.limits, connection.peer
        is_allowed = len(self._open) < limits.connections_max
        self._open.add(connection)
        if peer is not None:
            is_allowed = is_allowed and self._count_by_peer[peer] < limits.peer_connections_max
            self._count_by_peer[peer] += 1
        if self._timer is None:
            self._schedule_sweep()
        return is_allowed

    def remove_connection(self, connection: LimitedConnection) -> None:
        if connection not in self._open:
            return
        self._open.discard(connection)
        self._stalled.pop(connection, None)
        if connection.peer is not None:
            self._count_by_peer[connection.peer] -= 1
            if not self._count_by_peer[connection.peer]:
                del self._count_by_peer[connection.peer]

    def enter_phase(self, connection: LimitedConnection, phase: ConnectionPhase) -> None:
        """Start the time of this phase."""
        waiting = self._phases[phase]
        waiting[connection] = self._now() + self.limits.phase_seconds(phase)
        waiting.move_to_end(connection)

    def leave_phase(self, connection: LimitedConnection, phase: ConnectionPhase) -> None:
        self._phases[phase].pop(connection, None)

    def count_rejection(self, reason: str) -> None:
        self.rejection_counts[reason] += 1
        self._unlogged[reason] += 1

    def close_expired(self) -> None:
        """End connections whose time is over, some now and the others in later turns of the event loop. Log the rejections."""
        now = self._now()
        self._end_expired_phases()
        if now >= self._next_stall_check_at:
            self._next_stall_check_at = now + self.limits.write_seconds / STALL_CHECKS_PER_TIMEOUT
            self._abort_stalled(now)
        if self._unlogged and now >= self._next_log_at:
            self._next_log_at = now + LOG_INTERVAL_SECONDS
            log.warning("http.connections_limited", extra={"connections": len(self._open), **self._unlogged})
            self._unlogged.clear()

    def _end_expired_phases(self) -> None:
        now, left = self._now(), EXPIRED_IN_TURN
        for phase, waiting in self._phases.items():
            while waiting and (first := next(iter(waiting.items())))[1] <= now:
                if not left:
                    asyncio.get_running_loop().call_soon(self._end_expired_phases)
                    return
                left -= 1
                del waiting[first[0]]
                first[0].on_phase_timeout(phase)

    def _abort_stalled(self, now: float) -> None:
        for connection in list(self._open):
            if not connection.unread_bytes():
                self._stalled.pop(connection, None)
                continue
            read = connection.read_bytes()
            previous, since = self._stalled.setdefault(connection, (read, now))
            if read - previous >= self.limits.progress_bytes:
                self._stalled[connection] = (read, now)
            elif now - since >= self.limits.write_seconds:
                self.count_rejection("answer_not_read")
                connection.abort()

    def _schedule_sweep(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_SECONDS, self._run_sweep)

    def _run_sweep(self) -> None:
        self._timer = None
        if self._open or self._unlogged:
            self._schedule_sweep()
        self.close_expired()

    def _now(self) -> float:
        return self._monotonic() if self._monotonic is not None else asyncio.get_running_loop().time()
