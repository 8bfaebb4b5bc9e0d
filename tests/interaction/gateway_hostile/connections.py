"""Connections that can be cut at any byte, and a look at whether the service has let go of them."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from ringback.domain.principal import Caller, Principal, Scope
from tests.interaction.gateway.conftest import Gate
from tests.support.engine import until
from tests.support.mcp_wire import ACCEPT

OPERATOR: Final = Caller(principal=Principal("operator"), scopes=frozenset(Scope))


@asynccontextmanager
async def raw(
    gate: Gate, method: str, headers: Mapping[str, str], body: bytes = b"", *, path: str = "/mcp/paint"
) -> AsyncGenerator[tuple[str, asyncio.StreamReader]]:
    """A request on a connection of its own, with as little memory as can be: the head of its answer, and what follows."""
    url = urlsplit(gate.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    lines = {"host": url.netloc, **ACCEPT, "content-type": "application/json", "content-length": len(body), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        yield (await reader.readuntil(b"\r\n\r\n")).decode().lower(), reader
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def open_streams(gate: Gate) -> int:
    return (await gate.ringback.app.services.insights.vitals(OPERATOR)).open_streams


async def all_given_back(gate: Gate, tasks: int) -> None:
    async def reached() -> bool:
        return await open_streams(gate) == 0 and len(asyncio.all_tasks()) <= tasks

    await until(reached)
