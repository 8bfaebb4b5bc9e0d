"""The calls that run on one connection, with their deadlines, and the requests of clients that are forwarded on it."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import anyio

from ringback.domain.call import Call
from ringback.domain.clock import Clock


class RunningCalls:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: dict[object, float] = {}
        self._request_deadlines: dict[object, float] = {}
        self._ended = anyio.Event()

    def __len__(self) -> int:
        return len(self._deadlines)

    def list_deadlines(self) -> Sequence[float]:
        """Of calls and forwarded requests, by `Clock.monotonic`."""
        return [*self._deadlines.values(), *self._request_deadlines.values()]

    @contextmanager
    def track_call(self, call: Call) -> Generator[None]:
        """Count the call while entered."""
        key = object()
        self._deadlines[key] = self._clock.monotonic() + (call.deadline_at - self._clock.now()).total_seconds()
        try:
            yield
        finally:
            del self._deadlines[key]
            self._note_end()

    @contextmanager
    def track_request(self, timeout_seconds: float) -> Generator[None]:
        """Keep the connection open for a forwarded request, while entered; it ends within this time."""
        key = object()
        self._request_deadlines[key] = self._clock.monotonic() + timeout_seconds
        try:
            yield
        finally:
            del self._request_deadlines[key]
            self._note_end()

    def _note_end(self) -> None:
        self._ended.set()
        self._ended = anyio.Event()

    async def wait_ended(self) -> None:
        """Wait until no call runs and no forwarded request waits for its response."""
        while self._deadlines or self._request_deadlines:
            await self._ended.wait()
