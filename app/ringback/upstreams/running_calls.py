"""The calls that run on one connection, with their deadlines, and the requests of clients that are forwarded on it."""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ringback.domain.call import MRTR_DRIVER, Call
from ringback.domain.clock import Clock
from ringback.upstreams.call_session import CallSession
from ringback.upstreams.session import UpstreamSession


@dataclass(slots=True, eq=False)
class RunningCall:
    deadline: float
    """By `Clock.monotonic`."""
    runs_upstream: bool
    """Whether an earlier session has sent the call, and its upstream runs it or knows how it ended."""
    session: CallSession | None = None
    """None until the call has one."""

    @property
    def awaits_session(self) -> bool:
        """Whether the call waits for a session that will send it."""
        return not self.runs_upstream if self.session is None else self.session.awaits_session


class RunningCalls:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: set[RunningCall] = set()
        self._unconnected: set[RunningCall] = set()
        """Calls that wait until the upstream can be reached. They keep no connection open."""
        self._request_deadlines: dict[object, float] = {}
        self._ended = asyncio.Event()
        """Set when one has ended since the last look of `wait_ended`."""

    def __len__(self) -> int:
        return len(self._calls)

    def count_calls(self) -> int:
        """Those that wait for a connection, too."""
        return len(self._calls) + len(self._unconnected)

    def count_awaiting_session(self) -> int:
        return sum(call.awaits_session for call in (*self._calls, *self._unconnected))

    def list_deadlines(self) -> Sequence[float]:
        """Of calls and forwarded requests, by `Clock.monotonic`."""
        return [*(call.deadline for call in self._calls), *self._request_deadlines.values()]

    def list_deadlines_in(self, session: UpstreamSession) -> Sequence[float]:
        """Of the calls that run in this session now, by `Clock.monotonic`."""
        running = [call for call in self._calls if call.session is not None and call.session.is_in(session)]
        return [call.deadline for call in running]

    @contextmanager
    def track_call(self, call: Call) -> Generator[RunningCall]:
        """Count the call while entered."""
        running = self._make_running(call)
        self._calls.add(running)
        try:
            yield running
        finally:
            self._calls.remove(running)
            self._ended.set()

    @contextmanager
    def track_unconnected(self, call: Call) -> Generator[None]:
        """Count a call that waits until the upstream can be reached, while entered."""
        waiting = self._make_running(call)
        self._unconnected.add(waiting)
        try:
            yield
        finally:
            self._unconnected.remove(waiting)

    def _make_running(self, call: Call) -> RunningCall:
        remaining_seconds = (call.deadline_at - self._clock.now()).total_seconds()
        runs_upstream = call.handle is not None and call.handle.driver != MRTR_DRIVER
        return RunningCall(self._clock.monotonic() + remaining_seconds, runs_upstream=runs_upstream)

    @contextmanager
    def track_request(self, timeout_seconds: float) -> Generator[None]:
        """Keep the connection open for a forwarded request, while entered; it ends within this time."""
        key = object()
        self._request_deadlines[key] = self._clock.monotonic() + timeout_seconds
        try:
            yield
        finally:
            del self._request_deadlines[key]
            self._ended.set()

    async def wait_ended(self) -> None:
        """Wait until no call runs and no forwarded request waits for its response."""
        while self._calls or self._request_deadlines:
            self._ended.clear()
            await self._ended.wait()
