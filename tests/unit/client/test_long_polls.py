"""Requests that wait in the service, and those beside them."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest

from ringback.client import RingbackClient
from ringback.schemas import examples
from tests.support.limits import WAIT_SECONDS
from tests.support.mocked_requests import parse_query
from tests.support.receivers import AcceptedConnection, serving_receiver

WAITS = 110
"""More than may wait at the same time, and more than the connections of an httpx client by default."""


class PatientServer:
    """Holds every request with a wait until `released`, and answers all others at once."""

    def __init__(self) -> None:
        self.waiting = 0
        self.has_many = asyncio.Event()
        self.released = asyncio.Event()

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[str]:
        async with serving_receiver(self._serve_connection) as receiver:
            yield receiver.url("")
            self.released.set()

    async def _serve_connection(self, connection: AcceptedConnection) -> None:
        head = await connection.reader.readuntil(b"\r\n\r\n")
        if b"wait_seconds" in head:
            self.waiting += 1
            if self.waiting == 100:
                self.has_many.set()
            await self.released.wait()
        body = json.dumps(examples.FINISHED_CALL).encode()
        await connection.send(
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )


async def test_a_request_is_not_held_up_by_many_waiting_ones() -> None:
    server = PatientServer()
    async with asyncio.timeout(WAIT_SECONDS), server.serve() as url, RingbackClient(url) as client:
        waits = [asyncio.create_task(client.call(f"call_{n}", wait_seconds=45)) for n in range(WAITS)]
        await server.has_many.wait()

        assert (await client.call("call_1")).final
        assert not any(wait.done() for wait in waits)

        server.released.set()
        assert all(call.final for call in await asyncio.gather(*waits))


async def test_a_wait_without_a_place_reads_the_call_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.client.long_polls.LONG_POLLS_MAX", 1)
    is_waiting, released = asyncio.Event(), asyncio.Event()
    asked: list[str] = []

    async def respond(request: httpx.Request) -> httpx.Response:
        asked.append(parse_query(request)["wait_seconds"])
        if request.url.path.endswith("call_1"):
            is_waiting.set()
            await released.wait()
        return httpx.Response(200, json=examples.WORKING_CALL)

    transport = httpx.MockTransport(respond)
    async with asyncio.timeout(WAIT_SECONDS), RingbackClient("http://ringback.example", transport=transport) as client:
        first = asyncio.create_task(client.call("call_1", wait_seconds=45))
        await is_waiting.wait()
        assert not (await client.call("call_2", wait_seconds=0.01)).final
        released.set()
        await first
        await client.call("call_3", wait_seconds=30)

    assert asked == ["45", "0.0", "30"]
