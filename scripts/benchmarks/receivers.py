"""Receivers in their own processes, so that they take no CPU time of the measured process."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal, cast

import aiohttp

from scripts.benchmarks.receiver_process import NO_CONTENT, Arrivals

ORIGINS: Final = 16
"""The minimum of design §12, so that a single fast receiver does not favour a sender."""
PROCESSES: Final = 2
CEILING_CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True)
class Receivers:
    origins: Sequence[str]
    """`http://127.0.0.1:port`; limits and pools treat each as a separate receiver."""
    processes: Sequence[str]
    """One origin for each process."""

    def urls(self, path: str) -> list[str]:
        return [f"{origin}{path}" for origin in self.origins]

    async def arrivals(self) -> Arrivals:
        """The arrival time of each webhook-id at a path under /timed since the last call of this method."""
        found: Arrivals = {}
        async with aiohttp.ClientSession() as session:
            for origin in self.processes:
                async with session.get(f"{origin}/arrivals") as response:
                    found |= json.loads(await response.read())
        return found


@asynccontextmanager
async def receivers(origins: int = ORIGINS, processes: int = PROCESSES) -> AsyncGenerator[Receivers]:
    """Receivers that respond with 204 at once."""
    async with AsyncExitStack() as stack:
        shares = [
            await stack.enter_async_context(_process(origins // processes, "answering")) for _ in range(processes)
        ]
        yield Receivers([origin for share in shares for origin in share], [share[0] for share in shares])


@asynccontextmanager
async def hung_receivers(origins: int) -> AsyncGenerator[list[str]]:
    """Origins that accept every connection and never respond."""
    async with _process(origins, "hung") as found:
        yield found


class RestartedReceiver:
    """One origin in a process that stops, so that connections are refused, and starts again at the same port."""

    def __init__(self) -> None:
        self.origin = ""
        self._running = AsyncExitStack()

    @property
    def receivers(self) -> Receivers:
        return Receivers([self.origin], [self.origin])

    async def start(self) -> None:
        port = int(self.origin.rpartition(":")[2] or 0)
        (self.origin,) = await self._running.enter_async_context(_process(1, "answering", port=port))

    async def stop(self) -> None:
        await self._running.aclose()


@asynccontextmanager
async def restarted_receiver() -> AsyncGenerator[RestartedReceiver]:
    """It responds with 204 at once, and is running."""
    receiver = RestartedReceiver()
    await receiver.start()
    try:
        yield receiver
    finally:
        await receiver.stop()


async def measure_ceiling(receivers: Receivers, *, body: bytes, seconds: float) -> float:
    """The receivers' maximum of requests per second, from a sender that only repeats the same bytes."""
    request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    asking: list[_RequestProtocol] = []
    for number in range(CEILING_CONNECTIONS):
        port = int(receivers.origins[number % len(receivers.origins)].rpartition(":")[2])
        _, protocol = await loop.create_connection(lambda: _RequestProtocol(request), "127.0.0.1", port)
        asking.append(protocol)
    began = time.perf_counter()
    await asyncio.sleep(until - loop.time())
    taken = time.perf_counter() - began
    for protocol in asking:
        protocol.close()
    return sum(protocol.answered for protocol in asking) / taken


class _RequestProtocol(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.Transport | None = None
        self.answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None and data == NO_CONTENT:
            self.answered += 1
            self._transport.write(self._request)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


@asynccontextmanager
async def _process(
    origins: int, behaviour: Literal["answering", "hung"], *, port: int = 0
) -> AsyncGenerator[list[str]]:
    module = "scripts.benchmarks.receiver_process"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, str(origins), behaviour, str(port),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ports = json.loads(await process.stdout.readline())
        yield [f"http://127.0.0.1:{port}" for port in ports]
    finally:
        process.stdin.close()
        await process.wait()
