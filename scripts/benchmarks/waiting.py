"""Ten thousand calls that wait for a silent upstream: memory and CPU of the process, and the time until acceptance."""

import asyncio
import time
from typing import Any, Final

import aiohttp

from scripts.benchmarks.measurement import Json, print_progress
from scripts.benchmarks.service import Service, service

WAITING: Final = 10_000
STARTING_AT_ONCE: Final = 32
IDLE_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.5
ACCEPT_TIMEOUT_SECONDS: Final = 300.0


async def measure_waiting_calls(tool: str, *, calls: int, at_once: int, idle_seconds: float) -> Json:
    """Each `hold` waits in an HTTP request; each `work` is a polled task. Calls beyond `at_once` are queued."""
    async with service(max_concurrent=at_once) as running, aiohttp.ClientSession(running.url) as http:
        await _start(http, "echo", 1)  # warm-up: connections and imports
        empty_mb = running.rss_mb()
        began = time.perf_counter()
        await _start(http, tool, calls)
        accepted_seconds = time.perf_counter() - began
        print_progress(f"{tool}: {calls:,} calls accepted in {accepted_seconds:.1f} s")
        await _all_dispatched(http, min(calls, at_once))
        running_seconds = time.perf_counter() - began
        print_progress(f"{tool}: {at_once:,} are at the upstream after {running_seconds:.1f} s")
        idle = await _idle(running, idle_seconds)
        full_mb = running.rss_mb()
    return {
        "calls": calls,
        "at_the_upstream": at_once,
        "accepted_per_second": round(calls / accepted_seconds),
        "at_the_upstream_after_seconds": round(running_seconds, 1),
        "rss_mb": round(full_mb),
        "rss_mb_before": round(empty_mb),
        "kb_per_call": round((full_mb - empty_mb) * 1000 / calls, 1),
        **idle,
    }


async def _start(http: aiohttp.ClientSession, tool: str, calls: int) -> None:
    left = iter(range(calls))

    async def start() -> None:
        for number in left:
            body: dict[str, Any] = {"upstream": "stage", "tool": tool, "arguments": {"number": number}}
            async with http.post("/v1/calls", json=body) as response:
                response.raise_for_status()
                await response.read()

    await asyncio.gather(*(start() for _ in range(STARTING_AT_ONCE)))


async def _all_dispatched(http: aiohttp.ClientSession, calls: int) -> None:
    async with asyncio.timeout(ACCEPT_TIMEOUT_SECONDS):
        while await _in_flight(http) < calls:  # noqa: ASYNC110 - another process cannot set an event
            await asyncio.sleep(POLL_SECONDS)


async def _in_flight(http: aiohttp.ClientSession) -> int:
    async with http.get("/v1/upstreams") as response:
        response.raise_for_status()
        return (await response.json())["upstreams"][0]["calls_in_flight"]


async def _idle(running: Service, idle_seconds: float) -> Json:
    """CPU of the process and polls of its tasks while idle."""
    await asyncio.sleep(idle_seconds)  # the last requests are written for ten more seconds
    cpu, polls, began = running.cpu_seconds(), await count_polls(running), time.perf_counter()
    await asyncio.sleep(idle_seconds)
    seconds = time.perf_counter() - began
    return {
        "idle_cpu_percent": round((running.cpu_seconds() - cpu) / seconds * 100, 2),
        "polls_per_second": round((await count_polls(running) - polls) / seconds, 1),
    }


async def count_polls(running: Service) -> int:
    async with (
        aiohttp.ClientSession() as http,
        http.get(running.upstream_url.removesuffix("/mcp") + "/polls") as response,
    ):
        return int(await response.text())
