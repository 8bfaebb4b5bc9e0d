"""`scripts/bench loop`: POST /v1/calls → tool → signed callback, compared with a naive service at the same load.

Each service runs in its own process; both call the same lean upstream and send to the same receiver, which runs in this process
with the clients. In one loop, a client posts a call, gets its 202, and waits for the callback. `unloaded` runs one loop at a
time, `saturated` runs `AT_ONCE`. CPU is that of the service's process only.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aiohttp

from scripts.benchmarks.measurement import Json, latency_ms, machine_facts, percentile, print_progress, summary
from scripts.benchmarks.receiver_process import NO_CONTENT
from scripts.benchmarks.service import Service, free_port, python_process, ringback, wait_until_responding

CONCURRENCY: Final = 64
WARM_UP: Final = 200
UNLOADED_CALLS: Final = 100
CALLBACK_SECONDS: Final = 60.0
RINGBACK, NAIVE = "ringback", "naive"
_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_CORRELATION: Final = re.compile(rb'"correlation_id": ?"([0-9]+)"')


@dataclass(slots=True)
class Run:
    """The duration of a number of loops, in seconds."""

    accepts: list[float] = field(default_factory=list[float])
    loops: list[float] = field(default_factory=list[float])
    wall: float = 0.0
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.loops) / self.wall

    @property
    def cpu_us(self) -> float:
        return self.cpu / len(self.loops) * 1e6


class Callbacks:
    """A receiver in this process, with a future for each expected callback, by correlation id."""

    def __init__(self) -> None:
        self.awaited: dict[str, asyncio.Future[None]] = {}
        self.url = ""

    @asynccontextmanager
    async def receiving(self) -> AsyncGenerator[None]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Receiver(self.awaited), "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
        try:
            yield
        finally:
            server.close()


class _Receiver(asyncio.Protocol):
    def __init__(self, awaited: dict[str, asyncio.Future[None]]) -> None:
        self._awaited = awaited
        self._data = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(_END)) >= 0:
            length = _LENGTH.search(self._data[:end])
            whole = end + len(_END) + (int(length[1]) if length else 0)
            if len(self._data) < whole:
                return
            body, self._data = self._data[end:whole], self._data[whole:]
            self._transport.write(NO_CONTENT)
            if (found := _CORRELATION.search(body)) and (waiting := self._awaited.pop(found[1].decode(), None)):
                waiting.set_result(None)


class Client:
    """Runs loops against one of the services."""

    def __init__(self, service: Service, http: aiohttp.ClientSession, callbacks: Callbacks) -> None:
        self._service = service
        self._http = http
        self._callbacks = callbacks
        self._numbers = 0

    async def run_loops(self, *, loops: int, at_once: int) -> Run:
        done, left = Run(), iter(range(loops))

        async def work() -> None:
            for _ in left:
                await self._loop(done)

        cpu, began = self._service.cpu_seconds(), time.perf_counter()
        await asyncio.gather(*(work() for _ in range(at_once)))
        done.wall, done.cpu = time.perf_counter() - began, self._service.cpu_seconds() - cpu
        return done

    async def _loop(self, done: Run) -> None:
        self._numbers += 1
        number = str(self._numbers)
        arrived = self._callbacks.awaited[number] = asyncio.get_running_loop().create_future()
        body: dict[str, Any] = {
            "upstream": "stage",
            "tool": "echo",
            "arguments": {"path": "/srv/data"},
            "correlation_id": number,
            "callback": {"url": self._callbacks.url},
        }
        began = time.perf_counter()
        async with self._http.post(f"{self._service.url}/v1/calls", json=body) as response:
            if response.status >= 300:  # noqa: PLR2004 - not a success
                raise RuntimeError(f"{response.status}: {await response.text()}")
            await response.read()
        done.accepts.append(time.perf_counter() - began)
        await asyncio.wait_for(arrived, CALLBACK_SECONDS)
        done.loops.append(time.perf_counter() - began)


Rounds = Sequence[dict[str, Run]]
"""The runs of each variant by its name, round by round."""


async def loop(*, rounds: int, seconds: float) -> Json:
    async with AsyncExitStack() as stack:
        unloaded, saturated = await compare_services(stack, await _services(stack), rounds=rounds, seconds=seconds)
    return {"machine": machine_facts(), "rounds": rounds, "at_once": CONCURRENCY, **_compared(unloaded, saturated)}


async def compare_services(
    stack: AsyncExitStack, services: Mapping[str, Service], *, rounds: int, seconds: float
) -> tuple[Rounds, Rounds]:
    """Run the loops against each service in turns: the unloaded rounds, and the saturated ones."""
    callbacks = Callbacks()
    await stack.enter_async_context(callbacks.receiving())
    clients = {
        name: Client(service, await stack.enter_async_context(_session()), callbacks)
        for name, service in services.items()
    }
    warm = {name: await client.run_loops(loops=WARM_UP, at_once=CONCURRENCY) for name, client in clients.items()}
    sizes = {name: max(WARM_UP, round(run.rate * seconds)) for name, run in warm.items()}
    unloaded: list[dict[str, Run]] = []
    saturated: list[dict[str, Run]] = []
    for number in range(rounds):
        order = list(clients) if number % 2 == 0 else list(clients)[::-1]
        unloaded.append({name: await clients[name].run_loops(loops=UNLOADED_CALLS, at_once=1) for name in order})
        saturated.append(
            {name: await clients[name].run_loops(loops=sizes[name], at_once=CONCURRENCY) for name in order}
        )
        rates = "  ".join(f"{name} {run.rate:,.0f}/s {run.cpu_us:,.0f} µs" for name, run in saturated[-1].items())
        print_progress(f"round {number + 1} of {rounds}: {rates}")
    return unloaded, saturated


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2))


async def _services(stack: AsyncExitStack) -> dict[str, Service]:
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="ringback-bench-")))
    upstream_port, naive_port = free_port(), free_port()
    upstream_url, naive_url = f"http://127.0.0.1:{upstream_port}/mcp", f"http://127.0.0.1:{naive_port}"
    await stack.enter_async_context(
        python_process("scripts.benchmarks.lean_upstream", str(upstream_port), log=folder / "upstream")
    )
    stage: dict[str, Any] = {"url": upstream_url, "ringback": {"max_concurrent": 256}}
    ours = await stack.enter_async_context(ringback(folder, upstreams={"stage": stage}, upstream_url=upstream_url))
    naive = await stack.enter_async_context(
        python_process(
            "scripts.benchmarks.naive_service", str(naive_port), upstream_url, str(folder / "naive.db"),
            log=folder / "naive",
        )
    )  # fmt: skip
    await wait_until_responding(f"{naive_url}/openapi.json")
    return {RINGBACK: ours, NAIVE: Service(naive_url, upstream_url, naive.pid)}


def _compared(unloaded: Rounds, saturated: Rounds) -> Json:
    def accept(run: Run, share: float = 0.50) -> float:
        return percentile(run.accepts, share)

    return {
        "cpu_ratio": summary([each[RINGBACK].cpu_us / each[NAIVE].cpu_us for each in saturated]),
        "loops_per_second_ratio": summary([each[RINGBACK].rate / each[NAIVE].rate for each in saturated]),
        "accept_p50_ratio": summary([accept(each[RINGBACK]) / accept(each[NAIVE]) for each in saturated], 2),
        "accept_saturated_to_unloaded": {
            name: summary(
                [accept(busy[name]) / accept(idle[name]) for idle, busy in zip(unloaded, saturated, strict=True)], 2
            )
            for name in (RINGBACK, NAIVE)
        },
        **{name: report_variant(name, unloaded, saturated) for name in (RINGBACK, NAIVE)},
    }


def report_variant(name: str, unloaded: Rounds, saturated: Rounds) -> Json:
    return {
        "loops_per_second": summary([each[name].rate for each in saturated], 0),
        "cpu_us_per_call": summary([each[name].cpu_us for each in saturated], 0),
        "accept_unloaded": latency_ms([each[name].accepts for each in unloaded]),
        "accept_saturated": latency_ms([each[name].accepts for each in saturated]),
        "loop_unloaded": latency_ms([each[name].loops for each in unloaded]),
        "loop_saturated": latency_ms([each[name].loops for each in saturated]),
    }
