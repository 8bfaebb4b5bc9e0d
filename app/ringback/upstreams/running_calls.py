"""The calls that run on one connection, and their deadlines."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import anyio

from ringback.domain.call import Call
from ringback.domain.clock import Clock


class RunningCalls:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: dict[object, float] = {}
        self._ended = anyio.Event()

    def __len__(self) -> int:
        return len(self._deadlines)

    def list_deadlines(self) -> Sequence[float]:
        """By `Clock.monotonic`."""
        return list(self._deadlines.values())

    @contextmanager
    def track_call(self, call: Call) -> Generator[None]:
        """Count the call while entered."""
        key = object()
        self._deadlines[key] = self._clock.monotonic() + (call.deadline_at - self._clock.now()).total_seconds()
        try:
            yield
        finally:
            del self._deadlines[key]
            self._ended.set()
            self._ended = anyio.Event()

    async def wait_ended(self) -> None:
        """Wait until no call runs."""
        while self._deadlines:
            await self._ended.wait()
