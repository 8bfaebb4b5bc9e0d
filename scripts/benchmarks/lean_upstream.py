"""A minimal MCP server for both sides of a comparison: `python -m scripts.benchmarks.lean_upstream PORT`.

It implements 2025-11-25 over streamable HTTP without sessions, has the tool `echo`, and responds to each request with one JSON
body. An SDK's server would take more CPU than the measured service.
"""

import json
import sys
from typing import Any, Final

import uvicorn

from tests.support.upstreams import Receive, Scope, Send, send_response

VERSION: Final = "2025-11-25"
RESULTS: Final[dict[str, Any]] = {
    "initialize": {
        "protocolVersion": VERSION,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "lean", "version": "1"},
    },
    "ping": {},
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "here"}], "isError": False},
}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http" or scope["method"] != "POST":
        await send_response(send, 405, "text/plain", b"POST only")
        return
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body", False)
    request = json.loads(body)
    if "id" not in request:
        await send_response(send, 202, "application/json", b"")
        return
    found = RESULTS.get(request["method"])
    body = {"result": found} if found is not None else {"error": {"code": -32601, "message": "Method not found"}}
    await send_response(
        send, 200, "application/json", json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}).encode()
    )


if __name__ == "__main__":
    uvicorn.run(
        app, host="127.0.0.1", port=int(sys.argv[1]), loop="uvloop", lifespan="off", ws="none", log_level="warning"
    )
