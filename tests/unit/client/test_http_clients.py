"""Cancelled requests take no connection away from later ones."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest

from ringback.client import RingbackClient
from ringback.schemas import examples
from tests.support.limits import WAIT_SECONDS
from tests.support.receivers import AcceptedConnection, serving_receiver

REQUESTS = 25
CONNECTIONS = 40
LOOP_TURNS = 15
"""More than a request takes until its connection is chosen: a cancellation then loses the connection."""
HELD = b"GET /v1/calls/held"


class Server:
    """Answers every request at once, but the held one after `released`, and counts the open connections."""

    def __init__(self) -> None:
        self.is_holding = asyncio.Event()
        self.released = asyncio.Event()
        self.is_unconnected = asyncio.Event()
        self._connections = 0

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[str]:
        async with serving_receiver(self._serve_connection) as receiver:
            yield receiver.url("")

    async def _serve_connection(self, connection: AcceptedConnection) -> None:
        self._connections += 1
        self.is_unconnected.clear()
        try:
            while True:
                await self._respond(await connection.reader.readuntil(b"\r\n\r\n"), connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._connections -= 1
            if not self._connections:
                self.is_unconnected.set()

    async def _respond(self, head: bytes, connection: AcceptedConnection) -> None:
        if head.startswith(HELD):
            self.is_holding.set()
            await self.released.wait()
        body = json.dumps(examples.FINISHED_CALL).encode()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


async def cancel_requests(client: RingbackClient, *, turns: int) -> None:
    """Cancel requests after so many turns of the event loop."""
    requests = [asyncio.create_task(client.call("call_1")) for _ in range(REQUESTS)]
    for _ in range(turns):
        await asyncio.sleep(0)
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)


async def test_any_number_of_requests_may_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the usual connections: they are lost after a fifth of the requests."""
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=20)
    monkeypatch.setattr("ringback.client.client.CONNECTION_LIMITS", limits)
    monkeypatch.setattr("ringback.client.http_clients.CANCELLED_MAX", CONNECTIONS // 2)
    async with asyncio.timeout(WAIT_SECONDS), Server().serve() as url, RingbackClient(url, timeout_seconds=5) as client:
        for _ in range(2):
            for turns in range(LOOP_TURNS):
                await cancel_requests(client, turns=turns)

        assert (await client.call("call_1")).final


async def test_a_replaced_client_ends_its_requests_and_is_then_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.client.http_clients.CANCELLED_MAX", 1)
    server = Server()

    async with asyncio.timeout(WAIT_SECONDS), server.serve() as url, RingbackClient(url) as client:
        held = asyncio.create_task(client.call("held"))
        await server.is_holding.wait()
        await cancel_requests(client, turns=1)
        server.released.set()

        assert (await held).final
        await server.is_unconnected.wait()
        assert (await client.call("call_1")).final
