"""`kill -9` of Ringback between events of an upstream: subscriber, poller and streamer see each event under one id."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from scripts.ports import free_port
from tests.support.application import SECRET, serving_callbacks
from tests.support.engine import wait_until
from tests.support.event_upstream import EVENT_NAME, EventUpstream
from tests.support.mcp_wire import Json, ModernClient
from tests.support.processes import WAIT_SECONDS, running_process
from tests.support.upstreams import serving

INTEREST: Final[Json] = {"name": EVENT_NAME, "arguments": {"repo": "a"}}
ACTIVE: Final = "notifications/events/active"
EVENT: Final = "notifications/events/event"


async def request(client: ModernClient, method: str, **params: Any) -> Json:
    return await client.request(method, INTEREST | params, declare={})


async def wait_until_offered(client: ModernClient) -> None:
    async def is_offered() -> bool:
        listed = await client.request("events/list", {}, declare={})
        return EVENT_NAME in [each["name"] for each in listed["events"]]

    await wait_until(is_offered)


async def poll_all(client: ModernClient, cursor: str, count: int) -> list[str]:
    ids: list[str] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while len(ids) < count:
            page = await request(client, "events/poll", cursor=cursor, waitMs=1000)
            assert page["truncated"] is False
            ids += [each["eventId"] for each in page["events"]]
            cursor = page["cursor"]
    return ids


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R17")
@pytest.mark.parametrize("modes", [("push",), ("poll",)])
async def test_nothing_is_lost_and_nothing_has_two_ids(tmp_path: Path, modes: tuple[str, ...]) -> None:
    upstream = EventUpstream(modes=modes)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(upstream.app()))
        phone = await stack.enter_async_context(serving_callbacks())
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": server.url, "port": free_port()}
        doomed = await stack.enter_async_context(running_process(**spec))
        client = ModernClient(http, f"{doomed.url}/mcp/stage")
        await wait_until_offered(client)

        delivery = {"mode": "webhook", "url": phone.url, "secret": SECRET}
        await request(client, "events/subscribe", delivery=delivery)
        start = (await request(client, "events/poll"))["cursor"]
        async with client.open_request("events/stream", INTEREST, declare={}) as frames:
            await frames.read_message(ACTIVE)
            upstream.emit(EVENT_NAME, {"repo": "a", "number": 1})
            upstream.emit(EVENT_NAME, {"repo": "another"})
            first = (await frames.read_message(EVENT))["params"]
        await doomed.kill()
        upstream.emit(EVENT_NAME, {"repo": "a", "number": 2})
        await stack.enter_async_context(running_process(**spec))
        async with client.open_request("events/stream", INTEREST | {"cursor": first["cursor"]}, declare={}) as frames:
            assert (await frames.read_message(ACTIVE))["params"]["truncated"] is False
            streamed = [first["eventId"], (await frames.read_message(EVENT))["params"]["eventId"]]
        polled = await poll_all(client, start, 2)

        async def are_called_back() -> bool:
            return len({callback.event_id for callback in phone.callbacks}) >= 2

        await wait_until(are_called_back)

    assert streamed == polled == ["stage:e1", "stage:e3"]
    assert sorted({callback.event_id for callback in phone.callbacks}) == sorted(polled)
    assert {callback.name for callback in phone.callbacks} == {EVENT_NAME}
