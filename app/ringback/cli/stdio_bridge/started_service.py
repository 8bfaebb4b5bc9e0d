"""The endpoint of a service that the bridge starts: where it is now, and starting it again when it is gone."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import anyio
import httpx2
from mcp_types import CONNECTION_CLOSED, ErrorData

from ringback.cli.embedded_service.runtime_file import RunningService
from ringback.cli.embedded_service.starter import ServiceNotStarted, ServiceStarter
from ringback.cli.stdio_bridge.endpoint import EndpointConfig
from ringback.cli.stdio_bridge.responses import NoResponse, RequestRefused
from ringback.domain.clock import Clock

SILENCE_SECONDS: Final = 4.0
"""Without a response, before the service is asked whether it responds at all. It may hold the response for a minute."""
PROBE_SECONDS: Final = 5.0
"""For a response without work, on this machine. Both together stay below the 10 s that clients wait for a command to start."""

Probe = Callable[[str], Awaitable[bool]]
"""Whether the service at this URL responds, or closes the connection: then the request fails by itself."""


class StartedService:
    """Implements `endpoint.EndpointLocator`."""

    def __init__(
        self,
        starter: ServiceStarter,
        make_config: Callable[[RunningService], EndpointConfig],
        *,
        clock: Clock,
        probe: Probe | None = None,
    ) -> None:
        self._starter = starter
        self._make_config = make_config
        self._clock = clock
        self._probe = probe or is_responsive

    def find(self) -> EndpointConfig | None:
        running = self._starter.find_running()
        return None if running is None else self._make_config(running)

    async def locate(self) -> EndpointConfig:
        try:
            return self._make_config(await self._starter.ensure_running())
        except ServiceNotStarted as problem:
            if problem.is_passing:
                raise NoResponse(str(problem), may_have_arrived=False) from None
            raise RequestRefused(ErrorData(code=CONNECTION_CLOSED, message=str(problem))) from None

    async def wait_for_response(self, sending: Coroutine[Any, Any, httpx2.Response]) -> httpx2.Response:
        """A process that was stopped, or whose event loop is blocked, accepts connections and responds to nothing."""
        task = asyncio.ensure_future(sending)
        try:
            await self._wait_until_done(task)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await _abandon(task)
            raise
        return await task

    async def _wait_until_done(self, task: "asyncio.Task[httpx2.Response]") -> None:
        while not await self._ends_within(task, SILENCE_SECONDS):
            running = self._starter.find_running()
            if running is not None and not await self._probe(running.url) and not task.done():
                raise NoResponse(self._describe_hung(running), is_hung=True)

    async def _ends_within(self, task: "asyncio.Task[httpx2.Response]", seconds: float) -> bool:
        pause = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait([task, pause], return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
        return task.done()

    def _describe_hung(self, running: RunningService) -> str:
        where = " in its container" if running.is_in_other_container else ""
        return (
            f"Your service (process {running.pid}) runs but has not responded for {SILENCE_SECONDS + PROBE_SECONDS:g} s. "
            f"Its log: {self._starter.log_path}. If it stays so, end it{where}: kill -9 {running.pid}. The next request "
            "starts it again."
        )


async def _abandon(sending: "asyncio.Task[httpx2.Response]") -> None:
    """End the request. A response that came meanwhile is closed: its connection counts as a client that is there."""
    sending.cancel()
    await asyncio.wait([sending])
    if not sending.cancelled() and sending.exception() is None:
        await sending.result().aclose()


async def is_responsive(url: str) -> bool:
    try:
        async with httpx2.AsyncClient(timeout=PROBE_SECONDS, trust_env=False) as http:
            await http.get(f"{url}/healthz")
    except httpx2.TimeoutException:
        return False
    except httpx2.HTTPError:
        return True
    return True
