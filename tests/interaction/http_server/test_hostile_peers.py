"""A thousand slow and a thousand flooding connections, on real sockets and the loop that production has.

The peers are in a process of their own; the server is in this one, so that what it keeps can be seen.
"""

import asyncio
import json
import resource
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, cast

import httpx
import uvloop
from starlette.types import Receive, Scope, Send

from ringback.http_server import ConnectionLimiter, HttpLimits
from ringback.http_server.limits import ConnectionPhase
from ringback.server import build_http_server

PEERS: Final = Path(__file__).parents[2] / "support" / "hostile_peers_process.py"
WAIT_SECONDS: Final = 60.0
PEERS_PER_KIND: Final = 25
EACH_DEEP: Final = 250
"""Connections of each of four slow and four flooding kinds."""
BYTES_EACH_MAX: Final = 160 * 1024
"""Memory of a hostile connection. A read of uvloop (250 KiB) is temporary; the limits are 64 KiB."""
LARGE: Final = b"r" * 8 * 1024 * 1024
"""More than the system buffers for a peer that does not read, on loopback too."""


class ManualSeconds:
    """Stands still, so that a busy machine ends no connection; the test advances it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class App:
    """Responds at once; to `/large` with more than all buffers hold, to `/held` never."""

    served: int = 0
    ended: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.served += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self.ended += 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/held":
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        while (await receive()).get("more_body", False):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for place in range(0, len(LARGE) if scope["path"] == "/large" else 1, 65_536):
            await send({"type": "http.response.body", "body": LARGE[place : place + 65_536], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class HostilePeers:
    def __init__(self, process: Process) -> None:
        self._process = process

    async def send(self, kind: str, count: int) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"kind": kind, "count": count}).encode() + b"\n")
        assert int(await asyncio.wait_for(self._process.stdout.readline(), 2 * WAIT_SECONDS)) == count


@dataclass(slots=True)
class ServerHarness:
    app: App
    connections: ConnectionLimiter
    clock: ManualSeconds
    peers: HostilePeers
    http: httpx.AsyncClient

    async def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.connections.close_expired()

    async def assert_other_client_served(self) -> None:
        assert (await self.http.get("/")).status_code == 200


@asynccontextmanager
async def running_server_harness(**limits: Any) -> AsyncGenerator[ServerHarness]:
    app, clock = App(), ManualSeconds()
    connections = ConnectionLimiter(HttpLimits(connections_max=10_000, **limits), monotonic=clock)
    server = build_http_server(cast("Any", app), connections=connections)
    server.config.timeout_graceful_shutdown = 1
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(PEERS), "127.0.0.1", str(port), stdin=PIPE, stdout=PIPE
        )
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_SECONDS) as http:
            try:
                yield ServerHarness(app, connections, clock, HostilePeers(process), http)
            finally:
                server.should_exit = True
                if process.returncode is None:
                    process.kill()
                await process.communicate()
                await serving


def on_uvloop(scenario: Coroutine[Any, Any, None]) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def wait_until(stage: ServerHarness, reached: Callable[[], bool]) -> None:
    """Another client is served meanwhile."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not reached():
            await stage.assert_other_client_served()


def test_slow_and_flooding_connections_are_rejected_or_closed_and_others_are_served(*, deep: bool) -> None:
    each = EACH_DEEP if deep else PEERS_PER_KIND

    async def scenario() -> None:
        async with running_server_harness(trusted_proxies=(ip_network("127.0.0.0/8"),)) as here:
            await here.assert_other_client_served()
            before, counts = resident_bytes(), here.connections.rejection_counts
            for kind in ("silent", "half a line", "half a head", "half a body"):
                await here.peers.send(kind, each)
                await here.assert_other_client_served()
            await wait_until(here, lambda: len(here.connections) == 4 * each + 1)
            await wait_until(
                here, lambda: here.connections.count_in_phase(ConnectionPhase.BODY) == each
            )  # they came last
            for kind in ("url", "header", "chunk", "trailer"):
                await here.peers.send(kind, each)
                await here.assert_other_client_served()
            await wait_until(here, lambda: counts["url_too_long"] + counts["headers_too_large"] == 4 * each)
            await wait_until(here, lambda: len(here.connections) == 4 * each + 1)
            assert (counts["url_too_long"], counts["headers_too_large"]) == (each, 3 * each)
            assert resident_bytes() - before < 8 * each * BYTES_EACH_MAX
            await here.pass_time(HttpLimits().headers_seconds)
            await wait_until(here, lambda: len(here.connections) == each + 1)
            await here.pass_time(HttpLimits().body_seconds)
            await wait_until(here, lambda: len(here.connections) == 1)
            assert (counts["idle_headers"], counts["request_too_slow"]) == (each, 3 * each)

    on_uvloop(scenario())


def test_peers_that_never_read_and_floods_of_pipelined_requests_are_cut(*, deep: bool) -> None:
    each = EACH_DEEP if deep else PEERS_PER_KIND

    async def scenario() -> None:
        async with running_server_harness(trusted_proxies=(ip_network("127.0.0.0/8"),)) as here:
            await here.assert_other_client_served()
            before = resident_bytes()
            await here.peers.send("never reads", each)
            await wait_until(here, lambda: here.app.served - here.app.ended == each)
            assert resident_bytes() - before < 2 * each * BYTES_EACH_MAX
            for _ in range(6):
                await here.pass_time(HttpLimits().write_seconds / 4)
                await here.assert_other_client_served()
            await wait_until(here, lambda: len(here.connections) == 1)
            assert here.connections.rejection_counts["answer_not_read"] == each
            served = here.app.served
            await here.peers.send("pipeline", 4)
            async with asyncio.timeout(WAIT_SECONDS):
                while here.connections.rejection_counts["too_many_pipelined"] < 4:
                    await here.assert_other_client_served()
                    served += 1
            assert here.connections.rejection_counts["too_many_pipelined"] == 4
            assert here.app.served <= served + 4

    on_uvloop(scenario())


def test_a_peer_has_a_connection_limit_and_its_surplus_gets_the_reason() -> None:
    async def scenario() -> None:
        async with running_server_harness(peer_connections_max=PEERS_PER_KIND) as here:
            await here.assert_other_client_served()
            await here.peers.send("half a head", 2 * PEERS_PER_KIND)
            await wait_until(
                here, lambda: here.connections.rejection_counts["too_many_connections"] == PEERS_PER_KIND + 1
            )
            await wait_until(here, lambda: len(here.connections) == PEERS_PER_KIND)
            assert here.connections.rejection_counts == {"too_many_connections": PEERS_PER_KIND + 1}
            async with httpx.AsyncClient(base_url=here.http.base_url) as another:
                refused = await another.get("/")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert refused.json()["type"] == "/problems/too-many-connections"

    on_uvloop(scenario())
