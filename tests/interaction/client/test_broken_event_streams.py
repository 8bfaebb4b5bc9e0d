"""An event stream over connections that break anywhere: every event is returned once, in the order of the log."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from ringback.client import RingbackClient, SyncRingbackClient
from ringback.services.events import event_streams
from tests.support.api_server import serving_api
from tests.support.clock import FakeClock
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.service import CALL_BODY, ServiceUnderTest, running_service

pytestmark = pytest.mark.requirement("R20")

CALLS = 25


class CutStream(httpx.AsyncByteStream):
    """A response body that breaks after so many bytes."""

    def __init__(self, stream: httpx.AsyncByteStream, bytes_left: int) -> None:
        self._stream = stream
        self._bytes_left = bytes_left

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk[: self._bytes_left]
            self._bytes_left -= len(chunk)
            if self._bytes_left <= 0:
                raise httpx.ReadError("cut")

    async def aclose(self) -> None:
        await self._stream.aclose()


class CuttingTransport(httpx.AsyncHTTPTransport):
    """Breaks each stream after a random number of bytes, within a frame or between two, and refuses some connections."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(seed)
        self.connections = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.connections += 1
        if self.connections > 1 and self._chance.random() < 0.3:
            raise httpx.ConnectError("refused")
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = CutStream(response.stream, self._chance.randrange(1, 6_000))
        return response


async def finish_calls(service: ServiceUnderTest, number: int) -> list[str]:
    client = await service.create_client("alice")
    found: list[str] = []
    for _ in range(number):
        call_id = (await client.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
        await service.finish_call(call_id)
        found.append(call_id)
    return found


@pytest.mark.parametrize("seed", range(3))
async def test_no_event_is_lost_or_repeated_however_often_the_connection_breaks(
    tmp_path: Path, seed: int, *, deep: bool
) -> None:
    number = 16 * CALLS if deep else CALLS
    transport = CuttingTransport(seed)
    async with (
        asyncio.timeout(5 * WAIT_SECONDS),
        running_service(tmp_path) as service,
        serving_api(service.app) as url,
        RingbackClient(
            url, api_key=await service.create_api_key("alice"), transport=transport, clock=FakeClock()
        ) as client,
    ):
        writing = asyncio.create_task(finish_calls(service, number))
        async with client.stream_events(name="call.finished") as stream:
            found = [(await anext(stream)).data["call_id"] for _ in range(number)]
        service.services.lifecycle.begin_shutdown()

        assert found == await writing
        assert transport.connections > number / 10


async def test_another_process_continues_from_the_cursor_of_the_first(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT_SECONDS), running_service(tmp_path) as service, serving_api(service.app) as url:
        calls = await finish_calls(service, 4)
        key = await service.create_api_key("alice")
        async with RingbackClient(url, api_key=key) as first, first.stream_events() as stream:
            seen = [(await anext(stream)).data["call_id"] for _ in range(2)]
            cursor = stream.cursor

        def continue_elsewhere() -> list[str]:
            with SyncRingbackClient(url, api_key=key) as second, second.stream_events(cursor=cursor) as rest:
                return [next(rest).data["call_id"] for _ in range(2)]

        seen += await asyncio.to_thread(continue_elsewhere)
        service.services.lifecycle.begin_shutdown()

    assert seen == calls


async def test_a_stream_whose_filter_matches_nothing_follows_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "HEARTBEAT_SECONDS", 0.05)
    async with asyncio.timeout(WAIT_SECONDS), running_service(tmp_path) as service, serving_api(service.app) as url:
        await finish_calls(service, 3)
        async with RingbackClient(url, api_key=await service.create_api_key("alice")) as client:
            end = (await client.poll_events()).cursor
            stream = client.stream_events(client_session_id="none")
            reading = asyncio.create_task(anext(stream, None))

            async def has_reached_the_end() -> bool:
                return stream.cursor == end

            await wait_until(has_reached_the_end)
            service.services.lifecycle.begin_shutdown()
            reading.cancel()
            await asyncio.wait([reading])
            await stream.aclose()
