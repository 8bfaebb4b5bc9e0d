"""The parts of `ringback mcp`: options, HTTP headers of messages, and what a failed request says."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from ringback.cli.commands import mcp
from ringback.cli.stdio_bridge.endpoint import EndpointConfig, ServiceEndpoint
from ringback.cli.stdio_bridge.request_headers import RequestHeaders
from ringback.cli.stdio_bridge.responses import RESPONSE_BYTES_MAX, NoResponse, RequestRefused, SessionUnknown
from tests.unit.cli.conftest import Run

VERSION = "io.modelcontextprotocol/protocolVersion"
MODERN = {"_meta": {VERSION: "2026-07-28"}}


def get_headers(headers: RequestHeaders, method: str, params: dict[str, Any] | None = None) -> dict[str, str]:
    """The headers of a request."""
    return headers.get_headers(make_request(method, params))


def make_request(method: str, params: dict[str, Any] | None = None) -> JSONRPCRequest:
    return JSONRPCRequest(jsonrpc="2.0", id=1, method=method, params=params)


def learn(headers: RequestHeaders, method: str, result: dict[str, Any]) -> None:
    headers.learn_from_response(make_request(method), JSONRPCResponse(jsonrpc="2.0", id=1, result=result))


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
    headers = get_headers(RequestHeaders(), method, params | MODERN)

    assert (headers["mcp-protocol-version"], headers["mcp-method"]) == ("2026-07-28", method)
    assert headers.get("mcp-name") == name


def test_arguments_go_into_headers_once_the_tool_was_listed() -> None:
    headers = RequestHeaders()
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    call = {"name": "deploy", "arguments": {"region": "eu"}} | MODERN
    before = get_headers(headers, "tools/call", call)

    learn(headers, "tools/list", {"tools": [{"name": "deploy", "inputSchema": schema}, "odd", {"name": "bare"}]})

    assert "Mcp-Param-Region" not in before
    assert get_headers(headers, "tools/call", call)["Mcp-Param-Region"] == "eu"


def test_before_2026_07_28_the_version_is_the_one_agreed_upon() -> None:
    headers = RequestHeaders()

    assert get_headers(headers, "initialize", {"protocolVersion": "2025-11-25"}) == {}
    assert get_headers(headers, "ping") == {}
    learn(headers, "ping", {"protocolVersion": "1999-01-01"})
    learn(headers, "initialize", {"protocolVersion": "2025-06-18"})

    assert get_headers(headers, "tools/call", {"name": "git_log"}) == {"mcp-protocol-version": "2025-06-18"}
    notification = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
    assert headers.get_headers(notification) == {"mcp-protocol-version": "2025-06-18"}


@pytest.mark.parametrize("params", [{"_meta": "odd"}, {"_meta": None}, {"_meta": {VERSION: 7}}])
def test_an_odd_envelope_is_left_to_the_service(params: dict[str, Any]) -> None:
    assert get_headers(RequestHeaders(), "tools/call", params) == {}


# -- when HTTP fails -------------------------------------------------------------------------------------------------------


Answer = httpx2.Response | Exception


async def request_with_answer(answer: Answer, **headers: str) -> JSONRPCMessage:
    """The response to a request that gets this answer over HTTP."""

    def respond(_request: httpx2.Request) -> httpx2.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    endpoint = ServiceEndpoint(EndpointConfig(url="http://127.0.0.1:8090/mcp"), httpx2.MockTransport(respond))
    response, _ = await endpoint.request(make_request("tools/list"), headers)
    return response


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
EVENTS = {"content-type": "text/event-stream"}


@pytest.mark.parametrize(
    ("answer", "reason", "may_have_arrived"),
    [
        pytest.param(httpx2.ConnectError("refused"), "unreachable at http", False, id="refused"),
        pytest.param(httpx2.ConnectTimeout("slow"), "unreachable at http", False, id="no connection in time"),
        pytest.param(httpx2.ReadError("reset"), "lost before its response (ReadError)", True, id="reset"),
        pytest.param(httpx2.ReadTimeout("silent"), "lost before its response (ReadTimeout)", True, id="silent"),
        pytest.param(httpx2.Response(200, headers=JSON, stream=TruncatedStream()), "lost", True, id="broken off"),
        pytest.param(
            httpx2.Response(200, headers=EVENTS, content=b""), "ended its response early", True, id="no event"
        ),
        pytest.param(httpx2.Response(503, json={"detail": "It starts."}), "It starts.", True, id="starting"),
        pytest.param(httpx2.Response(502, headers=HTML, content=b"<html>"), "HTTP 502", True, id="proxy"),
    ],
)
async def test_a_request_without_a_response_says_whether_it_may_have_arrived(
    *, answer: Answer, reason: str, may_have_arrived: bool
) -> None:
    with pytest.raises(NoResponse, match=re.escape(reason)) as failure:
        await request_with_answer(answer)

    assert failure.value.may_have_arrived is may_have_arrived


@pytest.mark.parametrize(
    ("answer", "what_to_do"),
    [
        pytest.param(httpx2.Response(200, headers=JSON, stream=OversizedStream()), "cannot be read", id="too much"),
        pytest.param(
            httpx2.Response(401, headers={"content-type": "application/problem+json"}, json=PROBLEM),
            "Send your API key.\N{REPLACEMENT CHARACTER}",
            id="problem",
        ),
        pytest.param(
            httpx2.Response(400, json={"jsonrpc": "2.0", "id": None, "error": {"code": -32020, "message": "Headers"}}),
            "Headers",
            id="JSON-RPC error",
        ),
        pytest.param(httpx2.Response(404, headers=HTML, content=b"<html>"), "HTTP 404. Is http", id="page"),
        pytest.param(httpx2.Response(404, headers=HTML, content=b"[]"), "HTTP 404. Is http", id="list"),
        pytest.param(httpx2.Response(200, headers=HTML, content=b"<html>"), "Is this its URL?", id="another service"),
        pytest.param(
            httpx2.Response(301, headers={"location": "https://ringback.example/mcp"}),
            "redirects to https://ringback.example/mcp",
            id="redirect",
        ),
    ],
)
async def test_a_refused_request_says_what_to_do(answer: Answer, what_to_do: str) -> None:
    with pytest.raises(RequestRefused, match=re.escape(what_to_do)):
        await request_with_answer(answer)


async def test_a_404_in_a_session_means_that_the_session_is_unknown() -> None:
    with pytest.raises(SessionUnknown):
        await request_with_answer(httpx2.Response(404, json={}), **{"mcp-session-id": "s"})


async def test_json_rpc_messages_pass_unchanged() -> None:
    body = {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "task", "odd": [1, None]}}

    response = await request_with_answer(httpx2.Response(200, json=body))

    assert response.model_dump(by_alias=True, mode="json", exclude_unset=True) == body


async def test_further_headers_are_sent_in_utf_8() -> None:
    received: list[httpx2.Headers] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        received.append(request.headers)
        return httpx2.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": {}})

    config = EndpointConfig(url="http://127.0.0.1:8090/mcp", headers={"Ringback-Client-Session-Id": "härte"})
    await ServiceEndpoint(config, httpx2.MockTransport(respond)).request(make_request("ping"), {})

    assert dict(received[0].raw)[b"Ringback-Client-Session-Id"] == "härte".encode()


# -- options ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def endpoints(monkeypatch: pytest.MonkeyPatch) -> list[EndpointConfig]:
    """The endpoints for which the command starts bridges."""
    started: list[EndpointConfig] = []

    async def run_bridge(config: EndpointConfig) -> None:
        started.append(config)

    def is_service_at(url: str) -> bool:
        return url == "http://127.0.0.1:8090"

    monkeypatch.setattr(mcp, "run_bridge", run_bridge)
    monkeypatch.setattr(mcp, "is_service_at", is_service_at)
    return started


def test_options_become_headers_and_query_parameters(
    run: Run, endpoints: list[EndpointConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGBACK_CALLBACK_SECRET", "whsec_c2VjcmV0")
    result = run(
        *("mcp", "--upstream", "git", "--client-session-id", "s 1", "--correlation-id", "c"),
        *("--callback-url", "https://agent.example/hook?x=1", "--webhook", "wh_1", "--wait", "2.5"),
    )

    assert result.exit_code == 0, result.output
    (endpoint,) = endpoints
    assert endpoint.url == "http://127.0.0.1:8090/mcp/git?webhook=wh_1&wait=2.5"
    assert endpoint.headers == {
        "Ringback-Client-Session-Id": "s 1",
        "Ringback-Correlation-Id": "c",
        "Ringback-Callback-Url": "https://agent.example/hook?x=1",
        "Ringback-Callback-Secret": "whsec_c2VjcmV0",
    }
    assert "whsec" not in repr(endpoint)


def test_the_environment_sets_what_options_do_not(
    run: Run, endpoints: list[EndpointConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGBACK_CLIENT_SESSION_ID", "from the environment")
    monkeypatch.setenv("RINGBACK_CORRELATION_ID", "")
    run("mcp")

    assert endpoints[0].headers == {"Ringback-Client-Session-Id": "from the environment"}
    assert endpoints[0].url == "http://127.0.0.1:8090/mcp"


@pytest.mark.parametrize(("seconds", "sent"), [("0", "0"), ("45", "45"), ("59.999", "59.999"), ("0.00001", "0")])
def test_a_wait_is_sent_in_milliseconds(run: Run, endpoints: list[EndpointConfig], seconds: str, sent: str) -> None:
    run("mcp", "--wait", seconds)

    assert endpoints[0].url.endswith(f"?wait={sent}")


@pytest.mark.parametrize(
    "options",
    [
        ("--url", "ftp://x"),
        ("--url", "localhost"),
        ("--url", "http://"),
        ("--upstream", "a/b"),
        ("--client-session-id", "line\nbreak"),
        ("--correlation-id", "c "),
        ("--callback-url", "https://agent.example/\N{RIGHT-TO-LEFT OVERRIDE}"),
        ("--webhook", " wh_1"),
        ("--wait", "-1"),
        ("--wait", "61"),
    ],
)
def test_an_option_that_cannot_be_used_is_a_usage_error(
    options: tuple[str, str], run: Run, endpoints: list[EndpointConfig]
) -> None:
    result = run("mcp", *options)

    assert (result.exit_code, endpoints) == (2, [])
    assert options[0] in result.output


@pytest.mark.parametrize(("secret", "url"), [("whsec_x", None), ("whsec_\n", "https://agent.example")])
def test_a_secret_that_cannot_be_used_is_a_usage_error_without_the_secret(
    secret: str, url: str | None, run: Run, endpoints: list[EndpointConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGBACK_CALLBACK_SECRET", secret)
    result = run("mcp", *([] if url is None else ["--callback-url", url]))

    assert (result.exit_code, endpoints) == (2, [])
    assert "RINGBACK_CALLBACK_SECRET" in result.output
    assert "whsec" not in result.output
