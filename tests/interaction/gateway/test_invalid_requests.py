"""Invalid requests get an error with a reason, and the next request is served."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ringback.domain.principal import DEFAULT_SCOPES
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness, running_gateway
from tests.support.mcp_wire import ACCEPT, LEGACY, MODERN, Json, JsonRpcErrorResponse, LegacyClientSession, ModernClient

ENVELOPE: Final[Json] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def post(gate: GatewayHarness, body: bytes, *, path: str = "/mcp/paint", **headers: str) -> httpx.Response:
    sent = {
        **ACCEPT,
        "authorization": f"Bearer {await gate.get_api_key('alice')}",
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
async def test_an_invalid_request_gets_a_json_rpc_error(gate: GatewayHarness, body: bytes, version: str) -> None:
    answer = await post(gate, body, mcp_protocol_version=version)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in {-32700, -32600, -32602}


async def test_an_unknown_version_is_refused_with_the_supported_versions(gate: GatewayHarness) -> None:
    meta = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    answer = await post(gate, json.dumps(body).encode(), mcp_protocol_version="2031-01-01", mcp_method="tools/list")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == -32022
    assert answer.json()["error"]["data"]["supported"] == [MODERN]


async def test_an_unknown_method_is_unknown_in_every_era(modern: ModernClient, session: LegacyClientSession) -> None:
    for client in (modern, session):
        for method in ("tools/cull", "ringback/secret"):
            with pytest.raises(JsonRpcErrorResponse) as refused:
                await client.request(method, {})
            assert refused.value.code == -32601


async def test_a_method_of_another_era_is_unknown(modern: ModernClient, session: LegacyClientSession) -> None:
    requested: list[tuple[ModernClient | LegacyClientSession, str, Json]] = [
        (modern, "resources/subscribe", {"uri": "x://y"}),
        (modern, "logging/setLevel", {"level": "info"}),
        (session, "subscriptions/listen", {"notifications": {}}),
        (session, "server/discover", {}),
    ]
    for client, method, params in requested:
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await client.request(method, params)
        assert refused.value.code == -32601


@pytest.mark.parametrize("params", [{}, {"name": "count", "arguments": []}, {"name": "count", "inputResponses": 7}])
async def test_malformed_params_get_invalid_params(modern: ModernClient, params: dict[str, Any]) -> None:
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await modern.request("tools/call", params, declare=NO_CAPABILITIES)
    assert refused.value.code in {-32602, -32020}


@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        ("tools/call", {"arguments": {}}, "params.name: Field required"),
        ("tools/call", {"name": "count", "arguments": ["s3cret"]}, "params.arguments: Input should be an object"),
        ("tools/list", {"_meta": {"progressToken": ["s3cret"]}}, "params._meta.progressToken"),
        ("prompts/get", {}, "params.name: Field required"),
        ("resources/read", {}, "params.uri: Field required"),
        ("tasks/get", {}, "params.taskId: Field required"),
    ],
)
async def test_wrong_params_are_named_without_their_values_in_both_eras(
    modern: ModernClient, session: LegacyClientSession, method: str, params: Json, named: str
) -> None:
    for client in (modern, session):
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await client.request(method, params)
        assert refused.value.code == -32602
        assert refused.value.message.startswith(f"Invalid request parameters. {named}"), refused.value.message
        assert "s3cret" not in refused.value.message


@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        ("logging/setLevel", {"level": "loud"}, "params.level: Input should be 'alert'"),
        ("ping", {"_meta": 5}, "params._meta"),
        ("initialize", {"protocolVersion": LEGACY}, "params.capabilities: Field required"),
    ],
)
async def test_wrong_params_of_a_legacy_method_are_named(
    session: LegacyClientSession, method: str, params: Json, named: str
) -> None:
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await session.request(method, params)
    assert refused.value.code == -32602
    assert refused.value.message.startswith(f"Invalid request parameters. {named}"), refused.value.message


@pytest.mark.parametrize("version", ["2025-12-31", "1.0", ""])
async def test_a_header_with_an_unknown_version_is_refused_in_a_session_with_the_known_ones(
    session: LegacyClientSession, version: str
) -> None:
    body = {"jsonrpc": "2.0", "id": "mine", "method": "tools/list"}
    for method in ("POST", "GET", "DELETE"):
        headers = {**session.headers, "mcp-protocol-version": version}
        answer = await session.http.request(
            method, session.url, json=body if method == "POST" else None, headers=headers
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
        assert "MCP-Protocol-Version" in answer.json()["error"]["message"]
        assert {LEGACY, MODERN} == {each for each in (LEGACY, MODERN) if each in answer.json()["error"]["message"]}
    assert await session.request("tools/list", {})


@pytest.mark.parametrize("version", [None, LEGACY, "2024-11-05"])
async def test_a_request_outside_a_session_is_told_how_to_open_one(gate: GatewayHarness, version: str | None) -> None:
    headers = {**ACCEPT, "authorization": f"Bearer {await gate.get_api_key('alice')}"}
    headers |= {} if version is None else {"mcp-protocol-version": version}
    body = {"jsonrpc": "2.0", "id": "mine", "method": "tools/list"}
    for method, expected_id in (("POST", "mine"), ("GET", None), ("DELETE", None)):
        answer = await gate.http.request(
            method, f"{gate.url}/mcp/paint", json=body if method == "POST" else None, headers=headers
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], answer.json()["id"]) == (400, -32600, expected_id)
        assert "Mcp-Session-Id" in error["message"]
        assert "initialize" in error["message"]


async def test_a_request_in_an_unknown_session_is_told_to_open_another_one(
    gate: GatewayHarness, session: LegacyClientSession
) -> None:
    stranger = {**session.headers, "authorization": f"Bearer {await gate.get_api_key('bob')}"}
    unknown = {**session.headers, "mcp-session-id": "0" * 32}
    body = {"jsonrpc": "2.0", "id": "mine", "method": "tools/list"}
    texts: set[str] = set()
    for headers in (stranger, unknown):
        for method, expected_id in (("POST", "mine"), ("GET", None), ("DELETE", None)):
            answer = await gate.http.request(
                method, session.url, json=body if method == "POST" else None, headers=headers
            )
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], answer.json()["id"]) == (404, -32600, expected_id)
            texts.add(error["message"])
    (text,) = texts
    assert "Session not found" in text
    assert "'initialize' without Mcp-Session-Id" in text
    assert await session.request("tools/list", {})


async def test_a_too_large_body_is_refused_with_and_without_content_length(gate: GatewayHarness) -> None:
    body = b"x" * (4 * 1024 * 1024 + 1)

    async def parts() -> AsyncGenerator[bytes]:
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    headers = {
        **ACCEPT,
        "authorization": f"Bearer {await gate.get_api_key('alice')}",
        "content-type": "application/json",
    }
    declared = await post(gate, body)
    undeclared = await gate.http.post(f"{gate.url}/mcp/paint", content=parts(), headers=headers)
    assert (declared.status_code, undeclared.status_code) == (413, 413)


async def test_foreign_hosts_and_origins_are_refused_as_by_rest(gate: GatewayHarness) -> None:
    assert (await post(gate, b"{}", host="rebound.example")).status_code == 421
    assert (await post(gate, b"{}", origin="https://elsewhere.example")).status_code == 403


async def test_requests_without_a_key_are_refused(gate: GatewayHarness) -> None:
    for path in ("/mcp", "/mcp/paint", "/mcp/nobody"):
        answer = await gate.http.post(f"{gate.url}{path}", json={}, headers=ACCEPT)
        assert answer.status_code == 401
        assert "Bearer" in answer.headers["www-authenticate"]


async def test_an_endpoint_of_no_upstream_is_not_found(gate: GatewayHarness) -> None:
    answer = await post(gate, b"{}", path="/mcp/plian")
    assert answer.status_code == 404
    assert "There is no upstream of this name. Did you mean 'plain'?" in answer.json()["error"]["message"]


async def test_the_suggestion_for_an_unknown_endpoint_is_an_upstream_that_the_key_may_use(gate: GatewayHarness) -> None:
    _, key = await gate.ringback.app.services.api_keys.create_key(
        "bob", name="test", scopes=DEFAULT_SCOPES, upstreams=frozenset({"library"})
    )
    answer = await post(gate, b"{}", path="/mcp/plian", authorization=f"Bearer {key}")
    assert answer.status_code == 404
    assert "Did you mean" not in answer.json()["error"]["message"]


async def test_during_shutdown_sessions_end_and_clients_receive_retry_later(tmp_path: Path) -> None:
    async with (
        running_gateway(tmp_path, only={"paint"}) as gate,
        gate.open_legacy_session() as session,
        session.open_event_stream() as stream,
    ):
        gate.ringback.app.mcp.close()
        with pytest.raises(AssertionError, match="ended"):
            await stream.read_message()
        answer = await post(gate, b"{}")
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
