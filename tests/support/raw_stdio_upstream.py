"""A stdio server without an SDK: it answers a call with exactly the bytes that its test hands it, or not at all.

`say` writes the argument `raw` (base64), in which `@ID@` becomes the request's id. `hold` answers nothing, `freeze` stops its
own process, `deaf` reads nothing for some `seconds`. `flood` tells `count` times of progress and answers then. `spill` writes
`count` lines of errors. `whoami` tells its process id, and that of the grandchild that it starts when RAW_GRANDCHILD is set.
With RAW_STUBBORN it ignores the end of its input, and SIGTERM.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

TOOLS = ("say", "hold", "freeze", "flood", "whoami", "spill", "deaf")


def main() -> None:
    if os.environ.get("RAW_STUBBORN"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = _grandchild() if os.environ.get("RAW_GRANDCHILD") else None
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            _answer(message, grandchild)
    while os.environ.get("RAW_STUBBORN"):
        time.sleep(3600)


def _answer(message: dict[str, Any], grandchild: int | None) -> None:
    match message["method"]:
        case "initialize":
            info = {"name": "raw", "version": "1"}
            _result(message, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
        case "tools/list":
            _write(os.environ["RAW_LIST"].encode(), message) if "RAW_LIST" in os.environ else _result(
                message, _listed()
            )
        case "ping":
            _result(message, {})
        case "tools/call":
            _call(message, message["params"]["arguments"], grandchild)
        case _:
            error = {"code": -32601, "message": "Method not found"}
            _send({"jsonrpc": "2.0", "id": message["id"], "error": error})


def _listed() -> dict[str, Any]:
    count = int(os.environ.get("RAW_TOOLS", "0"))
    names = [*TOOLS, *(f"tool_{number}" for number in range(count))]
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}


def _call(message: dict[str, Any], arguments: dict[str, Any], grandchild: int | None) -> None:
    match message["params"]["name"]:
        case "say":
            _write(base64.b64decode(arguments["raw"]), message)
        case "hold":
            pass
        case "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "flood":
            token = json.dumps(message["params"]["_meta"]["progressToken"])
            told = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}\n'
            for number in range(1, arguments["count"] + 1):
                sys.stdout.buffer.write(told % (token.encode(), number))
            _text(message, "flooded")
        case "spill":
            for _ in range(arguments["count"]):
                sys.stderr.buffer.write(b"x" * 1000 + b"\n")
            _text(message, "spilled")
        case "deaf":
            time.sleep(arguments["seconds"])
            _text(message, "heard")
        case _:
            _text(message, json.dumps({"pid": os.getpid(), "grandchild": grandchild}))


def _text(message: dict[str, Any], text: str) -> None:
    _result(message, {"content": [{"type": "text", "text": text}]})


def _result(message: dict[str, Any], result: dict[str, Any]) -> None:
    _send({"jsonrpc": "2.0", "id": message["id"], "result": result})


def _send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _write(raw: bytes, message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(raw.replace(b"@ID@", json.dumps(message["id"]).encode()))
    sys.stdout.flush()


def _grandchild() -> int:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid


if __name__ == "__main__":
    main()
