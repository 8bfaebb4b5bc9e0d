"""The task that a tools/call in flight may create, for a cancellation that comes before its id.

If the request were abandoned at once, a task that the upstream has just created would run on, and no process would know its id.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ringback.domain.call import Handle
from ringback.domain.clock import Clock
from ringback.waits import wait_first

CREATED_TASK_SECONDS: Final = 2.0
"""How long a cancellation waits for the response. A server that creates a task responds at once; a tool that runs without one
may take hours, and is cancelled by abandoning its request."""


class CreatedTask:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_requested = False
        self._responded = asyncio.Event()
        self.handle: Handle | None = None
        """Of the task, once the response names it."""

    @contextmanager
    def expect_response(self) -> Generator[None]:
        """Around the request and what sets `handle`."""
        self._is_requested = True
        try:
            yield
        finally:
            self._responded.set()

    async def wait_for_handle(self) -> Handle | None:
        """None if no request is in flight, or if its response names no task or does not come in time."""
        if self._is_requested:
            await wait_first(self._responded.wait(), self._clock.sleep(CREATED_TASK_SECONDS))
        return self.handle
