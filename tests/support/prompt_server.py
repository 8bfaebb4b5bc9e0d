"""uvicorn's server in a task of the test, which stops as soon as its requests have ended.

uvicorn's own looks ten times a second whether it should stop. Then it pauses for another tenth of a second, also without any
connection, and looks ten times a second whether its connections are closed. A test would wait 0.1 to 0.3 s for each server.
"""

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn

from tests.support.limits import growing_pauses


class PromptServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, *, grace_seconds: float) -> None:
        """Requests that are still running `grace_seconds` after the stop are cancelled."""
        super().__init__(config)
        self._grace_seconds = grace_seconds
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Let `serve` return once the requests in progress have ended."""
        self.should_exit = True
        self._stop.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)  # makes the headers that each response has
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Do in uvicorn's order what its method does."""
        for server in self.servers:
            server.close()
        for listening in sockets or ():
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self._grace_seconds):
                await self._wait_until_unused()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
        if not self.force_exit:
            await self.lifespan.shutdown()

    async def _wait_until_unused(self) -> None:
        for pause in growing_pauses():
            await asyncio.sleep(pause)
            if not self.server_state.connections and not self.server_state.tasks:
                return

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # signals belong to pytest
