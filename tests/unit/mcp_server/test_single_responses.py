"""Modern tool calls that are answered by one message: as JSON, or on a stream if they take long."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from mcp.server import _streamable_http_modern as sdk
from starlette.types import Message, Receive, Scope, Send

from ringback.mcp_server import single_responses
from ringback.mcp_server.single_responses import (
    asks_for_notifications,
    is_modern_tool_call,
    note_wait,
    send_single_response,
    send_streamed_response,
)
from tests.support.limits import WAIT_SECONDS

HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
}
NEVER = 3600.0
START: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
STREAM_START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream")],
}
BODY: Message = {"type": "http.response.body", "body": b'{"result":{}}', "more_body": False}


def make_scope(method: str = "POST", **headers: str) -> Scope:
    named = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    return {
        "type": "http",
        "method": method,
        "state": {},
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
    }


class Exchange:
    """One request: its handler responds when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, attend_after: float = 0.0, ping: float = NEVER) -> None:
        self.sent: list[Message] = []
        self.sent_changed = asyncio.Event()
        self.respond = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.handled = asyncio.Event()
        self.was_cancelled = False
        self.scope = make_scope()
        self.responses = [START, BODY]
        monkeypatch.setattr(sdk, "_SSE_PING_INTERVAL", ping)
        monkeypatch.setattr(single_responses, "ATTEND_AFTER_SECONDS", attend_after)

    async def handle(self, *arguments: Any) -> None:
        send: Send = arguments[-1]
        self.handled.set()
        try:
            await self.respond.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        for message in self.responses:
            await send(message)

    async def receive(self) -> Message:
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        self.sent_changed.set()

    async def run(self) -> None:
        receive: Receive = self.receive
        await asyncio.wait_for(send_single_response(self.handle, self.scope, receive, self.send), WAIT_SECONDS)

    async def run_with_notifications(self) -> None:
        receive: Receive = self.receive
        handled = send_streamed_response(self.handle, self.scope, receive, self.send)
        await asyncio.wait_for(handled, WAIT_SECONDS)

    async def wait_until_handled(self) -> None:
        await asyncio.wait_for(self.handled.wait(), WAIT_SECONDS)

    async def note_wait(self, *, has_outcome: Callable[[], bool] = lambda: False) -> None:
        """The handler begins to wait for its call."""
        await self.wait_until_handled()
        note_wait(self.scope["state"], has_outcome=has_outcome)

    async def wait_for_sent(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.sent) < count:
                self.sent_changed.clear()
                await self.sent_changed.wait()


async def test_a_response_in_time_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(monkeypatch)
    exchange.respond.set()

    await exchange.run()

    assert exchange.sent == [START, BODY]


async def test_a_late_response_is_the_event_of_a_stream_that_comments_keep_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange = Exchange(monkeypatch, ping=0.001)
    running = asyncio.create_task(exchange.run())
    await exchange.wait_for_sent(3)
    exchange.respond.set()
    await running

    start, *comments, last = exchange.sent
    assert (start["status"], dict(start["headers"])[b"content-type"]) == (200, b"text/event-stream")
    assert {(each["body"], each["more_body"]) for each in comments} == {(b": ping\r\n\r\n", True)}
    assert last["body"] == b'event: message\r\ndata: {"result":{}}\r\n\r\n'
    assert not last["more_body"]


@pytest.mark.parametrize("asks_for_progress", [False, True])
async def test_the_stream_opens_when_the_wait_begins_so_that_a_broken_connection_ends_only_this_request(
    monkeypatch: pytest.MonkeyPatch, *, asks_for_progress: bool
) -> None:
    exchange = Exchange(monkeypatch)
    running = asyncio.create_task(exchange.run_with_notifications() if asks_for_progress else exchange.run())
    await exchange.note_wait()
    await exchange.wait_for_sent(2)
    exchange.respond.set()
    await running

    start, comment, last = exchange.sent
    assert (start["status"], dict(start["headers"])[b"content-type"]) == (200, b"text/event-stream")
    assert comment["body"] == b": ping\r\n\r\n"
    assert last == {**BODY, "body": b'event: message\r\ndata: {"result":{}}\r\n\r\n'}


async def test_events_of_the_handlers_own_stream_are_passed_on_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(monkeypatch)
    event: Message = {"type": "http.response.body", "body": b"data: 1\r\n\r\n", "more_body": True}
    exchange.responses = [STREAM_START, event, event]
    running = asyncio.create_task(exchange.run_with_notifications())
    await exchange.note_wait()
    await exchange.wait_for_sent(2)
    exchange.respond.set()
    await running

    assert exchange.sent[2:] == [event, event]


async def test_a_request_that_is_refused_late_keeps_its_http_status(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(monkeypatch)
    exchange.responses = [{**START, "status": 400}, BODY]
    running = asyncio.create_task(exchange.run_with_notifications())
    await exchange.wait_until_handled()
    exchange.respond.set()
    await running

    assert exchange.sent == exchange.responses


@pytest.mark.parametrize("asks_for_progress", [False, True])
async def test_an_error_of_the_upstream_keeps_its_http_status_while_the_end_of_the_call_is_committed(
    monkeypatch: pytest.MonkeyPatch, *, asks_for_progress: bool
) -> None:
    exchange, asked = Exchange(monkeypatch), asyncio.Event()
    exchange.responses = [{**START, "status": 400}, BODY]
    monkeypatch.setattr(single_responses, "COMMIT_SECONDS_MAX", NEVER)
    running = asyncio.create_task(exchange.run_with_notifications() if asks_for_progress else exchange.run())

    def has_outcome() -> bool:
        asked.set()
        return True

    await exchange.note_wait(has_outcome=has_outcome)
    await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
    exchange.respond.set()
    await running

    assert exchange.sent == exchange.responses


async def test_a_stream_opens_when_a_commit_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(monkeypatch)
    monkeypatch.setattr(single_responses, "COMMIT_SECONDS_MAX", 0.0)
    running = asyncio.create_task(exchange.run())
    await exchange.note_wait(has_outcome=lambda: True)
    await exchange.wait_for_sent(2)
    exchange.respond.set()
    await running

    assert dict(exchange.sent[0]["headers"])[b"content-type"] == b"text/event-stream"


async def test_the_time_before_the_wait_for_the_call_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(monkeypatch)
    exchange.responses = [{**START, "status": 400}, BODY]
    running = asyncio.create_task(exchange.run())
    await exchange.wait_until_handled()
    monkeypatch.setattr(single_responses, "ATTEND_AFTER_SECONDS", NEVER)
    await exchange.note_wait()
    for _ in range(10):  # turns of the event loop, in which the stream would open
        await asyncio.sleep(0)
    exchange.respond.set()
    await running

    assert exchange.sent == exchange.responses


async def test_a_disconnect_cancels_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(monkeypatch)
    running = asyncio.create_task(exchange.run())
    exchange.disconnected.set()

    await running

    assert exchange.was_cancelled
    assert exchange.sent == []


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (make_scope(), True),
        (make_scope("GET"), False),
        (make_scope(mcp_method="tools/list"), False),
        (make_scope(mcp_protocol_version="2025-11-25"), False),
    ],
    ids=["a call", "a GET", "another method", "a legacy client"],
)
def test_only_modern_tool_calls_are_served_this_way(scope: Scope, *, expected: bool) -> None:
    assert is_modern_tool_call(scope) is expected


def test_a_request_for_progress_or_log_messages_keeps_its_stream() -> None:
    assert asks_for_notifications(b'{"params":{"_meta":{"progressToken":7}}}')
    assert asks_for_notifications(b'{"params":{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}}')
    assert not asks_for_notifications(b'{"params":{"_meta":{}}}')
