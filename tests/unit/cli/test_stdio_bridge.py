"""The parts of `ringback mcp`: HTTP headers of messages, and errors for failed requests."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from mcp.shared.message import ClientMessageMetadata
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from typer.testing import CliRunner

from ringback.cli.app import app
from ringback.cli.stdio_bridge import RESPONSE_BYTES_MAX, JsonRpcErrorTransport, RequestHeaders

VERSION = "io.modelcontextprotocol/protocolVersion"
MODERN = {"_meta": {VERSION: "2026-07-28"}}


def stamp_headers(headers: RequestHeaders, message: JSONRPCMessage) -> dict[str, str] | None:
    metadata = headers.add_headers(message).metadata
    assert isinstance(metadata, ClientMessageMetadata)
    return metadata.headers


def sent(
    headers: RequestHeaders, method: str, params: dict[str, Any] | None = None, *, id_: int = 1
) -> dict[str, str] | None:
    """The headers of a sent request."""
    return stamp_headers(headers, JSONRPCRequest(jsonrpc="2.0", id=id_, method=method, params=params))


def answered(headers: RequestHeaders, result: dict[str, Any], *, id_: int = 1) -> None:
    headers.learn_from_response(JSONRPCResponse(jsonrpc="2.0", id=id_, result=result))


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("server/discover", {}, None),
        ("tools/call", {"name": "git_log"}, "git_log"),
        ("resources/read", {"uri": "ringback://calls/call_1"}, "ringback://calls/call_1"),
        ("prompts/get", {"name": " härte "}, "=?base64?IGjDpHJ0ZSA=?="),
        ("tasks/get", {"taskId": "call_1"}, "call_1"),
        ("tools/call", {"name": 7}, None),
    ],
)
def test_a_request_of_2026_07_28_names_its_method_in_headers(
    method: str, params: dict[str, Any], name: str | None
) -> None:
    headers = sent(RequestHeaders(), method, params | MODERN)

    assert headers is not None
    assert (headers["mcp-protocol-version"], headers["mcp-method"]) == ("2026-07-28", method)
    assert headers.get("mcp-name") == name


def test_arguments_go_into_headers_once_the_tool_was_listed() -> None:
    headers = RequestHeaders()
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    call = {"name": "deploy", "arguments": {"region": "eu"}} | MODERN
    before = sent(headers, "tools/call", call)

    sent(headers, "tools/list", MODERN, id_=2)
    answered(headers, {"tools": [{"name": "deploy", "inputSchema": schema}, "odd", {"name": "bare"}]}, id_=2)

    assert "Mcp-Param-Region" not in (before or {})
    assert (sent(headers, "tools/call", call) or {})["Mcp-Param-Region"] == "eu"


def test_before_2026_07_28_the_version_is_the_one_agreed_upon() -> None:
    headers = RequestHeaders()

    assert sent(headers, "initialize", {"protocolVersion": "2025-11-25"}, id_=7) is None
    assert sent(headers, "ping") is None
    answered(headers, {"protocolVersion": "1999-01-01"}, id_=8)
    answered(headers, {"protocolVersion": "2025-06-18"}, id_=7)

    assert sent(headers, "tools/call", {"name": "git_log"}) == {"mcp-protocol-version": "2025-06-18"}
    notification = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
    assert stamp_headers(headers, notification) == {"mcp-protocol-version": "2025-06-18"}


@pytest.mark.parametrize("params", [{"_meta": "odd"}, {"_meta": None}, {"_meta": {VERSION: 7}}])
def test_an_odd_envelope_is_left_to_the_service(params: dict[str, Any]) -> None:
    assert sent(RequestHeaders(), "tools/call", params) is None


# -- when HTTP fails -------------------------------------------------------------------------------------------------------


Answer = httpx2.Response | Exception


async def read_error(answer: Answer, **headers: str) -> httpx2.Response:
    def respond(_request: httpx2.Request) -> httpx2.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    transport = JsonRpcErrorTransport("http://127.0.0.1:8090/mcp", httpx2.MockTransport(respond))
    request = httpx2.Request("POST", "http://127.0.0.1:8090/mcp", json={}, headers=headers)
    return await transport.handle_async_request(request)


class TruncatedStream(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b'{"jsonrpc'
        raise httpx2.ReadError("reset")


class OversizedStream(httpx2.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(RESPONSE_BYTES_MAX // 2**20 + 1):
            yield b" " * 2**20


PROBLEM = {"type": "/problems/unauthenticated", "detail": "Send your API key.\x1b[2J"}
JSON = {"content-type": "application/json"}
HTML = {"content-type": "text/html"}


@pytest.mark.parametrize(
    ("answer", "what_to_do"),
    [
        pytest.param(httpx2.ConnectError("refused"), "ringback serve", id="refused"),
        pytest.param(httpx2.ReadError("reset"), "ringback_list_calls", id="reset"),
        pytest.param(RuntimeError("a bug"), "ringback_list_calls", id="bug"),
        pytest.param(httpx2.Response(200, headers=JSON, stream=TruncatedStream()), "lost", id="broken off"),
        pytest.param(httpx2.Response(200, headers=JSON, stream=OversizedStream()), "lost", id="too much"),
        pytest.param(
            httpx2.Response(401, headers={"content-type": "application/problem+json"}, json=PROBLEM),
            "Send your API key.\N{REPLACEMENT CHARACTER}",
            id="problem",
        ),
        pytest.param(httpx2.Response(502, headers=HTML, content=b"<html>"), "HTTP 502", id="page"),
        pytest.param(httpx2.Response(502, headers=HTML, content=b"[]"), "HTTP 502", id="list"),
    ],
)
async def test_a_failed_request_gets_an_error_with_the_next_step(answer: Answer, what_to_do: str) -> None:
    response = await read_error(answer)

    assert response.status_code == 503
    assert what_to_do in response.json()["error"]["message"]
    assert response.headers["content-type"] == "application/json"


async def test_a_lost_session_is_reported_as_such() -> None:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "?"}}

    gone = await read_error(httpx2.Response(404, json=body), **{"mcp-session-id": "s"})
    other = await read_error(httpx2.Response(404, json=body))

    assert "Start this server again" in gone.json()["error"]["message"]
    assert other.json() == body


async def test_json_rpc_messages_pass_unchanged() -> None:
    body = {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "task", "odd": [1, None]}}

    response = await read_error(httpx2.Response(200, json=body, headers={"mcp-session-id": "s", "set-cookie": "a"}))

    assert response.json() == body
    assert (response.headers["mcp-session-id"], "set-cookie" in response.headers) == ("s", False)


@pytest.mark.parametrize(
    "options", [("--url", "ftp://x"), ("--url", "localhost"), ("--url", "http://"), ("--upstream", "a/b")]
)
def test_an_address_that_cannot_be_one_is_a_usage_error(options: tuple[str, str]) -> None:
    result = CliRunner().invoke(app, ["mcp", *options])

    assert result.exit_code == 2
    assert options[0] in result.output
