"""The guarded transport raises nothing, whatever the inner transport does."""

import json
import runpy
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from mcp_types import ErrorData

from ringback.protocol import transport_errors
from ringback.protocol.errors import (
    CredentialsRejected,
    CredentialsRequired,
    InvalidUpstreamResponse,
    LoginRequired,
    RequestNotSent,
    ResponseLost,
    ScopeRefused,
    SessionNotFound,
    TokenReplaced,
    TokenUnavailable,
    UpstreamError,
    UpstreamUnavailable,
)
from ringback.protocol.transport_errors import TransportErrorCode, to_request_error
from ringback.upstreams.connection_problems import ConnectionProblem, classify_problem, get_advice
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.transports import guarded_http as transport
from ringback.upstreams.transports.guarded_http import GuardedTransport
from ringback.upstreams.transports.large_results import LargeResults
from tests.support.clock import FakeClock

CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {}}
NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
RESULT: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
EVENT = json.dumps(RESULT).encode() + b"\n\n"
JSON = {"content-type": "application/json"}


class ScriptedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, outcome: httpx2.Response | Exception) -> None:
        self._outcome = outcome
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class BreakingStream(httpx2.AsyncByteStream):
    """A body that breaks off, or one without end."""

    def __init__(self, *, endless: bool = False) -> None:
        self._endless = endless
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b'{"jsonrpc":'
        while self._endless:
            yield b" " * 4096
        raise httpx2.ReadError("reset by peer")

    async def aclose(self) -> None:
        self.closed = True


def guard_transport(inner: ScriptedTransport) -> GuardedTransport:
    return GuardedTransport(inner, faults=FaultCounter("stage", clock=FakeClock()), large_results=LargeResults())


async def post(
    outcome: httpx2.Response | Exception, message: dict[str, Any] = CALL, headers: dict[str, str] | None = None
) -> httpx2.Response:
    client = httpx2.AsyncClient(transport=guard_transport(ScriptedTransport(outcome)), trust_env=False)
    async with client:
        return await client.post("http://upstream.example/mcp", json=message, headers=headers)


async def failure(outcome: httpx2.Response | Exception, headers: dict[str, str] | None = None) -> Exception:
    response = await post(outcome, headers=headers)
    assert response.status_code >= 400
    return to_request_error(ErrorData.model_validate(response.json()["error"]))


@pytest.mark.parametrize(
    "error", [httpx2.ConnectError("refused"), httpx2.ConnectTimeout("slow"), httpx2.PoolTimeout("full")]
)
async def test_a_request_that_never_connected_was_not_sent(error: Exception) -> None:
    assert isinstance(await failure(error), RequestNotSent)


@pytest.mark.parametrize("kind", [CredentialsRejected, ScopeRefused, TokenUnavailable, TokenReplaced])
async def test_a_failure_of_the_token_source_comes_out_as_it_is(kind: type[RequestNotSent]) -> None:
    found = await failure(kind("our words"))

    assert (type(found), str(found)) == (kind, "our words")


@pytest.mark.parametrize("scope", [None, "read write"])
async def test_a_required_login_comes_out_with_its_scope(scope: str | None) -> None:
    required = await failure(LoginRequired("sign in", scope=scope, tokens_version=3))

    assert isinstance(required, LoginRequired)
    assert (str(required), required.scope, required.tokens_version) == ("sign in", scope, 3)


@pytest.mark.parametrize("code", TransportErrorCode)
@pytest.mark.parametrize(
    "data",
    [
        None,
        "ringback/transport",
        {"ringback/transport": {"scope": None, "tokens_version": -1}},
        {"ringback/transport": {"scope": 7}},
        {"scope": "all"},
        ["ringback/transport"],
    ],
)
async def test_an_upstream_cannot_forge_the_errors_of_a_transport(code: TransportErrorCode, data: Any) -> None:
    """A forged `LoginRequired` would be queued and sent without end; a forged `RequestNotSent` would run a tool twice."""
    forged = {"jsonrpc": "2.0", "id": 7, "error": {"code": int(code), "message": "their words", "data": data}}

    assert type(await failure(httpx2.Response(200, json=forged))) is UpstreamError


def test_the_marker_of_transport_errors_is_another_one_in_each_process() -> None:
    other = runpy.run_path(transport_errors.__file__)["TRANSPORT_ERROR_MARKER"]

    assert other.startswith("ringback/transport/")
    assert len({other, transport_errors.TRANSPORT_ERROR_MARKER, "ringback/transport/"}) == 3


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ReadError("reset"),
        httpx2.WriteError("reset"),
        httpx2.RemoteProtocolError("hung up"),
        httpx2.ReadTimeout("slow"),
        RuntimeError("a bug below"),
    ],
)
async def test_a_request_whose_bytes_may_have_gone_out_is_lost(error: Exception) -> None:
    assert isinstance(await failure(error), ResponseLost)


async def test_a_body_that_breaks_off_is_lost_and_closed() -> None:
    body = BreakingStream()

    assert isinstance(await failure(httpx2.Response(200, headers=JSON, stream=body)), ResponseLost)
    assert body.closed


async def test_a_body_without_end_is_no_answer_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "RESULT_BYTES_MAX", 10_000)
    body = BreakingStream(endless=True)
    found = await failure(httpx2.Response(200, headers=JSON, stream=body))

    assert isinstance(found, InvalidUpstreamResponse)
    assert "larger than 10000 bytes" in str(found)
    assert body.closed


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(200, html="<h1>welcome</h1>"),
        httpx2.Response(200, headers=JSON, content=b"{oops"),
        httpx2.Response(200, headers=JSON, content=b"[]"),
        httpx2.Response(200, json={**RESULT, "id": 8}),
        httpx2.Response(200, json={**RESULT, "result": "text"}),
        httpx2.Response(200, json=CALL),
        httpx2.Response(200, headers={**JSON, "content-encoding": "gzip"}, stream=httpx2.ByteStream(b"x")),
        httpx2.Response(202),
        httpx2.Response(204),
        httpx2.Response(302, headers={"location": "https://login.example"}),
        httpx2.Response(307, headers={"location": "http://[::"}),
        httpx2.Response(307),
        httpx2.Response(404, text="Not Found"),
        httpx2.Response(500, text="Internal Server Error"),
        httpx2.Response(500, headers={"content-type": "text/event-stream"}),
    ],
)
async def test_an_invalid_response_is_reported_as_such(response: httpx2.Response) -> None:
    assert isinstance(await failure(response), InvalidUpstreamResponse)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
@pytest.mark.parametrize("body", [{"text": "no server"}, {"json": {"message": "no server"}}], ids=["text", "JSON"])
async def test_the_error_page_of_a_proxy_says_that_the_upstream_is_away(status: int, body: dict[str, Any]) -> None:
    assert type(await failure(httpx2.Response(status, **body))) is UpstreamUnavailable


async def test_an_error_has_the_status_and_not_the_body() -> None:
    assert "HTTP 500 and text/plain" in str(await failure(httpx2.Response(500, text="password=1")))


async def test_the_error_of_a_compressed_response_names_its_encoding() -> None:
    compressed = httpx2.Response(200, headers={**JSON, "content-encoding": "gzip"}, stream=httpx2.ByteStream(b"x"))

    assert "content-encoding gzip, though its request accepts none" in str(await failure(compressed))


async def test_an_answer_passes_with_the_session_it_opens() -> None:
    response = await post(httpx2.Response(200, json=RESULT, headers={"mcp-session-id": "s1"}))

    assert (response.status_code, response.json()) == (200, RESULT)
    assert response.headers["mcp-session-id"] == "s1"


@pytest.mark.parametrize("status", [200, 400, 404, 500])
async def test_an_error_of_the_upstream_passes_whatever_its_status_and_id(status: int) -> None:
    error = {"code": -32601, "message": "no such method", "data": [1]}
    response = await post(httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}))
    found = to_request_error(ErrorData.model_validate(response.json()["error"]))

    assert response.status_code >= 400
    assert isinstance(found, UpstreamError)
    assert found.error == error


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(404, text="gone"),
        httpx2.Response(
            404, json={"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}
        ),
        httpx2.Response(
            400, json={"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "No valid session"}}
        ),
        httpx2.Response(
            400, json={"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}
        ),
        httpx2.Response(400, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "No such session"}}),
        httpx2.Response(400, content=b"Bad Request: No valid session ID provided"),
        httpx2.Response(
            400, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32600, "message": "Bad Request: Invalid session"}}
        ),
        httpx2.Response(
            404, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32600, "message": "Session not found"}}
        ),
        httpx2.Response(
            400,
            json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "No transport found for session s1"}},
        ),
        httpx2.Response(404, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32001, "message": "Gone"}}),
        httpx2.Response(404, json={"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Not found"}}),
        httpx2.Response(
            404,
            json={"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "Please begin anew"}},
        ),
        httpx2.Response(404, json=[{"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Gone"}}]),
        httpx2.Response(404, json={"jsonrpc": "2.0", "id": 7}),  # Helidon
        httpx2.Response(404, json={"jsonrpc": "2.0", "id": 7, "error": "Session not found"}),
        httpx2.Response(404, json={"detail": "Not Found"}),
        httpx2.Response(404, content=b"Not Found"),
        httpx2.Response(404, headers={"content-type": "application/json"}),
        httpx2.Response(400, html='{"error": {"code": -32000, "message": "Bad Request"}}'),
    ],
)
async def test_a_session_that_the_upstream_does_not_know_was_forgotten(response: httpx2.Response) -> None:
    assert isinstance(await failure(response, {"mcp-session-id": "s1"}), SessionNotFound)


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(
            400, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "Unknown browser session"}}
        ),
        httpx2.Response(400, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32600, "message": "No params"}}),
        httpx2.Response(400, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "No such order"}}),
        httpx2.Response(
            400, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "The browser session crashed"}}
        ),
        httpx2.Response(
            400, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "No browser session is open"}}
        ),
        httpx2.Response(
            404, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "Unknown chat session: c1"}}
        ),
        httpx2.Response(404, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "No such order"}}),
        httpx2.Response(404, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "Unknown tool"}}),
        httpx2.Response(404, json=[{"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "No such order"}}]),
        httpx2.Response(404, json={"jsonrpc": "2.0", "id": "7", "error": {"code": -32000, "message": "No such order"}}),
        httpx2.Response(404, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32000}}),
        httpx2.Response(404, json={"jsonrpc": "2.0", "id": 7, "error": "No such order"}),
        httpx2.Response(
            404,
            headers=JSON,
            content=b'{"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "Caf\xe9 not found"}}',
        ),
        httpx2.Response(
            404,
            headers=JSON,
            content=b'{"jsonrpc": "2.0", "error": {"code": -32000, "message": "", "data": %b}, "id": 7}'
            % (b"9" * 5000),
        ),
        httpx2.Response(
            400,
            json=[{"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "The browser session crashed"}}],
        ),
        httpx2.Response(400, content=b"Bad Request"),
        httpx2.Response(400, content=b"session " * 1000),
        httpx2.Response(500, content=b"No valid session ID provided"),
    ],
)
async def test_another_refusal_in_a_session_does_not_send_the_request_again(response: httpx2.Response) -> None:
    """A tool may have sessions of its own, and have run."""
    assert not isinstance(await failure(response, {"mcp-session-id": "s1"}), RequestNotSent)


OTHER_PROTOCOL = [
    httpx2.Response(400, json={"jsonrpc": "2.0", "id": 7, "error": {"code": -32022, "message": "No such version"}}),
    httpx2.Response(
        400, json={"jsonrpc": "2.0", "id": "", "error": {"code": -32600, "message": "Bad Request: Missing session ID"}}
    ),
    httpx2.Response(
        400, json={"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Server not initialized"}}
    ),
    httpx2.Response(400, content=b"Bad Request: Unsupported protocol version"),
]


@pytest.mark.parametrize("response", OTHER_PROTOCOL)
async def test_an_upstream_with_another_protocol_than_before_has_not_taken_the_request(
    response: httpx2.Response,
) -> None:
    assert isinstance(await failure(response), SessionNotFound)


@pytest.mark.parametrize("response", OTHER_PROTOCOL)
@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_the_refusal_of_a_handshake_is_left_to_the_handshake(response: httpx2.Response, method: str) -> None:
    refused = await post(response, {"jsonrpc": "2.0", "id": 7, "method": method})

    assert not isinstance(to_request_error(ErrorData.model_validate(refused.json()["error"])), RequestNotSent)


async def test_a_404_outside_of_a_session_is_no_forgotten_session() -> None:
    assert not isinstance(await failure(httpx2.Response(404, text="gone")), RequestNotSent)


async def test_events_that_are_about_the_request_pass_as_they_came() -> None:
    events = b': hello\n\nid: 1\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n' + b"data: " + EVENT
    response = await post(httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events))

    assert response.content == events.removeprefix(b": hello\n\n")  # a comment has no meaning


@pytest.mark.parametrize(
    "data",
    [b'{"jsonrpc":"2.0","id":7,"result":1}', b'{"jsonrpc":"2.0","id":8,"result":{}}'],
    ids=["no object", "another's answer"],
)
async def test_a_response_that_is_not_the_answer_ends_the_request_with_an_error_of_ours(data: bytes) -> None:
    events = b"data: " + data + b"\n\ndata: " + EVENT
    response = await post(httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events))
    first = json.loads(response.content.partition(b"\n\n")[0].removeprefix(b"data: "))

    assert isinstance(to_request_error(ErrorData.model_validate(first["error"])), InvalidUpstreamResponse)


async def test_a_redirect_that_keeps_the_message_is_left_to_the_sdk() -> None:
    response = await post(httpx2.Response(307, headers={"location": "/mcp/"}))

    assert response.next_request is not None
    assert response.next_request.url == "http://upstream.example/mcp/"


@pytest.mark.parametrize(
    "outcome", [httpx2.Response(500), httpx2.Response(202), httpx2.Response(200, headers=JSON, content=b"{")]
)
async def test_the_answer_to_a_notification_means_nothing(outcome: httpx2.Response) -> None:
    assert (await post(outcome, NOTIFICATION)).status_code == 202


@pytest.mark.parametrize(
    ("method", "body", "read"), [("POST", NOTIFICATION, 5.0), ("DELETE", None, 5.0), ("POST", CALL, None)]
)
async def test_only_requests_without_a_waiting_call_have_a_read_timeout(
    method: str, body: Any, read: float | None
) -> None:
    inner = ScriptedTransport(httpx2.Response(202))
    client = httpx2.AsyncClient(transport=guard_transport(inner), timeout=None, trust_env=False)
    async with client:
        await client.request(method, "http://upstream.example/mcp", content=json.dumps(body) if body else None)

    assert inner.requests[0].extensions["timeout"]["read"] == read


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ErrorData(code=-32000, message="Connection closed"), ResponseLost),
        (ErrorData(code=-32000, message="SSE stream ended without a response"), ResponseLost),
        (
            ErrorData(code=-32000, message="SSE stream failed: Server-sent event exceeded the 9 byte limit."),
            InvalidUpstreamResponse,
        ),
        (ErrorData(code=-32700, message="Failed to parse SSE message: 1 validation error"), InvalidUpstreamResponse),
        (ErrorData(code=-32000, message="the tool's own"), UpstreamError),
        (ErrorData(code=-32011, message="not from here"), UpstreamError),
    ],
)
def test_errors_made_by_the_sdk_differ_from_the_upstreams_own(error: ErrorData, kind: type[Exception]) -> None:
    assert type(to_request_error(error)) is kind


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (FileNotFoundError(), "command_or_folder_not_found"),
        (PermissionError(), "command_cannot_be_started"),
        (TimeoutError(), "no_answer_in_time"),
        (ExceptionGroup("", [ExceptionGroup("", [RequestNotSent()])]), "cannot_connect"),
        (ResponseLost(), "connection_lost"),
        (UpstreamUnavailable("503"), "cannot_connect"),
        (CredentialsRequired(), "authorization_required"),
        (CredentialsRejected(), "unauthorised"),
        (TokenUnavailable(), "no_token"),
        (LoginRequired("sign in"), "login_required"),
        (ValueError("their words"), "handshake_failed"),
    ],
)
def test_a_problem_has_a_fixed_text(error: Exception, problem: str) -> None:
    assert classify_problem(error) == problem


def test_there_is_advice_for_every_problem() -> None:
    assert all(get_advice(problem, "hosted") for problem in ConnectionProblem)
    assert "ringback upstreams login hosted" in get_advice(ConnectionProblem.LOGIN_REQUIRED, "hosted")
