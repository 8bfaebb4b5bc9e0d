"""Which HTTP errors say that an upstream has forgotten its session, or speaks another protocol now: no tool has run then."""

import httpx2
import pytest
from mcp_types import ErrorData

from ringback.protocol.errors import RequestNotSent, SessionNotFound
from ringback.protocol.transport_errors import to_request_error
from tests.support.guarded_transport import JSON, get_failure, post

IN_SESSION = {"mcp-session-id": "s1"}


def refusal(status: int, code: int, message: str, *, request_id: object = 7) -> httpx2.Response:
    error = {"code": code, "message": message}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": request_id, "error": error})


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(404, text="gone"),
        refusal(404, -32600, "Session not found", request_id=None),
        refusal(400, -32000, "No valid session", request_id=None),
        refusal(400, -32600, "Session not found", request_id=None),
        refusal(400, -32000, "No such session"),
        httpx2.Response(400, content=b"Bad Request: No valid session ID provided"),
        refusal(400, -32600, "Bad Request: Invalid session"),
        refusal(404, -32600, "Session not found"),
        refusal(400, -32000, "No transport found for session s1"),
        refusal(404, -32001, "Gone"),
        refusal(404, -32000, "Not found", request_id=None),
        refusal(404, -32600, "Please begin anew", request_id="server-error"),
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
    assert isinstance(await get_failure(response, IN_SESSION), SessionNotFound)


@pytest.mark.parametrize(
    "response",
    [
        refusal(400, -32602, "Unknown browser session"),
        refusal(400, -32600, "No params"),
        refusal(400, -32000, "No such order"),
        refusal(400, -32000, "The browser session crashed"),
        refusal(400, -32000, "No browser session is open"),
        refusal(404, -32602, "Unknown chat session: c1"),
        refusal(404, -32000, "No such order"),
        refusal(404, -32602, "Unknown tool"),
        httpx2.Response(404, json=[{"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "No such order"}}]),
        refusal(404, -32000, "No such order", request_id="7"),
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
    assert not isinstance(await get_failure(response, IN_SESSION), RequestNotSent)


OTHER_PROTOCOL = [
    refusal(400, -32022, "No such version"),
    refusal(400, -32600, "Bad Request: Missing session ID", request_id=""),
    refusal(400, -32000, "Server not initialized", request_id=None),
    httpx2.Response(400, content=b"Bad Request: Unsupported protocol version"),
]


@pytest.mark.parametrize("response", OTHER_PROTOCOL)
async def test_an_upstream_with_another_protocol_than_before_has_not_taken_the_request(
    response: httpx2.Response,
) -> None:
    assert isinstance(await get_failure(response), SessionNotFound)


@pytest.mark.parametrize("response", OTHER_PROTOCOL)
@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_the_refusal_of_a_handshake_is_left_to_the_handshake(response: httpx2.Response, method: str) -> None:
    refused = await post(response, {"jsonrpc": "2.0", "id": 7, "method": method})

    assert not isinstance(to_request_error(ErrorData.model_validate(refused.json()["error"])), RequestNotSent)


async def test_a_404_outside_of_a_session_is_no_forgotten_session() -> None:
    assert not isinstance(await get_failure(httpx2.Response(404, text="gone")), RequestNotSent)
