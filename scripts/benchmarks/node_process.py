"""A node of `scripts/bench nodes`, in its own process: it ends calls, or sends callbacks.

It prints `ready`, waits for a line, works, and prints its CPU seconds. A node that ends calls stops when it has ended its own;
one that sends callbacks stops at the next line.
"""

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from ringback.domain.principal import Principal
from scripts.benchmarks.engine import BenchmarkEngine, open_engine


async def main(spec: dict[str, Any]) -> None:
    async with open_engine(spec["database_url"]) as engine:
        work = end_calls if spec["ends_calls"] else send_callbacks
        await work(engine, spec)


async def end_calls(engine: BenchmarkEngine, spec: dict[str, Any]) -> None:
    calls = await engine.running_calls(spec["urls"], spec["calls"], Principal(spec["principal"]))
    began = await _begin()
    await engine.finish_calls(calls)
    _report(began)


async def send_callbacks(engine: BenchmarkEngine, _: dict[str, Any]) -> None:
    began = await _begin()
    async with engine.running_dispatcher() as stop:
        await _read_line()
        stop.set()
    _report(began)


async def _begin() -> float:
    print("ready", flush=True)
    await _read_line()
    return time.process_time()


async def _read_line() -> None:
    await asyncio.to_thread(sys.stdin.readline)


def _report(began: float) -> None:
    print(json.dumps({"cpu_seconds": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(json.loads(sys.argv[1])))
