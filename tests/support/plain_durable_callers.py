"""DurableCaller with a clock that does not wait, and with a target that keeps no call."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from ringback.client.durable import DurableCaller, McpTarget, RequestStateManager
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import PlainPosition


class FastClock:
    """Sleeps take one turn of the event loop."""

    def now(self) -> float:
        return time.time()  # noqa: TID251 - the clock of this test

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        await asyncio.sleep(0)


class PlainTarget:
    """Stands for an MCP server that keeps no call: `run_call` waits for the response on its connection."""

    url = "http://mcp.example/mcp"
    may_repeat_start = False

    def __init__(self, respond: Callable[[LocalCall], Awaitable[None]]) -> None:
        self._respond = respond

    def check_request(self, request: Any) -> None: ...

    async def run_call(self, call: LocalCall) -> None:
        await call.acquire_lease(position=PlainPosition())
        call.started.set()
        await self._respond(call)

    async def aclose(self) -> None: ...


def create_plain_caller(
    respond: Callable[[LocalCall], Awaitable[None]], state: RequestStateManager | None = None
) -> DurableCaller:
    return DurableCaller(cast("McpTarget", PlainTarget(respond)), state=state, clock=FastClock())


def count_runners(caller: DurableCaller) -> int:
    return len(cast("Any", caller)._runners)
