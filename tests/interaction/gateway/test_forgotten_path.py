"""MCP clients whose URL lacks `/mcp`: they show the message of a JSON-RPC error, which names the path."""

import json
from typing import Any

import httpx
import pytest

from tests.interaction.gateway.conftest import GatewayHarness

ADVICE = "MCP is at /mcp or /mcp/{upstream}."
PING = {"jsonrpc": "2.0", "id": "p1", "method": "ping"}
ACCEPT = {"accept": "application/json, text/event-stream"}


@pytest.mark.parametrize("path", ["", "/", "/sse", "/v1/mcp", "/plain"])
async def test_a_message_at_an_unknown_path_gets_an_error_that_names_the_path_of_mcp(
    gate: GatewayHarness, path: str
) -> None:
    response = await gate.http.post(f"{gate.url}{path}", json=PING)

    error = response.json()["error"]
    assert (response.status_code, response.json()["id"]) == (404, "p1")
    assert ADVICE in error["message"]
    assert error["data"]["problem"] == "unknown-path"


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"[" * 5000, json.dumps([1] * 50_000).encode()])
async def test_a_client_of_mcp_is_known_by_what_it_accepts_whatever_it_sends(gate: GatewayHarness, body: bytes) -> None:
    response = await gate.http.post(f"{gate.url}/sse", content=body, headers=ACCEPT)

    assert (response.status_code, response.json()["id"]) == (404, None)
    assert ADVICE in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "options"),
    [("GET", {"headers": ACCEPT}), ("POST", {"json": {"upstream": "git"}}), ("PUT", {"json": PING}), ("POST", {})],
)
async def test_the_problem_document_of_any_other_request_names_it_too(
    gate: GatewayHarness, method: str, options: dict[str, Any]
) -> None:
    response: httpx.Response = await gate.http.request(method, f"{gate.url}/sse", **options)

    assert response.headers["content-type"] == "application/problem+json"
    assert ADVICE in response.json()["detail"]
