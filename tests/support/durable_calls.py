"""Durable callers on one MCP server, as several processes would have them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from ringback.client.durable import CallHandle, DurableCaller, DurableClock, SQLiteRequestState
from ringback.client.durable.clock import SystemDurableClock
from ringback.client.models import Progress
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import App, HttpServer, serving

LONGEST_PAUSE_SECONDS: Final = 600.0
"""No pause of a caller is longer; the time limits of these tests are."""
TIME_LIMIT_SECONDS: Final = 3600.0


class DeadlineClock(SystemDurableClock):
    """The system's clock, but that the deadline of a call passes when the test says so."""

    def __init__(self) -> None:
        self.has_expired = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds > LONGEST_PAUSE_SECONDS:
            await self.has_expired.wait()
        else:
            await super().sleep(seconds)


@asynccontextmanager
async def calling(
    app: App, path: Path, *, clock: DurableClock | None = None
) -> AsyncGenerator[tuple[HttpServer, Callable[[], DurableCaller]]]:
    """A server, and callers on it that share a state, as processes would."""
    async with serving(app) as server, asyncio.timeout(WAIT_SECONDS):
        callers: list[DurableCaller] = []

        def make_caller() -> DurableCaller:
            callers.append(DurableCaller(server.url, state=SQLiteRequestState(path / "calls.db"), clock=clock))
            return callers[-1]

        try:
            yield server, make_caller
        finally:
            for caller in callers:
                await caller.aclose()


async def request_call(caller: DurableCaller, tool: str, arguments: Any = None, **options: Any) -> CallHandle:
    merged: dict[str, Any] = {"start_timeout_seconds": WAIT_SECONDS, **options}
    return await caller.request_call_tool(tool, arguments, **merged)


async def join_until_progress(caller: DurableCaller, handle: CallHandle) -> Sequence[Progress]:
    """Join, each time for twice as long, until there is progress. The call does not end meanwhile."""
    seen: list[Progress] = []
    timeout_seconds = 0.5
    while not seen:
        assert await caller.join_call_tool(handle, timeout_seconds=timeout_seconds, on_progress=seen.append) is None
        timeout_seconds *= 2  # on a busy machine the first time may end before the connection is open
    return seen
