"""`scripts/bench loop`: POST /v1/calls → tool → signed callback, compared with a naive service at the same load.

Each service runs in its own process; both call the same lean upstream and send to the same receiver, which runs in this process
with the clients. In one loop, a client posts a call, gets its 202, and waits for the callback. CPU is that of the service's
process only.

    unloaded    one loop at a time
    saturated   a closed loop of `CONCURRENCY` clients: each starts its next call when its callback has arrived
    offered     an open loop: calls are posted at the same times to each service, at `OFFERED_SHARE` of the rate that the naive
                service reached in the same round, whether or not earlier ones have ended; latencies count from these times

In the closed loop, Little's law says: clients = rate x (time of the 202 + time from the 202 to the callback). The service that
ends calls faster therefore also gets more starts, and one that lets its clients wait for callbacks gets fewer of them. If the
clients did nothing but start calls, each 202 would take clients / rate, at any service: 64 ms at 1,000 starts a second.
`clients_waiting_for_202` is the part of the clients that waits for the first of the two times. So `saturated` shows the 202 at
each service's own rate of starts, and `offered` shows it at one rate for both.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aiohttp

from scripts.benchmarks.measurement import Json, latency_ms, machine_facts, percentile, print_progress, summary
from scripts.benchmarks.receiver_process import NO_CONTENT
from scripts.benchmarks.service import Service, python_process, ringback, wait_until_responding
from scripts.ports import free_port

CONCURRENCY: Final = 64
OFFERED_SHARE: Final = 0.8
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

    @property
    def clients_waiting_for_202(self) -> float:
        """The number of clients that wait for a 202, on average over the run."""
        return sum(self.accepts) / self.wall


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
                await self._loop(done, began=time.perf_counter())

        with self._measure(done):
            await asyncio.gather(*(work() for _ in range(at_once)))
        return done

    async def run_schedule(self, *, loops: int, per_second: float) -> Run:
        """Post a call each `1 / per_second` seconds. Latencies count from the time at which a call was to be posted."""
        done = Run()
        with self._measure(done):
            async with asyncio.TaskGroup() as group:
                began = time.perf_counter()
                for number in range(loops):
                    scheduled = began + number / per_second
                    await asyncio.sleep(scheduled - time.perf_counter())
                    group.create_task(self._loop(done, began=scheduled))
        return done

    @contextmanager
    def _measure(self, done: Run) -> Generator[None]:
        cpu, began = self._service.cpu_seconds(), time.perf_counter()
        yield
        done.wall, done.cpu = time.perf_counter() - began, self._service.cpu_seconds() - cpu

    async def _loop(self, done: Run, *, began: float) -> None:
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
        async with self._http.post(f"{self._service.url}/v1/calls", json=body) as response:
            if response.status >= 300:  # noqa: PLR2004 - not a success
                raise RuntimeError(f"{response.status}: {await response.text()}")
            await response.read()
        done.accepts.append(time.perf_counter() - began)
        await asyncio.wait_for(arrived, CALLBACK_SECONDS)
        done.loops.append(time.perf_counter() - began)


Rounds = Sequence[dict[str, Run]]
"""The runs of each variant by its name, round by round."""


@dataclass(frozen=True, slots=True)
class Compared:
    unloaded: list[dict[str, Run]] = field(default_factory=list[dict[str, Run]])
    saturated: list[dict[str, Run]] = field(default_factory=list[dict[str, Run]])
    offered: list[dict[str, Run]] = field(default_factory=list[dict[str, Run]])
    """Empty unless requested."""


async def loop(*, rounds: int, seconds: float) -> Json:
    async with AsyncExitStack() as stack:
        compared = await compare_services(
            stack, await _services(stack), rounds=rounds, seconds=seconds, offer_share_of=NAIVE
        )
    return {"machine": machine_facts(), "rounds": rounds, "at_once": CONCURRENCY, **_report(compared)}


async def compare_services(
    stack: AsyncExitStack,
    services: Mapping[str, Service],
    *,
    rounds: int,
    seconds: float,
    offer_share_of: str | None = None,
) -> Compared:
    """Run the loops against each service in turns. With `offer_share_of`, each round ends with the open loop.

    Its rate is `OFFERED_SHARE` of the rate that the service of this name reached in the saturated run of the round.
    """
    callbacks = Callbacks()
    await stack.enter_async_context(callbacks.receiving())
    clients = {
        name: Client(service, await stack.enter_async_context(_session()), callbacks)
        for name, service in services.items()
    }
    warm = {name: await client.run_loops(loops=WARM_UP, at_once=CONCURRENCY) for name, client in clients.items()}
    sizes = {name: max(WARM_UP, round(run.rate * seconds)) for name, run in warm.items()}
    compared = Compared()
    for number in range(rounds):
        order = list(clients) if number % 2 == 0 else list(clients)[::-1]
        compared.unloaded.append(
            {name: await clients[name].run_loops(loops=UNLOADED_CALLS, at_once=1) for name in order}
        )
        saturated = {name: await clients[name].run_loops(loops=sizes[name], at_once=CONCURRENCY) for name in order}
        compared.saturated.append(saturated)
        if offer_share_of is not None:
            rate, loops = OFFERED_SHARE * saturated[offer_share_of].rate, sizes[offer_share_of]
            compared.offered.append(
                {name: await clients[name].run_schedule(loops=loops, per_second=rate) for name in order}
            )
        rates = "  ".join(f"{name} {run.rate:,.0f}/s {run.cpu_us:,.0f} µs" for name, run in saturated.items())
        print_progress(f"round {number + 1} of {rounds}: {rates}")
    return compared


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


def _report(compared: Compared) -> Json:
    saturated, offered = compared.saturated, compared.offered
    return {
        "cpu_ratio": summary([each[RINGBACK].cpu_us / each[NAIVE].cpu_us for each in saturated]),
        "loops_per_second_ratio": summary([each[RINGBACK].rate / each[NAIVE].rate for each in saturated]),
        "accept_p50_ratio": summary([_accept(each[RINGBACK]) / _accept(each[NAIVE]) for each in saturated], 2),
        "accept_p50_ratio_at_equal_load": summary(
            [_accept(each[RINGBACK]) / _accept(each[NAIVE]) for each in offered], 2
        ),
        "accept_saturated_to_unloaded": _accept_ratios(saturated, compared.unloaded),
        "accept_offered_to_unloaded": _accept_ratios(offered, compared.unloaded),
        **{
            name: report_variant(name, compared.unloaded, saturated) | _report_offered(name, offered)
            for name in (RINGBACK, NAIVE)
        },
    }


def _accept(run: Run) -> float:
    return percentile(run.accepts, 0.50)


def _accept_ratios(busy: Rounds, idle: Rounds) -> Json:
    return {
        name: summary([_accept(each[name]) / _accept(base[name]) for each, base in zip(busy, idle, strict=True)], 2)
        for name in (RINGBACK, NAIVE)
    }


def report_variant(name: str, unloaded: Rounds, saturated: Rounds) -> Json:
    return {
        "loops_per_second": summary([each[name].rate for each in saturated], 0),
        "cpu_us_per_call": summary([each[name].cpu_us for each in saturated], 0),
        "clients_waiting_for_202": summary([each[name].clients_waiting_for_202 for each in saturated], 1),
        "accept_unloaded": latency_ms([each[name].accepts for each in unloaded]),
        "accept_saturated": latency_ms([each[name].accepts for each in saturated]),
        "loop_unloaded": latency_ms([each[name].loops for each in unloaded]),
        "loop_saturated": latency_ms([each[name].loops for each in saturated]),
    }


def _report_offered(name: str, offered: Rounds) -> Json:
    return {
        "offered_per_second": summary([each[name].rate for each in offered], 0),
        "accept_offered": latency_ms([each[name].accepts for each in offered]),
        "loop_offered": latency_ms([each[name].loops for each in offered]),
    }
