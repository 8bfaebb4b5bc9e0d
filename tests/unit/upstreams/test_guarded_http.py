"""The guarded transport raises nothing, whatever the inner transport does."""

import json
import runpy
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import httpx2
import pytest
from mcp_types import ErrorData

from ringback.protocol import transport_errors
from ringback.protocol.errors import (
    CredentialsRejected,
    InvalidUpstreamResponse,
    LoginRequired,
    RequestNotSent,
    ResponseLost,
    ScopeRefused,
    TokenReplaced,
    TokensUnreadable,
    TokenUnavailable,
    UpstreamError,
    UpstreamUnavailable,
)
from ringback.protocol.transport_errors import TransportErrorCode, to_request_error
from ringback.upstreams.transports import guarded_http as transport
from tests.support.guarded_transport import (
    CALL,
    JSON,
    URL,
    ScriptedTransport,
    get_failure,
    guard_transport,
    post,
)

NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
RESULT: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
EVENT = json.dumps(RESULT).encode() + b"\n\n"
FORGED_DATA: tuple[Any, ...] = (
    None,
    "ringback/transport",
    {"ringback/transport": {"scope": None, "tokens_version": -1}},
    {"ringback/transport": {"scope": 7}},
    {"scope": "all"},
    ["ringback/transport"],
)


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


@pytest.mark.parametrize(
    "error", [httpx2.ConnectError("refused"), httpx2.ConnectTimeout("slow"), httpx2.PoolTimeout("full")]
)
async def test_a_request_that_never_connected_was_not_sent(error: Exception) -> None:
    assert isinstance(await get_failure(error), RequestNotSent)


@pytest.mark.parametrize("kind", [CredentialsRejected, ScopeRefused, TokenUnavailable, TokenReplaced])
async def test_a_failure_of_the_token_source_comes_out_as_it_is(kind: type[RequestNotSent]) -> None:
    found = await get_failure(kind("our words"))

    assert (type(found), str(found)) == (kind, "our words")


@pytest.mark.parametrize("scope", [None, "read write"])
async def test_a_required_login_comes_out_with_its_scope(scope: str | None) -> None:
    required = await get_failure(LoginRequired("sign in", scope=scope, tokens_version=3))

    assert isinstance(required, LoginRequired)
    assert (str(required), required.scope, required.tokens_version) == ("sign in", scope, 3)


async def test_tokens_that_this_node_cannot_read_come_out_as_that() -> None:
    unreadable = await get_failure(TokensUnreadable("no key", tokens_version=3))

    assert isinstance(unreadable, TokensUnreadable)
    assert (str(unreadable), unreadable.tokens_version) == ("no key", 3)
    assert not isinstance(await get_failure(LoginRequired("sign in")), TokensUnreadable)


async def test_an_upstream_cannot_forge_the_errors_of_a_transport() -> None:
    """A forged `LoginRequired` would be queued and sent without end; a forged `RequestNotSent` would run a tool twice."""
    for code, data in product(TransportErrorCode, FORGED_DATA):
        forged = {"jsonrpc": "2.0", "id": 7, "error": {"code": int(code), "message": "their words", "data": data}}
        assert type(await get_failure(httpx2.Response(200, json=forged))) is UpstreamError, (code, data)


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
    assert isinstance(await get_failure(error), ResponseLost)


async def test_a_body_that_breaks_off_is_lost_and_closed() -> None:
    body = BreakingStream()

    assert isinstance(await get_failure(httpx2.Response(200, headers=JSON, stream=body)), ResponseLost)
    assert body.closed


async def test_a_body_without_end_is_no_answer_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "RESULT_BYTES_MAX", 10_000)
    body = BreakingStream(endless=True)
    found = await get_failure(httpx2.Response(200, headers=JSON, stream=body))

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
    assert isinstance(await get_failure(response), InvalidUpstreamResponse)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
@pytest.mark.parametrize("body", [{"text": "no server"}, {"json": {"message": "no server"}}], ids=["text", "JSON"])
async def test_the_error_page_of_a_proxy_says_that_the_upstream_is_away(status: int, body: dict[str, Any]) -> None:
    assert type(await get_failure(httpx2.Response(status, **body))) is UpstreamUnavailable


async def test_an_error_has_the_status_and_not_the_body() -> None:
    assert "HTTP 500 and text/plain" in str(await get_failure(httpx2.Response(500, text="password=1")))


async def test_the_error_of_a_compressed_response_names_its_encoding() -> None:
    compressed = httpx2.Response(200, headers={**JSON, "content-encoding": "gzip"}, stream=httpx2.ByteStream(b"x"))

    assert "content-encoding gzip, though its request accepts none" in str(await get_failure(compressed))


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
        await client.request(method, URL, content=json.dumps(body) if body else None)

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
