"""A model endpoint on loopback with a script: the model calls one tool, and does what the tool's text says.

    POST /v1/messages                                    Anthropic Messages       Claude Code
    POST /v1/responses                                   OpenAI Responses         Codex
    POST /v1beta/models/…:streamGenerateContent          Gemini                   Gemini CLI

A request offers tools and has the conversation. The script calls `Script.tool` first; it calls `ringback_wait_for_call` while
the last result names a pending call; then it repeats the result as its own text. A request without that tool, such as that for
a title, gets a word. What the model read is kept: a client that shows a model something else fails.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final, cast

from scripts.interop_runs.judge import WAIT_TOOL, find_call_id
from scripts.interop_runs.stage import UPSTREAM

STEPS_MAX: Final = 20
"""Tool calls of one run. A client that shows results badly would ask for ever."""
SEARCH_TOOLS: Final = "ToolSearch"
NAMESPACE_END: Final = "\x1f"
"""Between the namespace and the name of a tool; in no name."""
BODY_BYTES_MAX: Final = 16 * 1024 * 1024

Json = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Script:
    """What the model does in one run of a client, and what it saw."""

    tool: str
    arguments: Mapping[str, Any]
    outcome: str
    """The text that only the tool's result contains."""
    tools: list[str] = field(default_factory=list[str])
    """The tools that the last request offered."""
    results: list[str] = field(default_factory=list[str])
    """The texts of the tool results in the last conversation, in their order."""
    steps: int = 0
    earlier_results: int | None = None
    """How many results precede the first call of the tool: those of the client's own tools."""

    def next_step(self, turn: "Turn") -> "ToolUse | str":
        tool = find_tool(turn.tools, self.tool)
        if tool is None:
            return self._reach_tools(turn)
        if self.earlier_results is None:
            self.earlier_results = len(turn.results)
        self.tools, self.results = list(turn.tools), list(turn.results[self.earlier_results :])
        self.steps += 1
        if not self.results:
            return ToolUse(tool, self.arguments)
        last = self.results[-1]
        call_id, wait = find_call_id(last), find_tool(turn.tools, WAIT_TOOL)
        if self.outcome in last or call_id is None or wait is None or self.steps > STEPS_MAX:
            return f"The tool says: {last}"
        return ToolUse(wait, {"call_id": call_id})

    def _reach_tools(self, turn: "Turn") -> "ToolUse | str":
        """Claude Code offers the tools of servers after a search, which finds them once the servers are connected."""
        self.steps += 1
        if SEARCH_TOOLS in turn.tools and self.steps <= STEPS_MAX:
            return ToolUse(SEARCH_TOOLS, {"query": f"mcp__{UPSTREAM}", "max_results": 50})
        return "Report"


@dataclass(frozen=True, slots=True)
class ToolUse:
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """What a request says, whatever the provider's form."""

    tools: Sequence[str]
    results: Sequence[str]


def find_tool(tools: Sequence[str], name: str) -> str | None:
    """The offered tool of this name: clients put the server's name before it."""
    return next((tool for tool in tools if tool == name or tool.endswith((f"_{name}", f"{NAMESPACE_END}{name}"))), None)


# -- the providers' forms ----------------------------------------------------------------------------------------------------


def read_anthropic(body: Mapping[str, Any]) -> Turn:
    blocks = [
        block
        for message in body.get("messages", ())
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    results = [_join_texts(block["content"]) for block in blocks if block["type"] == "tool_result"]
    return Turn([tool["name"] for tool in body.get("tools", ())], results)


def write_anthropic(step: ToolUse | str) -> list[Mapping[str, Any]]:
    if isinstance(step, ToolUse):
        block: Json = {"type": "tool_use", "id": f"toolu_{id(step)}", "name": step.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step.arguments)}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": step}
    reason = "tool_use" if isinstance(step, ToolUse) else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: Json = {"id": f"msg_{id(step)}", "type": "message", "role": "assistant", "model": "claude", "content": []}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


def read_openai(body: Mapping[str, Any]) -> Turn:
    """The tools of a server are a namespace for Codex: their calls name both."""
    names: list[str] = []
    for tool in body.get("tools", ()):
        inner = tool.get("tools", ()) if tool.get("type") == "namespace" else [tool]
        prefix = f"{tool['name']}{NAMESPACE_END}" if tool.get("type") == "namespace" else ""
        names += [f"{prefix}{each['name']}" for each in inner if "name" in each]
    outputs = [item["output"] for item in body.get("input", ()) if item.get("type") == "function_call_output"]
    return Turn(names, [_join_texts(output) for output in outputs])


def write_openai(step: ToolUse | str) -> list[Mapping[str, Any]]:
    if isinstance(step, ToolUse):
        namespace, _, name = step.name.rpartition(NAMESPACE_END)
        item: Json = {"type": "function_call", "id": f"fc_{id(step)}", "call_id": f"call-{id(step)}"}
        item |= {"name": name, "arguments": json.dumps(step.arguments)} | (
            {"namespace": namespace} if namespace else {}
        )
    else:
        content: list[Json] = [{"type": "output_text", "text": step, "annotations": []}]
        item = {"type": "message", "role": "assistant", "id": f"msg_{id(step)}", "content": content}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    response = {"id": f"resp_{id(step)}", "object": "response", "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {"id": response["id"]}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]


def read_gemini(body: Mapping[str, Any]) -> Turn:
    declared = [each for tool in body.get("tools", ()) for each in tool.get("functionDeclarations", ())]
    parts = [part for content in body.get("contents", ()) for part in content.get("parts", ())]
    responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
    return Turn([each["name"] for each in declared], [_join_texts(each.get("response")) for each in responses])


def write_gemini(step: ToolUse | str) -> list[Mapping[str, Any]]:
    part: Json = {"text": step}
    if isinstance(step, ToolUse):
        part = {"functionCall": {"name": step.name, "args": dict(step.arguments)}}
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return [{"candidates": [candidate], "usageMetadata": usage}]


def _join_texts(content: Any) -> str:
    """All strings of a tool result, whatever its blocks are called."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return "\n".join(_join_texts(value) for value in cast("Mapping[str, Any]", content).values())
    if isinstance(content, list):
        return "\n".join(_join_texts(each) for each in cast("list[Any]", content))
    return ""


_FORMS: Final = {
    "/messages": (read_anthropic, write_anthropic),
    "/responses": (read_openai, write_openai),
    "GenerateContent": (read_gemini, write_gemini),
}


# -- the server --------------------------------------------------------------------------------------------------------------


@contextmanager
def serving_model(script: Script) -> Generator[str]:
    """Serve the script; the URL of the endpoint, without a path."""
    lock = Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            path = self.path.partition("?")[0]
            length = min(int(self.headers.get("content-length", 0)), BODY_BYTES_MAX)
            body: dict[str, Any] = json.loads(self.rfile.read(length) or b"{}")
            form = next((form for end, form in _FORMS.items() if path.endswith(end)), None)
            if form is None:
                self._send("application/json", b'{"input_tokens": 1, "totalTokens": 1}')
                return
            read, write = form
            with lock:
                step = script.next_step(read(body))
            self._send("text/event-stream", b"".join(map(_encode_event, write(step))))

        def do_GET(self) -> None:
            self._send("application/json", b'{"data": [], "models": []}')

        def _send(self, content_type: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            """Say nothing: the script keeps what matters."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _encode_event(event: Mapping[str, Any]) -> bytes:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()
