"""A stdio server without an SDK that responds with exactly the bytes of its test, or not at all.

`say` writes the argument `raw` (base64) with the request's id in place of `@ID@`; `last_words` does, and exits. `hold` never
responds, `freeze` stops its own process, `deaf` reads nothing until the file `until` exists. `pour` writes `bytes` without a
newline before its response, `flood` `count` progress notifications, `interrogate` `count` questions, `spill` `count` lines on
standard error. `whoami` returns its PID, and that of the grandchild that it starts if RAW_GRANDCHILD is set. With RAW_STUBBORN
it ignores the end of its input and SIGTERM; with RAW_OWN_GROUP the grandchild leads a process group of its own.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TOOLS = ("say", "last_words", "hold", "freeze", "flood", "whoami", "spill", "deaf", "pour", "interrogate")


def main() -> None:
    if os.environ.get("RAW_STUBBORN"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = _start_grandchild() if os.environ.get("RAW_GRANDCHILD") else None
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
                message, _tool_list_result()
            )
        case "ping":
            _result(message, {})
        case "tools/call":
            _call(message, message["params"]["arguments"], grandchild)
        case _:
            error = {"code": -32601, "message": "Method not found"}
            _send({"jsonrpc": "2.0", "id": message["id"], "error": error})


def _tool_list_result() -> dict[str, Any]:
    count = int(os.environ.get("RAW_TOOLS", "0"))
    names = [*TOOLS, *(f"tool_{number}" for number in range(count))]
    return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}


def _call(message: dict[str, Any], arguments: dict[str, Any], grandchild: int | None) -> None:
    match message["params"]["name"]:
        case "say":
            _write(base64.b64decode(arguments["raw"]), message)
            return
        case "last_words":
            _write(base64.b64decode(arguments["raw"]), message)
            os._exit(0)
        case "hold":
            return
        case "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        case "deaf":
            Path(f"{arguments['until']}.awaited").touch()
            while not Path(arguments["until"]).exists():
                time.sleep(0.01)
        case name if name in {"flood", "pour", "spill", "interrogate"}:
            _write_large_response(message, arguments)
        case _:
            pass
    _text(message, json.dumps({"pid": os.getpid(), "grandchild": grandchild}))


def _write_large_response(message: dict[str, Any], arguments: dict[str, Any]) -> None:
    out = sys.stdout.buffer
    match message["params"]["name"]:
        case "flood":
            token = json.dumps(message["params"]["_meta"]["progressToken"]).encode()
            notification = (
                b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}\n'
            )
            out.writelines(notification % (token, number) for number in range(1, arguments["count"] + 1))
        case "interrogate":
            question = b'{"jsonrpc":"2.0","id":"q%d","method":"elicitation/create","params":{"message":"q"}}\n'
            out.writelines(question % number for number in range(arguments["count"]))
        case "pour":
            out.writelines(b"x" * 65536 for _ in range(arguments["bytes"] // 65536))
            out.write(b"\n")
        case _:
            sys.stderr.buffer.writelines(b"x" * 1000 + b"\n" for _ in range(arguments["count"]))


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


def _start_grandchild() -> int:
    code = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
    if os.environ.get("RAW_OWN_GROUP"):
        code = code.replace("time; ", "time; os.setpgid(0, 0); ")
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid


if __name__ == "__main__":
    main()
