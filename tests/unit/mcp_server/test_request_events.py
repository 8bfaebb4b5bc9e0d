"""Responses to requests of legacy sessions: one JSON body if they are fast, else an event stream."""

import asyncio
from typing import Any, Final

import anyio
import pytest
from starlette.types import Message

from ringback.mcp_server import request_events
from ringback.mcp_server.request_events import RequestEvents
from tests.support.limits import WAIT_SECONDS

PRIMING: Final = {"id": "p.1", "data": "", "retry": 3000}
NOTIFICATION: Final = {"id": "p.2", "event": "message", "data": '{"method":"notifications/progress"}'}
RESPONSE: Final = {"id": "p.3", "event": "message", "data": '{"result":{}}'}
STREAM_HEAD: Final = (200, b"text/event-stream", b"session-1")
PRIMING_BYTES: Final = b"id: p.1\r\nretry: 3000\r\ndata: \r\n\r\n"


class Exchange:
    """One request and what its client receives."""

    def __init__(self, *, may_be_json: bool = True, priming_event: Any = PRIMING) -> None:
        self.sent: list[Message] = []
        self.sent_changed = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.response = RequestEvents(
            self.receive, self.send, session_id="session-1", priming_event=priming_event, may_be_json=may_be_json
        )

    async def receive(self) -> Message:
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        self.sent_changed.set()

    async def wait_for_sent(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.sent) < count:
                self.sent_changed.clear()
                await self.sent_changed.wait()

    @property
    def head(self) -> tuple[int, bytes, bytes]:
        headers = dict(self.sent[0]["headers"])
        return self.sent[0]["status"], headers[b"content-type"], headers[b"mcp-session-id"]

    @property
    def bodies(self) -> list[tuple[bytes, bool]]:
        return [(message["body"], message.get("more_body", False)) for message in self.sent[1:]]


async def test_a_fast_response_is_one_json_body() -> None:
    exchange = Exchange()

    await exchange.response.send_response(RESPONSE)
    await exchange.response.end()

    assert exchange.head == (200, b"application/json", b"session-1")
    assert exchange.bodies == [(b'{"result":{}}', False)]


@pytest.mark.parametrize("priming", [PRIMING, None])
async def test_an_event_before_the_response_makes_it_a_stream(priming: Any) -> None:
    exchange = Exchange(priming_event=priming)

    await exchange.response.send_event(NOTIFICATION)
    await exchange.response.send_response(RESPONSE)
    await exchange.response.end()

    notification = b'id: p.2\r\nevent: message\r\ndata: {"method":"notifications/progress"}\r\n\r\n'
    last = b'id: p.3\r\nevent: message\r\ndata: {"result":{}}\r\n\r\n'
    opening = PRIMING_BYTES if priming else b""
    assert exchange.head == STREAM_HEAD
    assert exchange.bodies == [(opening + notification, True), (last, False)]


async def test_the_response_to_a_resumed_stream_is_a_stream() -> None:
    exchange = Exchange(may_be_json=False)

    await exchange.response.send_response(RESPONSE)

    assert exchange.head == STREAM_HEAD
    assert exchange.bodies[0][0].startswith(PRIMING_BYTES)


async def test_a_stream_opens_when_the_response_takes_long_and_comments_keep_it_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_events, "OPEN_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(request_events, "PING_SECONDS", 0.001)
    exchange = Exchange()

    with anyio.CancelScope() as scope:
        exchange.response.attend_later(scope)
        await exchange.wait_for_sent(3)
        await exchange.response.send_response(RESPONSE)
        exchange.response.stop_attending()
    count = len(exchange.sent)
    await asyncio.sleep(0)

    assert exchange.head == STREAM_HEAD
    first, *comments, last = exchange.bodies
    assert first == (PRIMING_BYTES, True)
    assert set(comments) == {(b": ping\r\n\r\n", True)}
    assert (last[0].endswith(b'{"result":{}}\r\n\r\n'), last[1], len(exchange.sent)) == (True, False, count)


async def test_a_disconnect_ends_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_events, "OPEN_AFTER_SECONDS", 0.0)
    exchange = Exchange()
    exchange.disconnected.set()

    with anyio.fail_after(WAIT_SECONDS), anyio.CancelScope() as scope:
        exchange.response.attend_later(scope)
        await asyncio.Event().wait()

    assert scope.cancelled_caught
    exchange.response.stop_attending()
