"""A legacy MCP server over stdio that keeps its task in a file, where the next process of it finds it.

Its one tool `work` runs as a task, which has ended when its status is asked for again. No SDK: see `stdio_upstream`.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

CREATED: Final = "2026-11-20T17:00:00Z"
CAPABILITIES: Final[dict[str, Any]] = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
TOOL: Final = {"name": "work", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
RESULT: Final = {"content": [{"type": "text", "text": "kept"}]}


def main() -> None:
    path = Path(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            reply = {"jsonrpc": "2.0", "id": message["id"], **respond(message["method"], path)}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


def respond(method: str, path: Path) -> dict[str, Any]:
    match method:
        case "initialize":
            info = {"name": "keeper", "version": "1"}
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": info}}
        case "tools/list":
            return {"result": {"tools": [TOOL]}}
        case "tools/call":
            path.write_text("working", encoding="utf-8")
            return {"result": {"task": describe_task("working")}}
        case "tasks/get" if path.exists():
            status = path.read_text(encoding="utf-8")
            path.write_text("completed", encoding="utf-8")
            return {"result": describe_task(status)}
        case "tasks/result" if path.exists():
            return {"result": RESULT}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


def describe_task(status: str) -> dict[str, Any]:
    return {
        "taskId": "t1",
        "status": status,
        "createdAt": CREATED,
        "lastUpdatedAt": CREATED,
        "ttl": 60_000,
        "pollInterval": 10,
    }


if __name__ == "__main__":
    main()
