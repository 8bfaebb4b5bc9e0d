"""A service as the log: its streams leave the connection to the requests of others, and go on where they broke."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from ringback.extension.events.event_log import EmittedEvent
from ringback.extension.events.event_types import DeclaredEventTypes
from ringback.extension.events.principals import EventCaller
from ringback.extension.events.service_log import ServiceLog
from ringback.protocol.mcp_events.backend import Interest
from tests.support.extension_servers import FastClock
from tests.support.limits import WAIT_SECONDS
from tests.support.raw_http_server import RawServer, read_request, serving_raw

STREAMS = 120
"""More than the connections that httpx opens by default."""
CALLER = EventCaller(principal=None)
SHIPPED = Interest(name="order.shipped", arguments={})
DECLARED: dict[str, Any] = {"name": SHIPPED.name, "description": "x", "input_schema": {}, "payload_schema": {}}
EMPTY_PAGE: dict[str, Any] = {"events": [], "cursor": "1", "truncated": False, "hasMore": False}


class OrderShipped(BaseModel):
    order_id: str


class SilentService:
    """Begins each stream and sends nothing more, and answers each poll."""

    def __init__(self) -> None:
        self.server = RawServer()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await read_request(reader, self.server)
            if b"mcp-method: events/stream" in head:
                active = {"method": "notifications/events/active", "params": {"cursor": "1", "truncated": False}}
                frame = f"data: {json.dumps(active)}\n\n".encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99999\r\n\r\n" + frame
                )
            else:
                body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": EMPTY_PAGE}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()


async def test_open_streams_of_some_clients_do_not_stop_the_polls_of_others() -> None:
    service = SilentService()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving_raw(service.talk, service.server))
        log = ServiceLog(service.server.url.removesuffix("/mcp"), api_key=None, transport=None, drain_seconds=0)
        opened = await stack.enter_async_context(log.open(DeclaredEventTypes()))
        for _ in range(STREAMS):
            pages = opened.follow_occurrences(CALLER, SHIPPED, cursor=None, max_age_seconds=None)
            await stack.enter_async_context(aclosing(pages))
            await asyncio.wait_for(anext(pages), WAIT_SECONDS)

        page = await opened.poll_occurrences(
            CALLER, SHIPPED, cursor="1", max_age_seconds=None, limit=1, wait_seconds=0.0
        )

    assert page.cursor == "1"


async def test_a_stream_that_broke_goes_on_at_its_cursor_without_the_age_that_its_client_asked_for_at_the_start() -> (
    None
):
    """What happened while the service was away may be older than that age, and would be left out without a word."""
    asked: list[dict[str, Any]] = []

    def respond(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content)["params"])
        active = {"method": "notifications/events/active", "params": {"cursor": "7", "truncated": False}}

        async def body() -> AsyncIterator[bytes]:
            yield f"data: {json.dumps(active)}\n\n".encode()
            raise httpx.ReadError("the service restarts")

        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body())

    log = ServiceLog(
        "http://ringback.example",
        api_key=None,
        transport=httpx.MockTransport(respond),
        drain_seconds=0,
        clock=FastClock(),
    )
    async with log.open(DeclaredEventTypes()) as opened:
        pages = opened.follow_occurrences(CALLER, SHIPPED, cursor=None, max_age_seconds=60)
        async with aclosing(pages), asyncio.timeout(WAIT_SECONDS):
            while len(asked) < 2:
                await anext(pages)

    assert [(each["cursor"], each.get("maxAgeMs")) for each in asked] == [(None, 60_000), ("7", None)]


@pytest.mark.parametrize("status", [401, 403])
async def test_events_wait_while_the_service_does_not_accept_the_key(status: int) -> None:
    """Until its operator has mended that: such a refusal says nothing about the events."""
    is_accepted, has_refused, has_arrived = False, asyncio.Event(), asyncio.Event()
    published: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if not is_accepted:
            has_refused.set()
            return httpx.Response(status, json={}, headers={"content-type": "application/problem+json"})
        if request.method == "PUT":
            return httpx.Response(200, json=DECLARED)
        published.extend(event["id"] for event in body["events"])
        has_arrived.set()
        return httpx.Response(201, json={"events": []})

    types = DeclaredEventTypes()
    types.declare(OrderShipped, name=SHIPPED.name, description="x", arguments=None, matches=None)
    transport = httpx.MockTransport(respond)
    log = ServiceLog(
        "http://ringback.example", api_key="rbk_1", transport=transport, drain_seconds=0, clock=FastClock()
    )
    event = EmittedEvent(name=SHIPPED.name, data={"order_id": "o1"}, principal=None, event_id="e1", occurred_at=None)
    async with log.open(types) as opened, asyncio.timeout(WAIT_SECONDS):
        await opened.record_event(event)
        await has_refused.wait()
        is_accepted = True
        await has_arrived.wait()

    assert published == ["e1"]


async def test_a_service_on_this_machine_is_not_looked_for_on_that_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would get the API key, too."""
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    service = SilentService()
    async with serving_raw(service.talk, service.server):
        log = ServiceLog(service.server.url.removesuffix("/mcp"), api_key="rbk_1", transport=None, drain_seconds=0)
        async with log.open(DeclaredEventTypes()) as opened:
            page = await opened.poll_occurrences(
                CALLER, SHIPPED, cursor="1", max_age_seconds=None, limit=1, wait_seconds=0.0
            )

    assert page.cursor == "1"


@pytest.mark.parametrize("refusal", ["ResourceExhausted: 100 streams are open.", "Unauthorized: the key is unknown"])
async def test_a_stream_that_broke_is_not_ended_by_a_refusal_that_passes(refusal: str) -> None:
    """The service counts a broken stream until it notices. A `terminated` would end the subscription of the client."""
    answers: list[Any] = [
        {"method": "notifications/events/active", "params": {"cursor": "7", "truncated": False}},
        {"error": {"code": -32013, "message": refusal}},
        {"method": "notifications/events/heartbeat", "params": {"cursor": "8"}},
    ]

    def respond(_: httpx.Request) -> httpx.Response:
        message = answers.pop(0)
        if "error" in message:
            return httpx.Response(200, json=message)

        async def body() -> AsyncIterator[bytes]:
            yield f"data: {json.dumps(message)}\n\n".encode()
            raise httpx.ReadError("the connection breaks")

        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body())

    transport = httpx.MockTransport(respond)
    log = ServiceLog("http://ringback.example", api_key=None, transport=transport, drain_seconds=0, clock=FastClock())
    async with log.open(DeclaredEventTypes()) as opened:
        pages = opened.follow_occurrences(CALLER, SHIPPED, cursor=None, max_age_seconds=None)
        async with aclosing(pages), asyncio.timeout(WAIT_SECONDS):
            seen = [await anext(pages) for _ in range(4)]

    assert [page.cursor for page in seen] == ["7", "7", "7", "8"]
    assert [page.error is None for page in seen] == [True, False, False, True]
