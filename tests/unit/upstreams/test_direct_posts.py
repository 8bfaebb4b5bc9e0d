"""Tool calls without the SDK's transport: only for responses with one JSON body, and each request is sent once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import JSONRPCNotification

from ringback.domain import jsontext
from ringback.domain.clock import SystemClock
from ringback.protocol.legacy_session_transport import LegacySessionTransport
from ringback.protocol.sessions import SESSION_HEADER
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.session_dispatcher import SessionDispatcher
from ringback.upstreams.transports.direct_posts import DirectPosts
from ringback.upstreams.transports.guarded_http import GuardedTransport
from ringback.upstreams.transports.large_results import LargeResults

URL = "http://upstream.example/mcp"
CALL: dict[str, Any] = {"name": "echo", "arguments": {"path": None}}
RESULT: dict[str, Any] = {"content": []}


class Upstream(httpx2.AsyncBaseTransport):
    """Answers every request alike, or never."""

    def __init__(self) -> None:
        self.requests: list[tuple[httpx2.Request, dict[str, Any]]] = []
        self.as_events = False
        self.silent = False
        self.headers: dict[str, str] = {}
        self.reply: dict[str, Any] = {"result": RESULT}
        self.asked = asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        message = jsontext.loads(await request.aread())
        self.requests.append((request, message))
        self.asked.set()
        if self.silent:
            await asyncio.Event().wait()
        body = jsontext.dumps({"jsonrpc": "2.0", "id": message["id"], **self.reply})
        if self.as_events:
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=b"data: %b\n\n" % body)
        return httpx2.Response(200, headers={"content-type": "application/json"} | self.headers, content=body)


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
def direct(upstream: Upstream) -> DirectPosts:
    inner = GuardedTransport(upstream, faults=FaultCounter("stage", clock=SystemClock()), large_results=LargeResults())
    return DirectPosts(LegacySessionTransport(inner), URL)


@pytest.fixture
async def dispatcher(direct: DirectPosts) -> AsyncGenerator[SessionDispatcher]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx2.AsyncClient(transport=direct, trust_env=False))
        direct.use_client(client)
        streams = await stack.enter_async_context(streamable_http_client(URL, http_client=client))
        dispatcher = SessionDispatcher(*streams, direct=direct)
        async with anyio.create_task_group() as group:
            await group.start(dispatcher.run, None, None)
            yield dispatcher
            group.cancel_scope.cancel()


@pytest.fixture
async def alone(direct: DirectPosts) -> AsyncGenerator[tuple[SessionDispatcher, Any]]:
    """A dispatcher whose streams lead nowhere, and what it writes into them."""
    send, read = anyio.create_memory_object_stream[Any](0)
    write, written = anyio.create_memory_object_stream[Any](8)
    async with httpx2.AsyncClient(transport=direct, trust_env=False) as client, send, written:
        direct.use_client(client)
        dispatcher = SessionDispatcher(read, write, direct=direct)
        async with anyio.create_task_group() as group:
            await group.start(dispatcher.run, None, None)
            yield dispatcher, written
            group.cancel_scope.cancel()


async def test_a_json_answer_comes_without_the_sdk_transport(
    alone: tuple[SessionDispatcher, Any], upstream: Upstream
) -> None:
    dispatcher, written = alone

    assert await dispatcher.send_raw_request("tools/call", CALL, {"headers": {"mcp-name": "echo"}}) == RESULT

    ((request, message),) = upstream.requests
    assert message["params"] == CALL  # with its null
    assert request.headers["mcp-name"] == "echo"
    assert request.headers["accept"] == "application/json, text/event-stream"
    assert written.statistics().current_buffer_used == 0


async def test_progress_is_asked_for_by_the_id_of_the_request(
    alone: tuple[SessionDispatcher, Any], upstream: Upstream
) -> None:
    async def on_progress(progress: float, total: float | None, message: str | None) -> None: ...

    await alone[0].send_raw_request("tools/call", CALL | {"_meta": {"a": 1}}, {"on_progress": on_progress})

    ((_, message),) = upstream.requests
    assert message["params"]["_meta"] == {"a": 1, "progressToken": message["id"]}


async def test_an_error_of_the_upstream_is_raised(alone: tuple[SessionDispatcher, Any], upstream: Upstream) -> None:
    upstream.reply = {"error": {"code": -32602, "message": "no such tool", "data": {"name": "echo"}}}

    with pytest.raises(MCPError) as raised:
        await alone[0].send_raw_request("tools/call", CALL, {})

    assert (raised.value.error.code, raised.value.error.data) == (-32602, {"name": "echo"})


async def test_a_call_that_is_cancelled_sends_a_cancellation(
    alone: tuple[SessionDispatcher, Any], upstream: Upstream
) -> None:
    dispatcher, written = alone
    upstream.silent = True
    call = asyncio.create_task(dispatcher.send_raw_request("tools/call", CALL, {}))
    await upstream.asked.wait()

    call.cancel()
    await asyncio.gather(call, return_exceptions=True)

    notification = written.receive_nowait().message
    assert isinstance(notification, JSONRPCNotification)
    assert notification.method == "notifications/cancelled"
    assert notification.params == {"requestId": upstream.requests[0][1]["id"], "reason": "caller cancelled"}


async def test_an_event_stream_is_read_by_the_sdk_and_its_request_is_sent_once(
    dispatcher: SessionDispatcher, upstream: Upstream
) -> None:
    upstream.as_events = True

    assert await dispatcher.send_raw_request("tools/call", CALL, {}) == RESULT

    assert len(upstream.requests) == 1


async def test_an_answer_to_a_request_of_the_upstream_does_not_take_the_response_to_a_call_with_its_id(
    direct: DirectPosts, upstream: Upstream
) -> None:
    response = httpx2.Response(200)
    async with httpx2.AsyncClient(transport=direct, trust_env=False) as client, direct.hold_response(1, response):
        answered = await client.post(URL, json={"jsonrpc": "2.0", "id": 1, "result": {}})
        held = await client.post(URL, json={"jsonrpc": "2.0", "id": 1, "method": "tools/call"})

    assert answered.status_code == 202
    assert held is response
    assert [message.get("method") for _, message in upstream.requests] == [None]


async def test_other_requests_keep_their_place_in_the_sdk(alone: tuple[SessionDispatcher, Any]) -> None:
    dispatcher, written = alone
    asking = asyncio.create_task(dispatcher.send_raw_request("ping", {}, {}))

    assert (await written.receive()).message.method == "ping"

    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_nothing_of_a_session_goes_this_way(direct: DirectPosts, upstream: Upstream) -> None:
    upstream.headers = {SESSION_HEADER: "s" * 2000}  # too long to be kept, and a session all the same
    async with httpx2.AsyncClient(transport=direct, trust_env=False) as client:
        direct.use_client(client)
        before = direct.serves
        await client.post(URL, json={"jsonrpc": "2.0", "id": 1, "method": "initialize"})

        assert (before, direct.serves) == (True, False)
