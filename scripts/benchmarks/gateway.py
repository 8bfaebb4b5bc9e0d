"""The cost of the gateway: a fast tool through it, compared with a direct call, in both eras.

A proxy that stores nothing (`sdk_proxy`) is measured beside it, which separates the cost of a second hop from Ringback's own.
The upstream is another process; client, gateway and proxy share this one. Calls run one after the other, so that they do not
compete for a core. The tool returns the time of its end, which separates the request's time from the response's. Units of work
of the store are timed, because every call is committed before it is dispatched. The CPU time is that of client and gateway
together, and varies less than the latency on a machine that others use too.
"""

import asyncio
import socket
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeVar

import mcp_types as types
from mcp import Client

from ringback.bootstrap import Environment, open_application
from ringback.domain.ports import Store, Transaction
from ringback.server import SWITCH_SECONDS, build_http_server, exempt_startup_objects_from_garbage_collection
from ringback.settings import Settings
from ringback.storage.store_wrapper import StoreWrapper
from ringback.upstreams.config import UpstreamConfig, UpstreamTransport
from scripts.benchmarks.measurement import (
    Json,
    fsync_seconds,
    latency_ms,
    machine_facts,
    percentile,
    print_progress,
    summary,
)
from scripts.benchmarks.sdk_proxy import sdk_proxy
from scripts.ports import free_port

Era = Literal["legacy", "2026-07-28"]
ERAS: Final[tuple[Era, ...]] = ("legacy", "2026-07-28")
WARM_UP: Final = 30
"""Warm-up calls of each variant before each of its turns."""
UPSTREAM: Final = "benchmark"
START_SECONDS: Final = 60.0
T = TypeVar("T")


class TimedStore(StoreWrapper):
    """A store that times each unit of work, with the wait for its commit."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.writes: list[float] = []
        self.reads: list[float] = []

    async def _run_write(
        self,
        write: Callable[[Callable[[Transaction], Awaitable[T]]], Awaitable[T]],
        work: Callable[[Transaction], Awaitable[T]],
    ) -> T:
        began = time.monotonic()
        try:
            return await write(work)
        finally:
            self.writes.append(time.monotonic() - began)

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        began = time.monotonic()
        try:
            return await super().read(work)
        finally:
            self.reads.append(time.monotonic() - began)


@dataclass(slots=True)
class CallTimings:
    """The times of one variant's calls in one round, in seconds."""

    whole: list[float] = field(default_factory=list[float])
    upstream_seconds: list[float] = field(default_factory=list[float])
    """From the call to the tool's end."""
    return_seconds: list[float] = field(default_factory=list[float])
    cpu_seconds: float = 0.0
    """Of this process, for all calls."""


Round = Mapping[tuple[Era, str], CallTimings]
DIRECT, GATEWAY_VARIANT, PROXY = "direct", "gateway", "proxy"
VARIANTS: Final = (DIRECT, GATEWAY_VARIANT, PROXY)


async def gateway(*, rounds: int, seconds: float) -> Json:
    sys.setswitchinterval(SWITCH_SECONDS)  # as `ringback serve` does
    watched: list[TimedStore] = []

    def wrap_store(store: Store) -> Store:
        watched.append(TimedStore(store))
        return watched[0]

    with TemporaryDirectory(prefix="ringback-bench-") as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            upstream = await stack.enter_async_context(_upstream())
            through = await stack.enter_async_context(_ringback(folder, upstream, wrap_store))
            proxies = {era: await stack.enter_async_context(sdk_proxy(upstream, era)) for era in ERAS}
            urls: Mapping[Era, Mapping[str, str]] = {
                era: {DIRECT: upstream, GATEWAY_VARIANT: through, PROXY: proxies[era]} for era in ERAS
            }
            done = [await _round(urls, number, rounds, seconds) for number in range(rounds)]
        calls = sum(
            WARM_UP + len(turn.whole)
            for each in done
            for (_, variant), turn in each.items()
            if variant == GATEWAY_VARIANT
        )
        return {
            "machine": machine_facts(),
            "rounds": rounds,
            "calls_of_each_round": min(len(turn.whole) for each in done for turn in each.values()),
            **{_name(era): _compared(done, era) for era in ERAS},
            "where": {
                **_store_share(watched[0], calls),
                "fsync": latency_ms([fsync_seconds(folder)]),
                **{_name(era): _report_directions(done, era) for era in ERAS},
            },
        }


def _name(era: Era) -> str:
    return "2025-11-25" if era == "legacy" else era


def _compared(done: Sequence[Round], era: Era) -> Json:
    """The ratios of paired turns, then their times."""
    return {
        "p50_ratio": _ratio(done, era, GATEWAY_VARIANT, DIRECT, 0.50),
        "p99_ratio": _ratio(done, era, GATEWAY_VARIANT, DIRECT, 0.99),
        "proxy_p50_ratio": _ratio(done, era, PROXY, DIRECT, 0.50),
        "p50_ratio_to_proxy": _ratio(done, era, GATEWAY_VARIANT, PROXY, 0.50),
        "cpu_ms_per_call": {
            variant: summary([_cpu_ms_per_call(each[era, variant]) for each in done], 2) for variant in VARIANTS
        },
        **{variant: latency_ms([each[era, variant].whole for each in done]) for variant in VARIANTS},
    }


def _ratio(done: Sequence[Round], era: Era, variant: str, base: str, share: float) -> Json:
    return summary(
        [percentile(each[era, variant].whole, share) / percentile(each[era, base].whole, share) for each in done], 2
    )


def _cpu_ms_per_call(turn: CallTimings) -> float:
    return turn.cpu_seconds / len(turn.whole) * 1000


def _report_directions(done: Sequence[Round], era: Era) -> Json:
    """Medians of the time that the gateway adds to request and response."""

    def added(way: Callable[[CallTimings], Sequence[float]]) -> Json:
        medians = [
            statistics.median(way(each[era, GATEWAY_VARIANT])) - statistics.median(way(each[era, DIRECT]))
            for each in done
        ]
        return summary([seconds * 1000 for seconds in medians], 2)

    return {
        "added_before_the_tool_ms": added(lambda turn: turn.upstream_seconds),
        "added_after_it_ms": added(lambda turn: turn.return_seconds),
    }


def _store_share(store: TimedStore, calls: int) -> Json:
    """The store's part of a call. The writes include concurrent ones (heartbeats, polls)."""
    return {
        "writes_per_call": round(len(store.writes) / calls, 1),
        "write_ms_per_call": round(sum(store.writes) / calls * 1000, 2),
        "reads_per_call": round(len(store.reads) / calls, 1),
        "read_ms_per_call": round(sum(store.reads) / calls * 1000, 2),
    }


async def _round(urls: Mapping[Era, Mapping[str, str]], number: int, rounds: int, seconds: float) -> Round:
    """Run every variant in turn; every other round in reverse order."""
    variants: list[tuple[Era, str]] = [(era, variant) for era in ERAS for variant in VARIANTS]
    order = variants if number % 2 == 0 else variants[::-1]
    done: dict[tuple[Era, str], CallTimings] = {
        (era, variant): await _turn(urls[era][variant], era, seconds) for era, variant in order
    }
    times = "  ".join(f"{_name(era)} {variant} {_p50_ms(done[era, variant]):.2f} ms" for era, variant in variants)
    print_progress(f"round {number + 1} of {rounds}: {times}")
    return done


def _p50_ms(turn: CallTimings) -> float:
    return percentile(turn.whole, 0.50) * 1000


async def _turn(url: str, era: Era, seconds: float) -> CallTimings:
    turn = CallTimings()
    async with Client(url, mode=era) as client:
        for _ in range(WARM_UP):
            await _call(client)
        ends_at, cpu_before = time.monotonic() + seconds, time.process_time()
        while (began := time.monotonic()) < ends_at:
            tool_ended = await _call(client)
            ended = time.monotonic()
            turn.whole.append(ended - began)
            turn.upstream_seconds.append(tool_ended - began)
            turn.return_seconds.append(ended - tool_ended)
        turn.cpu_seconds = time.process_time() - cpu_before
    return turn


async def _call(client: Client) -> float:
    """The time of the tool's end, from its result."""
    result = await client.call_tool("stamp", {})
    block = result.content[0]
    if not isinstance(block, types.TextContent):
        raise TypeError(f"the tool returned {block.type}")
    return float(block.text)


# -- the variants ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _upstream() -> AsyncGenerator[str]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "scripts.benchmarks.upstream", str(port))
    try:
        await _listening(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        await process.wait()


async def _listening(port: int) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


@asynccontextmanager
async def _ringback(folder: Path, upstream: str, watch: Callable[[Store], Store]) -> AsyncGenerator[str]:
    """Serve the whole service on a socket, as the command does; the URL of its endpoint for the upstream."""
    config = UpstreamConfig(name=UPSTREAM, transport=UpstreamTransport.HTTP, url=upstream, max_concurrent=16)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    settings = Settings(database_url=f"sqlite:///{folder / 'ringback.db'}", auth="off", port=port, drain_seconds=0.0)
    stop = asyncio.Event()
    async with (
        open_application(settings, [config], environment=Environment(wrap_store=watch)) as app,
        asyncio.TaskGroup() as group,
    ):
        server = build_http_server(app.api)
        group.create_task(app.run(stop))
        group.create_task(server.serve(sockets=[listener]))
        exempt_startup_objects_from_garbage_collection()  # as `ringback serve` does
        try:
            yield f"http://127.0.0.1:{port}/mcp/{UPSTREAM}"
        finally:
            stop.set()
            server.should_exit = True
