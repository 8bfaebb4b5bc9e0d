"""A call through REST, compared with a direct call of the SDK's client: latency of single calls, and calls per second.

Ringback commits a call when it is sent and when it ends, and writes an event and a resume token. The direct call does none of
that, so the ratio is the cost of all of it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import aiohttp
from mcp import Client

from scripts.benchmarks.measurement import (
    Json,
    Measured,
    latency_ms,
    measuring,
    paired_ratios,
    percentile,
    print_progress,
    summary,
)
from scripts.benchmarks.service import service

CONCURRENCY: Final = 32
WARM_UP: Final = 20
REST, DIRECT = "rest", "direct"
WAIT_SECONDS: Final = 30

Call = Callable[[], Awaitable[None]]
Round = dict[str, list[float]]


async def overhead(*, rounds: int, seconds: float) -> Json:
    async with (
        service(max_concurrent=256) as running,
        aiohttp.ClientSession(running.url) as http,
        Client(running.upstream_url) as client,
    ):
        calls: dict[str, Call] = {REST: lambda: call_over_rest(http), DIRECT: lambda: call_directly(client)}
        for call in calls.values():
            await measure_sequential(call, WARM_UP)
        sizes = {
            name: max(WARM_UP, round(WARM_UP / await measure_call(call) * seconds)) for name, call in calls.items()
        }
        times: list[Round] = []
        rates: list[dict[str, Measured]] = []
        for number in range(rounds):
            order = list(calls) if number % 2 == 0 else list(calls)[::-1]
            times.append({name: await measure_sequential(calls[name], sizes[name]) for name in order})
            rates.append({name: await measure_concurrent(calls[name], sizes[name]) for name in order})
            summary_text = "  ".join(f"{name} {rates[-1][name].rate:,.0f}/s" for name in calls)
            print_progress(f"round {number + 1} of {rounds}: {summary_text}")
    return {
        "p50_ratio": _ratio(times, 0.50),
        "p99_ratio": _ratio(times, 0.99),
        "calls_per_second_ratio": summary(paired_ratios(rates, REST, DIRECT)),
        "latency": {name: latency_ms([each[name] for each in times]) for name in calls},
        "at_once": CONCURRENCY,
        "calls_per_second": {name: summary([each[name].rate for each in rates], 0) for name in calls},
    }


def _ratio(times: Sequence[Round], share: float) -> Json:
    return summary([percentile(each[REST], share) / percentile(each[DIRECT], share) for each in times])


async def call_over_rest(http: aiohttp.ClientSession) -> None:
    body: dict[str, Any] = {"upstream": "stage", "tool": "echo", "wait_seconds": WAIT_SECONDS}
    async with http.post("/v1/calls", json=body) as response:
        ended = await response.json()
        if ended["call"]["outcome"] != "result":
            raise RuntimeError(f"a call ended as {ended['call']['outcome']}")


async def call_directly(client: Client) -> None:
    await client.call_tool("echo")


async def measure_call(call: Call) -> float:
    return sum(await measure_sequential(call, WARM_UP))


async def measure_sequential(call: Call, count: int) -> list[float]:
    taken: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - began)
    return taken


async def measure_concurrent(call: Call, count: int) -> Measured:
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await call()

    with measuring(count) as measured:
        await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    return measured
