"""Authorization at the MCP endpoints: tokens and keys, sessions, upstreams, hosts and origins."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.principal import Scope
from tests.support.application import PUBLIC_URL, running_application
from tests.support.mcp_wire import JsonRpcMessages
from tests.support.oauth_service import ALL_SCOPES, OAuthService

pytestmark = pytest.mark.requirement("R25")

MCP = f"{PUBLIC_URL}/mcp"
WELL_KNOWN = f"{PUBLIC_URL}/.well-known/oauth-protected-resource"
ECHO: dict[str, Any] = {"name": "echo", "arguments": {"text": "hello"}}


def read_refusal(answer: httpx.Response, problem: str) -> str:
    """The message of a JSON-RPC error, which clients show; they show no other body."""
    assert answer.headers["content-type"] == "application/json"
    message = answer.json()
    assert (message["jsonrpc"], message["id"], message["error"]["data"]["problem"]) == ("2.0", None, problem)
    return message["error"]["message"]


@pytest.mark.parametrize("resource", ["/mcp", "/mcp/git", "/mcp/no-such-upstream"])
async def test_without_a_token_each_endpoint_says_where_to_get_one(guarded: OAuthService, resource: str) -> None:
    for answer in (
        await guarded.post_modern(resource, "tools/list"),
        await guarded.post_legacy(resource, "initialize", {}, bearer=None),
        await guarded.http.get(resource),
        await guarded.http.delete(resource),
    ):
        assert answer.status_code == 401
        assert f'resource_metadata="{WELL_KNOWN}{resource}"' in answer.headers["www-authenticate"]
        assert "ringback keys create" in read_refusal(answer, "unauthenticated")


@pytest.mark.parametrize(
    "claims", [{"aud": "https://other.example/mcp"}, {"aud": MCP, "exp": 1}, {"aud": f"{MCP}/time"}]
)
async def test_a_token_for_another_endpoint_is_rejected(guarded: OAuthService, claims: dict[str, Any]) -> None:
    refused = await guarded.post_modern(
        "/mcp/git", "tools/list", bearer=guarded.issuer.sign_token(scope=ALL_SCOPES, **claims)
    )

    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]


@pytest.mark.parametrize("audience", [PUBLIC_URL, MCP, f"{MCP}/git"])
async def test_a_token_for_this_endpoint_calls_its_tools(guarded: OAuthService, audience: str) -> None:
    token = guarded.issuer.sign_token(aud=audience, scope=ALL_SCOPES)

    listed = await guarded.post_modern("/mcp/git", "tools/list", bearer=token)
    called = await guarded.post_modern("/mcp/git", "tools/call", ECHO, bearer=token)

    assert "echo" in {tool["name"] for tool in listed.json()["result"]["tools"]}
    result = await JsonRpcMessages(called).read_response()
    assert json.loads(result["content"][0]["text"]) == {"text": "hello"}


async def test_a_missing_scope_is_named_in_the_header_in_both_eras(guarded: OAuthService) -> None:
    token = guarded.issuer.sign_token(aud=MCP, scope="ringback:read")
    session = await guarded.open_legacy_session("/mcp/git", bearer=token)

    modern = await guarded.post_modern("/mcp/git", "tools/call", ECHO, bearer=token)
    legacy = await guarded.post_legacy("/mcp/git", "tools/call", ECHO, bearer=token, session_id=session)

    for refused in (modern, legacy):
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, -32001)
        assert refused.json()["id"] == json.loads(refused.request.content)["id"]
        assert refused.headers["www-authenticate"] == (
            f'Bearer error="insufficient_scope", scope="ringback:calls", resource_metadata="{WELL_KNOWN}/mcp/git"'
        )
    assert (await guarded.post_modern("/mcp/git", "tools/list", bearer=token)).status_code == 200


async def test_a_key_or_token_without_any_scope_may_only_introduce_itself(guarded: OAuthService) -> None:
    token = guarded.issuer.sign_token(aud=MCP)
    session = await guarded.open_legacy_session("/mcp/git", bearer=token)
    headers = {"mcp-session-id": session, "authorization": f"Bearer {token}", "accept": "text/event-stream"}

    assert (await guarded.post_modern("/mcp/git", "server/discover", bearer=token)).status_code == 200
    assert (await guarded.post_modern("/mcp/git", "tools/list", bearer=token)).status_code == 403
    assert (await guarded.http.get("/mcp/git", headers=headers)).status_code == 403


async def test_malformed_messages_are_left_to_the_protocol(guarded: OAuthService) -> None:
    token = guarded.issuer.sign_token(aud=MCP)
    for body in (b"{", b"[]", b'{"id":1,"method":7}', b"\xff"):
        answer = await guarded.http.post(
            "/mcp/git",
            content=body,
            headers={
                "authorization": f"Bearer {token}",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": "2026-07-28",
            },
        )
        assert answer.status_code == 400, body


async def test_no_token_of_a_client_reaches_an_upstream(guarded: OAuthService) -> None:
    token = guarded.issuer.sign_token(aud=MCP, scope=ALL_SCOPES)
    key = await guarded.create_api_key("alice")
    before = len(guarded.upstream.received)

    for bearer in (token, key):
        await guarded.post_modern("/mcp/git", "tools/call", ECHO, bearer=bearer)
        session = await guarded.open_legacy_session("/mcp/git", bearer=bearer)
        await guarded.post_legacy("/mcp/git", "tools/call", ECHO, bearer=bearer, session_id=session)

    seen = b"\n".join(guarded.upstream.received[before:])
    assert seen.count(b'"tools/call"') >= 4
    for secret in (token, key, token.rpartition(".")[2]):
        assert secret.encode() not in seen
    assert b"authorization" not in seen.lower()


# -- sessions --------------------------------------------------------------------------------------------------------------


async def test_a_foreign_session_gets_the_error_of_an_unknown_one(guarded: OAuthService) -> None:
    mine, same = await guarded.create_api_key("alice"), await guarded.create_api_key("alice")
    foreign = await guarded.create_api_key("bob")
    narrower = await guarded.create_api_key("alice", upstreams=frozenset({"git"}))
    token = guarded.issuer.sign_token(aud=MCP, scope=ALL_SCOPES, sub="alice")
    session = await guarded.open_legacy_session("/mcp/git", bearer=mine)

    async def ping(bearer: str, session_id: str) -> httpx.Response:
        return await guarded.post_legacy("/mcp/git", "ping", {}, bearer=bearer, session_id=session_id)

    unknown = await ping(foreign, "no-such-session")
    assert unknown.status_code == 404
    for bearer in (foreign, narrower, token):
        refused = await ping(bearer, session)
        assert (refused.status_code, refused.content) == (404, unknown.content)
        ended = await guarded.http.delete(
            "/mcp/git", headers={"authorization": f"Bearer {bearer}", "mcp-session-id": session}
        )
        assert ended.status_code == 404
    assert (await ping(same, session)).status_code == 200


async def test_a_session_of_one_endpoint_is_unknown_at_another(guarded: OAuthService) -> None:
    key = await guarded.create_api_key("alice")
    session = await guarded.open_legacy_session("/mcp/git", bearer=key)

    elsewhere = await guarded.post_legacy("/mcp/time", "ping", {}, bearer=key, session_id=session)

    assert elsewhere.status_code == 404


async def test_a_key_that_was_revoked_ends_its_sessions_at_the_next_request(guarded: OAuthService) -> None:
    keys = guarded.service.app.services.api_keys
    revoked, text = await keys.create_key("carol", name="test", scopes=frozenset({Scope.READ}), upstreams=None)
    session = await guarded.open_legacy_session("/mcp/git", bearer=text)
    await keys.revoke_key(revoked.id)

    answer = await guarded.post_legacy("/mcp/git", "ping", {}, bearer=text, session_id=session)

    assert answer.status_code == 401


# -- upstreams hidden from a key -------------------------------------------------------------------------------------------


async def test_a_forbidden_upstream_gets_the_error_of_an_unknown_one(guarded: OAuthService) -> None:
    key = await guarded.create_api_key("alice", upstreams=frozenset({"git"}))

    forbidden = await guarded.post_modern("/mcp/time", "tools/list", bearer=key)
    unknown = await guarded.post_modern("/mcp/no-such-upstream", "tools/list", bearer=key)

    assert (forbidden.status_code, forbidden.content) == (404, unknown.content)
    assert (await guarded.post_modern("/mcp/git", "tools/list", bearer=key)).status_code == 200


async def test_the_joined_endpoint_shows_only_the_upstreams_of_the_key(guarded: OAuthService) -> None:
    key = await guarded.create_api_key("alice", upstreams=frozenset({"git"}))

    listed = await guarded.post_modern("/mcp", "tools/list", bearer=key)
    forbidden = await guarded.post_modern("/mcp", "tools/call", {**ECHO, "name": "time__echo"}, bearer=key)
    unknown = await guarded.post_modern("/mcp", "tools/call", {**ECHO, "name": "tame__echo"}, bearer=key)

    names = {tool["name"] for tool in listed.json()["result"]["tools"]}
    assert "git__echo" in names
    assert not {name for name in names if name.startswith("time__")}
    assert forbidden.json()["error"]["code"] == unknown.json()["error"]["code"] == -32602
    assert forbidden.text.replace("time__", "tame__") == unknown.text


async def test_a_limited_key_reads_a_task_at_another_upstream_and_changes_nothing(guarded: OAuthService) -> None:
    full = await guarded.create_api_key("alice")
    limited = await guarded.create_api_key("alice", upstreams=frozenset({"git"}))
    body = {"upstream": "time", "tool": ECHO["name"], "arguments": ECHO["arguments"]}
    started = await guarded.http.post("/v1/calls", json=body, headers={"authorization": f"Bearer {full}"})
    call_id = started.json()["call"]["id"]
    answers = {"r1.1": {"action": "decline"}}

    read = await guarded.post_modern("/mcp", "tasks/get", {"taskId": call_id}, bearer=limited)
    refused = [
        await guarded.post_modern("/mcp", "tasks/cancel", {"taskId": call_id}, bearer=limited),
        await guarded.post_modern(
            "/mcp", "tools/call", {"name": "ringback_cancel_call", "arguments": {"call_id": call_id}}, bearer=limited
        ),
        await guarded.post_modern(
            "/mcp",
            "tools/call",
            {"name": "ringback_answer_call", "arguments": {"call_id": call_id, "responses": answers}},
            bearer=limited,
        ),
    ]

    assert "result" in read.json()
    for answer in refused:
        assert "at the upstream 'time', and the key is limited to other upstreams" in answer.text


# -- hosts and origins -----------------------------------------------------------------------------------------------------


async def test_a_rebound_host_is_rejected_before_authentication(guarded: OAuthService) -> None:
    for path in ("/mcp", "/mcp/git", "/.well-known/oauth-protected-resource/mcp"):
        refused = await guarded.post_modern(path, "tools/list", headers={"host": "evil.example"})

        assert refused.status_code == 421
        assert "foreign-host" in refused.text


async def test_a_page_of_another_origin_is_rejected(guarded: OAuthService) -> None:
    key = await guarded.create_api_key("alice")

    for origin in ("https://evil.example", "null", f"{PUBLIC_URL}.evil.example"):
        refused = await guarded.post_modern("/mcp/git", "tools/list", bearer=key, headers={"origin": origin})
        assert refused.status_code == 403
        assert read_refusal(refused, "foreign-origin")

    own = await guarded.post_modern("/mcp/git", "tools/list", bearer=key, headers={"origin": PUBLIC_URL})
    assert own.status_code == 200


async def test_a_page_of_an_allowed_origin_may_speak_mcp_and_log_in(guarded: OAuthService) -> None:
    page = {"origin": "https://console.example"}
    preflight = await guarded.http.options(
        "/mcp/git",
        headers={
            **page,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, content-type, mcp-protocol-version, mcp-session-id, mcp-method",
        },
    )
    refused = await guarded.post_modern("/mcp/git", "tools/list", headers=page)
    served = await guarded.post_modern(
        "/mcp/git", "tools/list", bearer=await guarded.create_api_key("alice"), headers=page
    )

    assert preflight.status_code == 200
    for answer in (preflight, refused, served):
        assert answer.headers["access-control-allow-origin"] == "https://console.example"
    assert "www-authenticate" in refused.headers["access-control-expose-headers"].lower()
    assert served.status_code == 200


# -- without an issuer, and without authentication -------------------------------------------------------------------------


async def test_with_keys_alone_the_401_says_how_to_send_one(tmp_path: Path) -> None:
    async with running_application(tmp_path) as service:
        for path in ("/mcp", "/mcp/git"):
            refused = await service.get(path)

            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert "Authorization: Bearer rbk_" in read_refusal(refused, "unauthenticated")


async def test_with_authentication_off_all_clients_share_one_principal(tmp_path: Path, guarded: OAuthService) -> None:
    async with running_application(tmp_path, auth="off", host="127.0.0.1") as service:
        transport = httpx.ASGITransport(service.app.api)
        async with httpx.AsyncClient(transport=transport, base_url=PUBLIC_URL) as http:
            open_door = OAuthService(service=service, issuer=guarded.issuer, upstream=guarded.upstream, http=http)
            session = await open_door.open_legacy_session("/mcp", bearer=None)
            pinged = [
                await open_door.post_legacy("/mcp", "ping", {}, bearer=bearer, session_id=session)
                for bearer in (None, "whatever")
            ]

    assert [answer.status_code for answer in pinged] == [200, 200]
