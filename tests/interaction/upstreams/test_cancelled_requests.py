"""Cancelled requests of a legacy session over HTTP: the upstream is told, and its response is not read on.

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
from ringback.upstreams.transports import open_responses
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
UNFINISHED_RESPONSES: Final = {
    "nothing": b"",
    "a status line": b"HTTP/1.1 200 OK\r\n",
    "half a result": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{",
    "a stream": STREAM,
    RESUMABLE: STREAM + b"id: 1\ndata:\n\n" + EVENT,
    FLOOD: STREAM,
}
WITH_ID: Final = "with a session id"
SESSIONS: Final = {WITH_ID: b"mcp-session-id: s1\r\n", "without a session id": b""}


@dataclass
class HoldingUpstream:
    """A legacy upstream whose tool `hold` sends the begin of a response and no end."""

    begin: bytes
    is_flooding: bool
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
            if message.get("params", {}).get("name") == "hold":
                await self._hold(reader, writer)
            else:
                writer.write(self._respond(message))
                await writer.drain()

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(self.begin)
            await writer.drain()
            self.held.set()
            while self.is_flooding:
                writer.write(EVENT * 100)
                await writer.drain()
            await reader.readexactly(1)
        finally:
            self.hung_up.set()

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
async def holding(begin: str, session: str) -> AsyncGenerator[HoldingUpstream]:
    upstream = HoldingUpstream(UNFINISHED_RESPONSES[begin], begin == FLOOD, SESSIONS[session])
    async with serving_raw(upstream.serve_connection, upstream.server):
        yield upstream


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("begin", UNFINISHED_RESPONSES)
async def test_a_cancelled_call_closes_its_response_and_leaves_its_session_open(
    begin: str, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_responses, "LATE_RESPONSE_SECONDS", 0.0)
    async with holding(begin, session) as upstream, open_upstreams(make_http_config(upstream.server.url)) as upstreams:
        call = asyncio.create_task(run_upstream_call(upstreams, "hold"))
        async with asyncio.timeout(WAIT_SECONDS):
            await upstream.held.wait()
            await run_upstream_call(upstreams, "echo")  # meanwhile the begin of the response arrives
            call.cancel()
            await asyncio.wait({call})
            await upstream.hung_up.wait()
        after = await run_upstream_call(upstreams, "echo")

    assert after.outcome is CallOutcome.RESULT
    is_resumable = begin == RESUMABLE and session == WITH_ID
    assert upstream.methods.count("notifications/cancelled") == (0 if is_resumable else 1)
    assert upstream.methods.count("initialize") == 1
    assert not any(b"last-event-id" in request.lower() for request in upstream.server.requests)
