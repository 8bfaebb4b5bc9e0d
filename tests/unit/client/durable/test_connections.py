"""A connection to an MCP server ends with the cancellation of its caller, whatever breaks meanwhile."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest

from ringback.client.durable.direct import connection
from ringback.client.durable.direct.server import McpServer
from ringback.protocol.errors import RequestNotSent
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import ControlledUpstream, serving

SERVER = McpServer(url="http://127.0.0.1:1/mcp")


async def break_when_cancelled() -> None:
    """As a task of the SDK does whose peer is gone."""
    try:
        await anyio.sleep_forever()
    finally:
        raise anyio.BrokenResourceError


@asynccontextmanager
async def open_breaking_connection(*_: Any) -> AsyncGenerator[tuple[None, Any]]:
    async with anyio.create_task_group() as group:
        group.start_soon(break_when_cancelled)
        yield None, lambda: None


async def negotiate_nothing(*_: Any, **__: Any) -> None:
    pass


async def test_a_cancelled_caller_of_a_connection_that_breaks_meanwhile_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller that got the error of the connection would connect again, and its `aclose` would wait for ever."""
    monkeypatch.setattr(connection, "_open_connection", open_breaking_connection)
    monkeypatch.setattr(connection, "_negotiate", negotiate_nothing)
    working = asyncio.Event()

    async def work(_: Any) -> None:
        working.set()
        await anyio.sleep_forever()

    handle: Any = None
    using = asyncio.create_task(connection.use_connection(SERVER, work, handle=handle))
    await working.wait()
    using.cancel()
    await asyncio.wait({using}, timeout=WAIT_SECONDS)

    assert using.cancelled()


@asynccontextmanager
async def open_connection_that_breaks_at_its_end(*_: Any) -> AsyncGenerator[tuple[None, Any]]:
    async with anyio.create_task_group() as group:
        group.start_soon(break_when_cancelled)
        await anyio.wait_all_tasks_blocked()
        yield None, lambda: None
        group.cancel_scope.cancel()


async def test_what_the_work_has_returned_or_raised_counts_also_if_closing_the_connection_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a lost response, it would end a call whose result has come, or hide why a request failed."""
    monkeypatch.setattr(connection, "_open_connection", open_connection_that_breaks_at_its_end)
    monkeypatch.setattr(connection, "_negotiate", negotiate_nothing)
    handle: Any = None

    async def succeed(_: Any) -> str:
        return "result"

    async def fail(_: Any) -> None:
        raise RequestNotSent("refused")

    assert await connection.use_connection(SERVER, succeed, handle=handle) == "result"
    with pytest.raises(RequestNotSent, match="refused"):
        await connection.use_connection(SERVER, fail, handle=handle)


async def test_a_connection_notices_that_its_server_s_host_is_lost() -> None:
    """It has no read timeout, and a plain call sends nothing while its tool runs."""
    async with serving(ControlledUpstream().app()) as server:
        transport = connection._make_transport(McpServer(url=server.url))  # pyright: ignore[reportPrivateUsage]
        async with httpx2.AsyncClient(transport=transport) as http, http.stream("GET", server.url) as response:
            connected = response.extensions["network_stream"].get_extra_info("socket")

            assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
