"""An MCP server over stdio that tests start as a child: its tools return its PID, wait, write garbage, or exit.

It uses no SDK, whose import takes two seconds of CPU in each child. Other tests start servers with SDKs:
test_third_party_servers (from PyPI), test_everything_server (from npm), test_measure_files, test_command_processes (the demo).
"""

import json
import os
import signal
import sys
from typing import Any, Final

TOOLS: Final = ("whoami", "hold", "die", "noise")


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer_request(message)


def answer_request(request: dict[str, Any]) -> None:
    match request["method"]:
        case "initialize":
            info = {"name": "child", "version": "1"}
            result: dict[str, Any] = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
            send(id=request["id"], result=result)
        case "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            send(id=request["id"], result={"tools": tools})
        case "tools/call":
            call_tool(request)
        case "ping":
            send(id=request["id"], result={})
        case _:
            data = {"method": request["method"]}
            send(id=request["id"], error={"code": -32601, "message": "Method not found", "data": data})


def call_tool(request: dict[str, Any]) -> None:
    match request["params"]["name"]:
        case "hold":
            token = request["params"]["_meta"]["progressToken"]
            progress = {"progressToken": token, "progress": 1, "total": 2, "message": "inside"}
            send(method="notifications/progress", params=progress)
            return
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "noise":
            os.write(sys.stdout.fileno(), b"this is no JSON\n")
            os.write(sys.stderr.fileno(), b"a secret of the child\n")
        case _:
            pass
    identity = json.dumps({"pid": os.getpid(), "environment": dict(os.environ)})
    send(id=request["id"], result={"content": [{"type": "text", "text": identity}], "isError": False})


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
