"""An MCP server over stdio, without an SDK, so that it starts in milliseconds.

    python stdio_upstream.py LEDGER PID_FILE

Its only tool `echo` records its start, works for `seconds`, and responds. Calls run concurrently.
"""

import fcntl
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # it runs as a script, from any folder
from scripts.chaos_runs.journal import Journal

PROTOCOL_VERSION = "2025-11-25"
METHOD_NOT_FOUND = -32601
INITIALIZE_RESULT: dict[str, Any] = {
    "protocolVersion": PROTOCOL_VERSION,
    "serverInfo": {"name": "chaos", "version": "1"},
    "capabilities": {"tools": {}},
}
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}


class StdioUpstream:
    def __init__(self, ledger: Journal) -> None:
        self._ledger = ledger
        self._turn = threading.Lock()

    def serve(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("method") == "tools/call":
                threading.Thread(target=self._echo, args=(message,), daemon=True).start()
            elif "id" in message and "method" in message:
                self._answer(message, _answer_to(message))

    def _echo(self, message: dict[str, Any]) -> None:
        arguments = message["params"]["arguments"]
        self._ledger.append(key=arguments["key"], round=0)
        time.sleep(arguments["seconds"])
        self._answer(message, {"result": {"content": [{"type": "text", "text": arguments["key"]}]}})

    def _answer(self, message: dict[str, Any], answer: dict[str, Any]) -> None:
        with self._turn:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


def _answer_to(message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            return {"result": INITIALIZE_RESULT}
        case "tools/list":
            return {"result": {"tools": [TOOL]}}
        case "ping":
            return {"result": {}}
        case method:
            return {"error": {"code": METHOD_NOT_FOUND, "message": f"no {method}"}}


def main() -> None:
    with Path(sys.argv[2]).open("a+", encoding="ascii") as held:
        # Locked while this process lives, so that a killer knows that the PID has not been reused.
        fcntl.flock(held, fcntl.LOCK_EX)
        held.truncate(0)
        held.write(str(os.getpid()))
        held.flush()
        StdioUpstream(Journal(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
