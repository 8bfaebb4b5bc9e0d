"""Connections of the HTTP server without sockets: tests feed bytes to the protocol, and the transport records the output."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from ringback.http_server import BoundedHttpProtocol, ConnectionLimiter, HttpLimits

PEER = "203.0.113.7"


@dataclass(slots=True)
class ConnectionTime:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeTransport(asyncio.Transport):
    """The peer: the bytes that it has read, and the bytes that it has not."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 40_000), "sockname": ("192.0.2.1", 8090)})
        self.sent = b""
        self.waiting = 0
        self.reads = True
        self.reading = True
        self.ended: str | None = None

    def write(self, data: Any) -> None:
        self.sent += bytes(data)
        if not self.reads:
            self.waiting += len(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.ended is not None

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    @property
    def statuses(self) -> list[int]:
        return [int(part.split(b" ", 1)[0]) for part in self.sent.split(b"HTTP/1.1 ")[1:]]


@dataclass(slots=True)
class App:
    """Records the requests, and responds to each once the test allows it and the body is complete."""

    scopes: list[Scope] = field(default_factory=list[Scope])
    bodies: list[bytes] = field(default_factory=list[bytes])
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    reads: bool = True
    disconnects: int = 0
    answer: bytes = b"done"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body, more = b"", self.reads
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnects += 1
                return
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        await self.answering.wait()
        await self.respond(send)

    async def respond(self, send: Send) -> None:
        length = str(len(self.answer)).encode()
        start: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]}
        await send(start)
        await send({"type": "http.response.body", "body": self.answer})


@dataclass(slots=True)
class ConnectionHarness:
    """A server with hand-made connections and a clock that only the test advances."""

    app: App
    limits: HttpLimits
    time: ConnectionTime = field(default_factory=ConnectionTime)
    connections: ConnectionLimiter = field(init=False)
    state: ServerState = field(default_factory=ServerState)
    protocols: list[BoundedHttpProtocol] = field(default_factory=list[BoundedHttpProtocol])

    def __post_init__(self) -> None:
        self.connections = ConnectionLimiter(self.limits, monotonic=self.time)

    def connect(self, address: str = PEER) -> tuple[BoundedHttpProtocol, FakeTransport]:
        config = Config(self.app, ws="none", lifespan="off", log_config=None, access_log=False)
        protocol, peer = (
            BoundedHttpProtocol(config, self.state, {}, connections=self.connections),
            FakeTransport(address),
        )
        protocol.connection_made(peer)
        self.protocols.append(protocol)
        return protocol, peer

    def pass_time(self, seconds: float) -> None:
        self.time.now += seconds
        self.connections.close_expired()

    def lose_connection(self, protocol: BoundedHttpProtocol) -> None:
        self.protocols.remove(protocol)
        protocol.connection_lost(None)


async def run_loop_turns(count: int = 20) -> None:
    """Run all ready tasks."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def app() -> App:
    app = App()
    app.answering.set()
    return app


@pytest.fixture
async def make_bench(app: App) -> AsyncGenerator[Callable[..., ConnectionHarness]]:
    benches: list[ConnectionHarness] = []

    def make(**limits: Any) -> ConnectionHarness:
        benches.append(ConnectionHarness(app, HttpLimits(**limits)))
        return benches[-1]

    yield make
    for bench in benches:
        for protocol in list(bench.protocols):
            bench.lose_connection(protocol)
    await run_loop_turns()


@pytest.fixture
def bench(make_bench: Callable[..., ConnectionHarness]) -> ConnectionHarness:
    return make_bench()
