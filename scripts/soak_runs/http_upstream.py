"""An MCP server over HTTP, without an SDK, whose tools flood their response streams: `python http_upstream.py PORT`.

Each tool sends messages of one kind until its caller disconnects: see `FLOODS`.
"""

import asyncio
import json
import os
import re
import sys
from typing import Any

STREAMING = "streaming"
"""The name of the upstream, which only the hostile clients call."""
NICENESS = 10
"""As in `scripts.soak_runs.hostile_clients`."""
BATCH = 100
HEADERS_END = b"\r\n\r\n"
LENGTH = re.compile(rb"(?i)content-length: (\d+)")
FLOODS: dict[str, dict[str, Any] | None] = {
    "progress": {"method": "notifications/progress", "params": {"progress": 1, "message": "m" * 400}},
    "logs": {"method": "notifications/message", "params": {"level": "info", "data": "x" * 400}},
    "changes": {"method": "notifications/tools/list_changed"},
    "questions": {"method": "elicitation/create", "params": {"message": "q", "requestedSchema": {"type": "object"}}},
    "comments": None,
}
RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "serverInfo": {"name": "flooding", "version": "1"},
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
    },
    "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in FLOODS]},
    "ping": {},
}


def make_events(tool: str, token: object, first: int) -> bytes:
    """A batch of the tool's events."""
    message = FLOODS[tool]
    if message is None:
        return b": comment\n\n" * BATCH
    events: list[str] = []
    for number in range(first, first + BATCH):
        one: dict[str, Any] = {"jsonrpc": "2.0", **message}
        if tool == "progress":
            one["params"] = {**one["params"], "progressToken": token, "progress": number}
        if tool == "questions":
            one["id"] = number
        events.append(f"data: {json.dumps(one)}\n\n")
    return "".join(events).encode()


async def flood(writer: asyncio.StreamWriter, params: dict[str, Any]) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
    token, first = params.get("_meta", {}).get("progressToken"), 1
    while not writer.is_closing():
        writer.write(make_events(params["name"], token, first))
        first += BATCH
        await writer.drain()
        await asyncio.sleep(0)


def respond(writer: asyncio.StreamWriter, status: str, body: bytes = b"") -> None:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


async def serve_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(HEADERS_END)
    length = LENGTH.search(head)
    body = await reader.readexactly(int(length[1])) if length else b""
    message: dict[str, Any] = json.loads(body) if head.startswith(b"POST") else {}
    if "method" not in message or "id" not in message:
        respond(writer, "202 Accepted" if head.startswith(b"POST") else "405 Method Not Allowed")
    elif message["method"] == "tools/call":
        await flood(writer, message["params"])
    else:
        result = RESULTS.get(message["method"])
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        response |= {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        respond(writer, "200 OK", json.dumps(response).encode())


async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while not writer.is_closing():
            await serve_request(reader, writer)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


async def main(port: int) -> None:
    os.nice(NICENESS)
    server = await asyncio.start_server(serve_connection, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
