"""The states of connections; the state of one connection, its last problem, and those who wait for another state."""

import logging
from datetime import datetime
from enum import StrEnum

import anyio

from ringback.domain.clock import Clock
from ringback.upstreams.connection_problems import ConnectionProblem, get_advice
from ringback.upstreams.errors import UpstreamUnreachable

log = logging.getLogger(__name__)


class ConnectionState(StrEnum):
    """As users see it."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"
    """Connected, but the upstream does not respond; a call may occupy it. Calls are still sent to it."""
    FAILING = "failing"


class ConnectionStatus:
    def __init__(self, upstream: str, *, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._state = ConnectionState.IDLE
        self.state_since: datetime = clock.now()
        self.problem: ConnectionProblem | None = None
        """Why the last attempt to connect failed; None after a success."""
        self._error_output: str | None = None
        self._changed = anyio.Event()

    @property
    def state(self) -> ConnectionState:
        return self._state

    @state.setter
    def state(self, state: ConnectionState) -> None:
        if state is not self._state:
            self._state, self.state_since = state, self._clock.now()

    @property
    def shown_problem(self) -> ConnectionProblem | None:
        """Why the last attempt to connect failed, or what is wrong with the connection."""
        is_unresponsive = self.state is ConnectionState.UNRESPONSIVE
        return self.problem or (ConnectionProblem.UNRESPONSIVE if is_unresponsive else None)

    @property
    def error_output(self) -> str | None:
        """What a command wrote to standard error before the last attempt failed, and its exit code. For operators only."""
        return None if self.problem is None else self._error_output

    @property
    def advice(self) -> str | None:
        return None if self.shown_problem is None else get_advice(self.shown_problem, self._upstream)

    @property
    def is_connected(self) -> bool:
        return self.state in {ConnectionState.READY, ConnectionState.UNRESPONSIVE}

    def set_state(self, state: ConnectionState) -> None:
        self.state = state
        self.notify_waiters()

    def record_failure(self, problem: ConnectionProblem, error_output: str | None = None) -> None:
        # One warning a problem, not one an attempt.
        level = logging.DEBUG if problem is self.problem else logging.WARNING
        output = {} if error_output is None else {"error_output": error_output}
        log.log(level, "upstream.failing", extra={"upstream": self._upstream, "problem": str(problem), **output})
        self.problem, self._error_output = problem, error_output
        self.set_state(ConnectionState.FAILING)

    def record_slow_attempt(self) -> None:
        """Show that the first attempt fails for those who have waited for it. It goes on, and may succeed."""
        if self.state is ConnectionState.CONNECTING:
            self.record_failure(ConnectionProblem.TIMEOUT)

    def make_error(self, waited_seconds: float) -> UpstreamUnreachable:
        """The error of a request that has waited this long for a session."""
        problem = self.problem or ConnectionProblem.TIMEOUT
        advice = get_advice(problem, self._upstream)
        return UpstreamUnreachable(f"{problem.replace('_', ' ')}, for {waited_seconds:g} s. {advice}")

    async def wait_until_settled(self, timeout_seconds: float) -> None:
        """Wait until the first connection attempt has succeeded or failed, but no longer than the timeout."""
        with anyio.move_on_after(timeout_seconds):
            while self.state in {ConnectionState.IDLE, ConnectionState.CONNECTING}:
                await self.changed.wait()

    @property
    def changed(self) -> anyio.Event:
        """Set at the next change. Who awaits something else first takes it before that, and misses no change."""
        return self._changed

    def notify_waiters(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
