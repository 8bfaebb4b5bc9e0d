"""A modern tools/call gets the response that the SDK would send, with fewer layers."""

import json
from typing import Any, Final

import pytest
from mcp.server import _streamable_http_modern as sdk
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from starlette.types import Message, Receive, Scope

from ringback.mcp_server.modern_calls import handle_modern_call
from tests.support.mcp_wire import Json

VERSION: Final = "2026-07-28"
META: Final[Json] = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
    "ringback/correlationId": "c-1",
}
HEADERS: Final = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": VERSION,
    "mcp-method": "tools/call",
    "mcp-name": "echo",
}


def call(**changes: Any) -> Json:
    params: Json = {"name": "echo", "arguments": {"text": "ä\u2028"}, "_meta": META}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params} | changes


def with_meta(**changes: Any) -> Json:
    return call(params={"name": "echo", "_meta": META | changes})


BODIES: Final[dict[str, bytes | Json]] = {
    "a call": call(),
    "text as id": call(id="7"),
    "no arguments": with_meta(),
    "no client info": with_meta(**{"io.modelcontextprotocol/clientInfo": None}),
    "invalid client info": with_meta(**{"io.modelcontextprotocol/clientInfo": 1}),
    "invalid progress token": with_meta(progressToken=[]),
    "an error of the handler": call(params={"name": "echo", "arguments": {"fail": "refused"}, "_meta": META}),
    "a bug in the handler": call(params={"name": "echo", "arguments": {"fail": "bug"}, "_meta": META}),
    "no JSON": b"{",
    "a lone surrogate": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800"}}',
    "a batch": json.dumps([call()]).encode(),
    "a notification": {"jsonrpc": "2.0", "method": "tools/call", "params": {}},
    "no id": call(id=None),
    "another version of JSON-RPC": call(jsonrpc="1.0"),
    "another method": call(method="tools/list"),
    "another name": call(params={"name": "other", "_meta": META}),
    "no envelope": call(params={"name": "echo"}),
    "another version": with_meta(**{"io.modelcontextprotocol/protocolVersion": "2030-01-01"}),
    "params that are no object": call(params=[1]),
    "another argument than in its header": call(params={"name": "echo", "arguments": {"place": "b"}, "_meta": META}),
}


def get_input_schema(_tool: str) -> Json:
    return {"type": "object", "properties": {"place": {"type": "string", "x-mcp-header": "Place"}}}


class Exchange:
    """Both ways to handle a request, with handlers that return what they have read."""

    def __init__(self) -> None:
        self.app: Server[Any] = Server("test")
        self.app.get_tool_input_schema = get_input_schema
        self.app.middleware = [self._middleware]

    async def _middleware(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:  # noqa: ARG002
        return await self.handle(ctx)

    async def handle(self, ctx: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        params: Json = dict(ctx.params or {})
        arguments: Json = params.get("arguments") or {}
        if arguments.get("fail") == "refused":
            raise MCPError(INVALID_PARAMS, "refused", {"why": "test"})
        if arguments.get("fail") == "bug":
            raise ZeroDivisionError
        capabilities, client = ctx.session.client_capabilities, ctx.session.client_params
        return {
            "resultType": "complete",
            "read": [ctx.method, params, ctx.request_id, ctx.protocol_version, dict(ctx.meta or {})],
            "capabilities": None if capabilities is None else capabilities.model_dump(mode="json"),
            "client": None if client is None else client.client_info.name,
            "has_request": ctx.request is not None,
        }

    async def respond(self, body: bytes, headers: list[tuple[bytes, bytes]], *, directly: bool) -> tuple[Any, ...]:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "headers": headers,
            "server": ("localhost", 80),
            "state": {},
        }
        reading: Receive = receive
        if directly:
            await handle_modern_call(self.app, self.handle, None, body, scope, reading, send)
        else:
            await sdk.handle_modern_request(self.app, None, True, None, scope, reading, send)  # noqa: FBT003
        start, *rest = sent
        text = b"".join(message.get("body", b"") for message in rest)
        kind = dict(start["headers"]).get(b"content-type")
        return start["status"], kind, json.loads(text) if kind == b"application/json" else text


def encode_headers(**changes: str) -> list[tuple[bytes, bytes]]:
    named = HEADERS | {name.replace("_", "-"): value for name, value in changes.items()}
    return [(name.encode(), value.encode()) for name, value in named.items()]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_each_request_gets_the_response_of_the_sdk(body: bytes | Json) -> None:
    exchange, content = Exchange(), body if isinstance(body, bytes) else json.dumps(body).encode()

    direct, expected = [
        await exchange.respond(content, encode_headers(mcp_param_place="a"), directly=each) for each in (True, False)
    ]

    assert direct == expected


@pytest.mark.parametrize(
    "headers",
    [
        encode_headers(content_type="text/plain"),
        encode_headers(mcp_name="other"),
        encode_headers(mcp_protocol_version="2025-11-25"),
        [*encode_headers(), (b"mcp-name", b"other")],
    ],
)
async def test_headers_that_the_sdk_refuses_are_refused(headers: list[tuple[bytes, bytes]]) -> None:
    exchange, content = Exchange(), json.dumps(call()).encode()

    direct, expected = [await exchange.respond(content, headers, directly=each) for each in (True, False)]

    assert direct == expected
    assert direct[0] >= 400
