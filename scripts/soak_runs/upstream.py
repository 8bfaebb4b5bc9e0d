"""An MCP server over stdio, without an SDK, with correct and malformed responses: `python upstream.py [hostile]`.

`echo` responds at once. `garble` sends the malformed response that its argument `how` names: see `GARBLED`. `flood` sends
thousands of notifications before its response. `large` responds with 15 MB. The hostile one runs at low priority.
"""

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

PROTOCOL_VERSION = "2025-11-25"
METHOD_NOT_FOUND = -32601
LEVELS = 250
LONG_BYTES = 40_000_000
LARGE_PAIRS = 7_500_000
"""Of two digits, in a large result."""
NOTIFICATIONS = 20_000
CALM, HOSTILE = "calm", "hostile"
"""Two processes of this server, by the names of their upstreams. Only the hostile clients call the second one."""
NICENESS = 10
"""As in `scripts.soak_runs.hostile_clients`."""
RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": PROTOCOL_VERSION,
        "serverInfo": {"name": "soak", "version": "1"},
        "capabilities": {"tools": {}},
    },
    "tools/list": {
        "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "garble", "flood", "large")]
    },
    "ping": {},
}
NOTIFICATION = json.dumps(
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 100}}
)


def make_response(request_id: object, result: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result})


def make_text_result(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def nested(request_id: object) -> str:
    return f'{{"jsonrpc":"2.0","id":{request_id},"result":{{"deep":{"[" * LEVELS}{"]" * LEVELS}}}}}'


def unreadable(request_id: object) -> str:
    return f'{{"jsonrpc":"2.0","id":{request_id},"result":{{'


def respond_with_foreign_id(request_id: object) -> str:
    return make_response("not-requested", make_text_result("x")) + "\n" + make_response(request_id, [])


MALFORMED_RESPONSES: dict[str, Callable[[object], str]] = {
    "surrogate": lambda request_id: make_response(request_id, make_text_result("\ud83d")),
    "nested": nested,
    "unreadable": unreadable,
    "long": lambda request_id: make_response(request_id, make_text_result("x" * LONG_BYTES)),
    "stranger": respond_with_foreign_id,
}


def respond(message: dict[str, Any]) -> str:
    method, request_id = message["method"], message["id"]
    if method != "tools/call":
        if method in RESULTS:
            return make_response(request_id, RESULTS[method])
        error = {"code": METHOD_NOT_FOUND, "message": f"no {method}"}
        return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
    params = message["params"]
    match params["name"]:
        case "garble":
            return MALFORMED_RESPONSES[params["arguments"]["how"]](request_id)
        case "flood":
            return f"{NOTIFICATION}\n" * NOTIFICATIONS + make_response(request_id, make_text_result("flooded"))
        case "large":
            return make_response(request_id, make_text_result(f"{params['arguments']['number']:02d}" * LARGE_PAIRS))
        case _:
            return make_response(request_id, make_text_result("here"))


def lower_priority() -> None:
    """The service starts each child in a session of its own. Linux may schedule sessions as groups, each with a priority."""
    os.nice(NICENESS)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(NICENESS), encoding="ascii")


def main() -> None:
    if sys.argv[1:] == [HOSTILE]:
        lower_priority()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            sys.stdout.write(respond(message) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
