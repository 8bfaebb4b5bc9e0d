"""What no decent client sends: each is refused in words, and the next request is served."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.interaction.gateway.conftest import NO_CAPABILITIES, Gate, opened_gate
from tests.support.mcp_wire import ACCEPT, LEGACY, MODERN, Json, Modern, Refused, Session

ENVELOPE: Final[Json] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def post(gate: Gate, body: bytes, *, path: str = "/mcp/paint", **headers: str) -> httpx.Response:
    sent = {
        **ACCEPT,
        "authorization": f"Bearer {await gate.key('alice')}",
        "content-type": "application/json",
        "mcp-protocol-version": MODERN,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return await gate.http.post(f"{gate.url}{path}", content=body, headers=sent)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_what_is_no_request_is_a_json_rpc_error(gate: Gate, body: bytes, version: str) -> None:
    answer = await post(gate, body, mcp_protocol_version=version)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in {-32700, -32600, -32602}


async def test_a_version_that_nobody_knows_is_refused_with_those_that_are_served(gate: Gate) -> None:
    meta = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    answer = await post(gate, json.dumps(body).encode(), mcp_protocol_version="2031-01-01", mcp_method="tools/list")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == -32022
    assert answer.json()["error"]["data"]["supported"] == [MODERN]


async def test_an_unknown_method_is_one_in_every_era(modern: Modern, session: Session) -> None:
    for client in (modern, session):
        for method in ("tools/cull", "ringback/secret"):
            with pytest.raises(Refused) as refused:
                await client.result(method, {})
            assert refused.value.code == -32601


async def test_a_method_of_another_era_is_unknown(modern: Modern, session: Session) -> None:
    asked: list[tuple[Modern | Session, str, Json]] = [
        (modern, "resources/subscribe", {"uri": "x://y"}),
        (modern, "logging/setLevel", {"level": "info"}),
        (session, "subscriptions/listen", {"notifications": {}}),
        (session, "server/discover", {}),
    ]
    for client, method, params in asked:
        with pytest.raises(Refused) as refused:
            await client.result(method, params)
        assert refused.value.code == -32601


@pytest.mark.parametrize("params", [{}, {"name": "count", "arguments": []}, {"name": "count", "inputResponses": 7}])
async def test_malformed_params_are_told_as_such(modern: Modern, params: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        await modern.result("tools/call", params, declare=NO_CAPABILITIES)
    assert refused.value.code in {-32602, -32020}


async def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(gate: Gate) -> None:
    body = b"x" * (4 * 1024 * 1024 + 1)

    async def parts() -> AsyncGenerator[bytes]:
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    headers = {**ACCEPT, "authorization": f"Bearer {await gate.key('alice')}", "content-type": "application/json"}
    declared = await post(gate, body)
    undeclared = await gate.http.post(f"{gate.url}/mcp/paint", content=parts(), headers=headers)
    assert (declared.status_code, undeclared.status_code) == (413, 413)


async def test_foreign_hosts_and_origins_are_refused_as_by_rest(gate: Gate) -> None:
    assert (await post(gate, b"{}", host="rebound.example")).status_code == 421
    assert (await post(gate, b"{}", origin="https://elsewhere.example")).status_code == 403


async def test_without_a_key_nobody_is_served(gate: Gate) -> None:
    for path in ("/mcp", "/mcp/paint", "/mcp/nobody"):
        answer = await gate.http.post(f"{gate.url}{path}", json={}, headers=ACCEPT)
        assert answer.status_code == 401
        assert "Bearer" in answer.headers["www-authenticate"]


async def test_an_endpoint_of_no_upstream_is_not_found(gate: Gate) -> None:
    answer = await post(gate, b"{}", path="/mcp/nobody")
    assert answer.status_code == 404
    assert "upstream" in answer.json()["detail"]


async def test_once_it_stops_sessions_end_and_whoever_comes_is_told_to_come_again(tmp_path: Path) -> None:
    async with opened_gate(tmp_path) as gate, gate.session() as session, session.stream() as stream:
        gate.ringback.app.mcp.close()
        with pytest.raises(AssertionError, match="ended"):
            await stream.next()
        answer = await post(gate, b"{}")
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
