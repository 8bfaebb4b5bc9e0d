"""Cancelled requests of a legacy session over HTTP: the upstream is notified, and its response is not read on.

A client that only stops waiting would keep a connection, its buffers and the reading of a flood for each cancelled call.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.upstreams import session as session_module
from ringback.upstreams.registry import UpstreamRegistry
from ringback.upstreams.transports import open_response
from tests.support.limits import WAIT_SECONDS
from tests.support.raw_http_server import RawServer, read_request, serving_raw
from tests.support.upstreams import make_http_config, open_upstreams, run_upstream_call

RESULTS: Final[dict[str, Any]] = {
    "initialize": {"protocolVersion": "2025-11-25", "serverInfo": {"name": "legacy", "version": "1"},
                   "capabilities": {"tools": {}}},
    "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("hold", "echo")]},
    "tools/call": {"content": []},
}  # fmt: skip
STREAM: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
PROGRESS: Final = {
    "jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1},
}  # fmt: skip
EVENT: Final = f"data: {json.dumps(PROGRESS)}\n\n".encode()
FLOOD: Final = "a flood"
RESUMABLE: Final = "a stream to which a client can return"
"""In a session with an id. Its request is not cancelled when its reader stops: the call goes on, and is read later."""
BREAKS_OFF: Final = "a stream that breaks off"
BREAKS_OFF_AGAIN: Final = "a stream that breaks off each time"
"""The SDK reads on with GET."""
UNFINISHED_RESPONSES: Final = {
    "nothing": b"",
    "a status line": b"HTTP/1.1 200 OK\r\n",
    "half a result": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{",
    "a stream": STREAM,
    RESUMABLE: STREAM + b"id: 1\ndata:\n\n" + EVENT,
    FLOOD: STREAM,
    BREAKS_OFF: STREAM + b"id: 1\nretry: 0\ndata:\n\n",
    BREAKS_OFF_AGAIN: STREAM + b"id: 1\nretry: 0\ndata:\n\n",
}
WITH_ID: Final = "with a session id"
SESSIONS: Final = {WITH_ID: b"mcp-session-id: s1\r\n", "without a session id": b""}


@dataclass
class HoldingUpstream:
    """A legacy upstream whose tool `hold` sends the begin of a response and no end."""

    kind: str
    session_header: bytes
    server: RawServer = field(default_factory=RawServer)
    methods: list[str] = field(default_factory=list[str])
    held: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await read_request(reader, self.server)
            body = self.server.requests[-1].partition(b"\r\n\r\n")[2]
            message: dict[str, Any] = json.loads(body) if body else {}
            self.methods.append(message.get("method") or head.split(b" ")[0].decode())
            if message.get("params", {}).get("name") == "hold" or b"last-event-id" in head.lower():
                if await self._hold(reader, writer, is_resumed=not message):
                    return
            else:
                writer.write(self._respond(message))
                await writer.drain()

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_resumed: bool) -> bool:
        """True if the upstream closes the connection itself."""
        writer.write(UNFINISHED_RESPONSES[self.kind])
        await writer.drain()
        if self.kind in {BREAKS_OFF, BREAKS_OFF_AGAIN} and not is_resumed:
            return True
        self.held.set()
        if self.kind == BREAKS_OFF_AGAIN:
            return True
        try:
            while self.kind == FLOOD:
                writer.write(EVENT * 100)
                await writer.drain()
            await reader.readexactly(1)
        finally:
            self.hung_up.set()
        return False

    def _respond(self, message: dict[str, Any]) -> bytes:
        if "id" not in message:
            status = b"202 Accepted" if message else b"405 Method Not Allowed"
            return b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status
        result = RESULTS.get(message["method"])
        error = {"code": -32601, "message": "no"}
        outcome: dict[str, Any] = {"error": error} if result is None else {"result": result}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
        return head % (self.session_header, len(body)) + body


@asynccontextmanager
async def holding(kind: str, session: str = WITH_ID) -> AsyncGenerator[tuple[HoldingUpstream, UpstreamRegistry]]:
    upstream = HoldingUpstream(kind, SESSIONS[session])
    async with (
        serving_raw(upstream.serve_connection, upstream.server),
        open_upstreams(make_http_config(upstream.server.url)) as upstreams,
    ):
        yield upstream, upstreams


async def cancel_held_call(upstream: HoldingUpstream, upstreams: UpstreamRegistry) -> None:
    upstream.held.clear()
    call = asyncio.create_task(run_upstream_call(upstreams, "hold"))
    async with asyncio.timeout(WAIT_SECONDS):
        await upstream.held.wait()
        await run_upstream_call(upstreams, "echo")  # meanwhile the begin of the response arrives
        call.cancel()
        await asyncio.wait({call})


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("begin", [each for each in UNFINISHED_RESPONSES if each != BREAKS_OFF_AGAIN])
async def test_a_cancelled_call_closes_its_response_and_leaves_its_session_open(
    begin: str, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_response, "LATE_RESPONSE_SECONDS", 0.0)
    async with holding(begin, session) as (upstream, upstreams):
        await cancel_held_call(upstream, upstreams)
        await asyncio.wait_for(upstream.hung_up.wait(), WAIT_SECONDS)
        after = await run_upstream_call(upstreams, "echo")

    assert after.outcome is CallOutcome.RESULT
    is_resumable = begin in {RESUMABLE, BREAKS_OFF} and session == WITH_ID
    assert upstream.methods.count("notifications/cancelled") == (0 if is_resumable else 1)
    assert upstream.methods.count("initialize") == 1


async def test_a_response_that_breaks_off_each_time_is_not_read_on_after_the_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_response, "LATE_RESPONSE_SECONDS", 0.0)
    async with holding(BREAKS_OFF_AGAIN) as (upstream, upstreams):
        await cancel_held_call(upstream, upstreams)
        await run_upstream_call(upstreams, "echo")
        last = upstream.methods.count("GET")
        for _ in range(20):  # without the end, each of these gives the SDK the time for several reads
            await run_upstream_call(upstreams, "echo")

    assert upstream.methods.count("GET") <= last + 1


async def test_the_oldest_response_that_no_caller_waits_for_is_closed_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_response, "UNAWAITED_MAX", 2)
    async with holding("a stream") as (upstream, upstreams):
        for _ in range(2):
            await cancel_held_call(upstream, upstreams)
        assert not upstream.hung_up.is_set()
        await cancel_held_call(upstream, upstreams)
        await asyncio.wait_for(upstream.hung_up.wait(), WAIT_SECONDS)

    assert upstream.methods.count("initialize") == 1


async def test_a_session_is_replaced_when_too_many_of_its_requests_got_no_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any of their tools may still run and ask."""
    monkeypatch.setattr(session_module, "ABANDONED_REQUESTS_MAX", 2)
    async with holding("nothing") as (upstream, upstreams):
        for _ in range(2):
            await cancel_held_call(upstream, upstreams)
        assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT

    assert upstream.methods.count("initialize") == 2
