"""A legacy MCP server over stdio whose tools ask questions, without an SDK (see `stdio_upstream`).

`ask` asks its `question`. `ask_together` asks once `count` calls of it run. `ask_later` asks after it was cancelled, as soon as
another call runs, and gives that call its answer. `obey` ends when it is cancelled, and responds then. `sample` and `roots`
send requests that clients may refuse. `ask` and `ask_together` are listed only for a client that declared elicitation. A
result is the response to the request, as JSON.
"""

import json
import os
import sys
from itertools import count
from typing import Any, Final

PLAIN_TOOLS: Final = ("whoami", "sample", "roots", "ask_later", "obey")
ASKING_TOOLS: Final = ("ask", "ask_together")
REQUESTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "sample": ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
    "roots": ("roots/list", {}),
}


class Server:
    def __init__(self) -> None:
        self._ids = count(1)
        self._tools: tuple[str, ...] = PLAIN_TOOLS
        self._asking: dict[int, Any] = {}
        """The tools/call that gets the response to a request of this server, by the id of that request."""
        self._together: list[dict[str, Any]] = []
        self._later: dict[Any, str] = {}
        """The questions of running `ask_later` calls, by the id of the call."""
        self._cancelled_question: str | None = None
        self._obedient: list[Any] = []
        """The running `obey` calls."""

    def handle(self, message: dict[str, Any]) -> None:
        match message:
            case {"method": "initialize"}:
                self._initialize(message)
            case {"method": "tools/list"}:
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self._tools]
                send(id=message["id"], result={"tools": tools})
            case {"method": "tools/call"}:
                self._call_tool(message)
            case {"method": "notifications/cancelled"}:
                request_id = message["params"]["requestId"]
                self._cancelled_question = self._later.pop(request_id, None)
                if request_id in self._obedient:
                    send(id=request_id, error={"code": 0, "message": "Request cancelled"})
            case {"method": "ping"}:
                send(id=message["id"], result={})
            case {"method": _, "id": request_id}:
                send(id=request_id, error={"code": -32601, "message": "Method not found"})
            case {"id": int(request_id)}:
                answer_call(self._asking.pop(request_id), message.get("result") or message["error"])
            case _:
                pass

    def _initialize(self, request: dict[str, Any]) -> None:
        if "elicitation" in request["params"]["capabilities"]:
            self._tools = PLAIN_TOOLS + ASKING_TOOLS
        result: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "asking", "version": "1"},
        }
        send(id=request["id"], result=result)

    def _call_tool(self, request: dict[str, Any]) -> None:
        arguments = request["params"]["arguments"]
        if self._cancelled_question is not None:
            self._ask(request, self._cancelled_question)
            self._cancelled_question = None
            return
        match request["params"]["name"]:
            case "ask":
                self._ask(request, arguments["question"])
            case "ask_together":
                self._together.append(request)
                if len(self._together) == arguments["count"]:
                    for each in self._together:
                        self._ask(each, each["params"]["arguments"]["question"])
                    self._together.clear()
            case "ask_later":
                self._later[request["id"]] = arguments["question"]
                report_progress(request)
            case "obey":
                self._obedient.append(request["id"])
                report_progress(request)
            case "sample" | "roots" as name:
                self._request(request, *REQUESTS[name])
            case _:
                answer_call(request["id"], {"pid": os.getpid()})

    def _ask(self, request: dict[str, Any], question: str) -> None:
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
        self._request(request, "elicitation/create", {"message": question, "requestedSchema": schema})

    def _request(self, call: dict[str, Any], method: str, params: dict[str, Any]) -> None:
        request_id = next(self._ids)
        self._asking[request_id] = call["id"]
        send(id=request_id, method=method, params=params)


def answer_call(request_id: Any, response: Any) -> None:
    send(id=request_id, result={"content": [{"type": "text", "text": json.dumps(response)}], "isError": False})


def report_progress(request: dict[str, Any]) -> None:
    token = request["params"]["_meta"]["progressToken"]
    send(method="notifications/progress", params={"progressToken": token, "progress": 1})


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    server = Server()
    for line in sys.stdin:
        server.handle(json.loads(line))
