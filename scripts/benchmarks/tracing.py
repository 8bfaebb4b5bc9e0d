"""`scripts/bench traces`: what traces and metrics of OpenTelemetry cost, in CPU for each call with its callback.

Two services run the loop of `scripts/bench loop` in turns. `off` is the service as installed. `on` exports every span and
metric to a collector in this process, which reads and forgets them. A loop has four spans: the request, the run, the request
upstream and the attempt.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aiohttp import web

from scripts.benchmarks.full_loop import compare_services
from scripts.benchmarks.measurement import Json, machine_facts, summary
from scripts.benchmarks.service import Service, python_process, ringback
from scripts.ports import free_port

OFF, ON = "off", "on"
_MAX_EXPORT_BYTES: Final = 64 * 1024 * 1024


async def traces(*, rounds: int, seconds: float) -> Json:
    async with AsyncExitStack() as stack:
        services = await open_services(stack)
        saturated = (await compare_services(stack, services, rounds=rounds, seconds=seconds)).saturated
    return {
        "machine": machine_facts(),
        "rounds": rounds,
        "cpu_us_off": summary([each[OFF].cpu_us for each in saturated], 0),
        "cpu_ratio_on_to_off": summary([each[ON].cpu_us / each[OFF].cpu_us for each in saturated]),
        "loops_per_second_ratio": summary([each[ON].rate / each[OFF].rate for each in saturated]),
    }


async def open_services(stack: AsyncExitStack) -> dict[str, Service]:
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="ringback-bench-")))
    port = free_port()
    await stack.enter_async_context(
        python_process("scripts.benchmarks.lean_upstream", str(port), log=folder / "upstream")
    )
    collector = await stack.enter_async_context(_collecting())
    environments = {OFF: {}, ON: {"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_BSP_SCHEDULE_DELAY": "500"}}
    return {name: await open_service(stack, folder / name, port, each) for name, each in environments.items()}


async def open_service(stack: AsyncExitStack, folder: Path, port: int, environment: dict[str, str]) -> Service:
    folder.mkdir()  # noqa: ASYNC240 - before anything is measured
    upstream_url = f"http://127.0.0.1:{port}/mcp"
    stage: dict[str, Any] = {"url": upstream_url, "ringback": {"max_concurrent": 256}}
    return await stack.enter_async_context(
        ringback(folder, upstreams={"stage": stage}, upstream_url=upstream_url, environment=environment)
    )


@asynccontextmanager
async def _collecting() -> AsyncGenerator[str]:
    """The URL of a collector that takes every export."""

    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    app = web.Application(client_max_size=_MAX_EXPORT_BYTES)
    app.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await asyncio.wait_for(runner.cleanup(), 10)
