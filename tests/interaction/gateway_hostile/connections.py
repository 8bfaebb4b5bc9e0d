"""Connections that can be closed at any byte, idle clients, and a check that the service releases them."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ringback.domain.principal import Caller, Principal, Scope
from tests.interaction.gateway.conftest import GatewayHarness
from tests.support.engine import wait_until
from tests.support.mcp_wire import ACCEPT
from tests.support.upstreams import WAIT_SECONDS

IDLE_CLIENTS: Final = Path(__file__).parents[2] / "support" / "idle_clients_process.py"
HEAD_END: Final = "\r\n\r\n"
OPERATOR: Final = Caller(principal=Principal("operator"), scopes=frozenset(Scope))


@asynccontextmanager
async def open_raw_request(
    gate: GatewayHarness, method: str, headers: Mapping[str, str], body: bytes = b"", *, path: str = "/mcp/paint"
) -> AsyncGenerator[tuple[str, asyncio.StreamReader]]:
    """A request on its own connection with little memory: yields the response's head and the rest of the stream."""
    url = urlsplit(gate.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write(_request(gate, method, headers, body, path))
        yield (await reader.readuntil(HEAD_END.encode())).decode().lower(), reader
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


def _request(gate: GatewayHarness, method: str, headers: Mapping[str, str], body: bytes, path: str) -> bytes:
    host = urlsplit(gate.url).netloc
    lines = {"host": host, **ACCEPT, "content-type": "application/json", "content-length": len(body), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


class IdleClients:
    """Clients in a separate process (`tests.support.idle_clients_process`)."""

    def __init__(self, gate: GatewayHarness, process: Process) -> None:
        self._gate = gate
        self._process = process

    async def open(self, method: str, headers: Mapping[str, str], body: bytes = b"", *, until: str = HEAD_END) -> None:
        """Open one more stream and wait until its head contains `until`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        requested = {"request": _request(self._gate, method, headers, body, "/mcp/paint").decode(), "until": until}
        self._process.stdin.write(json.dumps(requested).encode() + b"\n")
        head: str = json.loads(await asyncio.wait_for(self._process.stdout.readline(), WAIT_SECONDS))
        assert head.startswith("http/1.1 200"), head
        assert until in head, head


@asynccontextmanager
async def idle_clients(gate: GatewayHarness) -> AsyncGenerator[IdleClients]:
    """All clients disconnect at once at the end."""
    url = urlsplit(gate.url)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(IDLE_CLIENTS), str(url.hostname), str(url.port), stdin=PIPE, stdout=PIPE
    )
    try:
        yield IdleClients(gate, process)
    finally:
        process.kill()
        await process.communicate()


async def count_open_streams(gate: GatewayHarness) -> int:
    return (await gate.ringback.app.services.insights.get_status(OPERATOR)).open_streams


async def wait_until_released(gate: GatewayHarness, tasks: int) -> None:
    async def reached() -> bool:
        return await count_open_streams(gate) == 0 and len(asyncio.all_tasks()) <= tasks

    await wait_until(reached)
