"""No credentials and no `ringback/` keys reach an upstream, and tokens for other audiences are refused."""

from collections.abc import AsyncGenerator, Generator
from typing import Any, Final

import pytest

from tests.interaction.gateway_hostile.conftest import asserting_no_errors
from tests.support.application import PUBLIC_URL
from tests.support.mcp_wire import Json, read_message_texts
from tests.support.oauth_service import ALL_SCOPES, OAuthService, running_oauth_service

pytestmark = pytest.mark.requirement("R30")

FOREIGN: Final = (
    "https://elsewhere.example",
    f"{PUBLIC_URL}/mcp/time",
    f"{PUBLIC_URL}.evil.example",
    f"{PUBLIC_URL}/mcpx",
)
COOKIE: Final = "cookie-that-proves-me"
SMUGGLED_HEADERS: Final = "smuggled-value"
OWN_TOKENS: Final[Json] = {
    "ringback/correlationId": f"{SMUGGLED_HEADERS}-1",
    "ringback/clientSessionId": f"{SMUGGLED_HEADERS}-2",
    "ringback/idempotencyKey": f"{SMUGGLED_HEADERS}-3",
    "ringback/unheardOf": {"deep": [f"{SMUGGLED_HEADERS}-4"]},
    "io.modelcontextprotocol/logLevel": "debug",
    "io.modelcontextprotocol/clientInfo": {"name": f"{SMUGGLED_HEADERS}-5", "version": "1"},
    "io.modelcontextprotocol/related-task": {"taskId": f"{SMUGGLED_HEADERS}-6"},
    "io.modelcontextprotocol/unheardOf": f"{SMUGGLED_HEADERS}-7",
    "progressToken": f"{SMUGGLED_HEADERS}-8",
    "progress_token": f"{SMUGGLED_HEADERS}-9",
}
ENDPOINTS: Final = (
    ("GET", "/v1/calls"),
    ("GET", "/v1/events"),
    ("GET", "/v1/upstreams"),
    ("GET", "/v1/events/stream"),
    ("POST", "/v1/resume"),
    ("GET", "/mcp"),
    ("POST", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/mcp/git"),
    ("POST", "/mcp/git"),
    ("DELETE", "/mcp/git"),
    ("POST", "/mcp/nobody"),
)


@pytest.fixture(scope="module")
async def guarded(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[OAuthService]:
    async with running_oauth_service(module_path_factory.mktemp("guarded")) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def nothing_unexpected(guarded: OAuthService) -> Generator[None]:
    del guarded  # checked before it is closed
    with asserting_no_errors():
        yield


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_a_token_for_another_audience_is_refused_at_every_endpoint(
    guarded: OAuthService, method: str, path: str
) -> None:
    good = guarded.issuer.sign_token(aud=f"{PUBLIC_URL}/mcp/time", scope=ALL_SCOPES)
    assert (await guarded.post_modern("/mcp/time", "tools/list", bearer=good)).status_code == 200
    for audience in FOREIGN:
        token = guarded.issuer.sign_token(aud=audience, scope=ALL_SCOPES)
        headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
        answer = await guarded.http.request(method, path, json={} if method == "POST" else None, headers=headers)
        assert answer.status_code == 401, audience
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert token not in answer.text


async def test_neither_credentials_nor_ringback_keys_reach_an_upstream(guarded: OAuthService) -> None:
    token = guarded.issuer.sign_token(aud=PUBLIC_URL, scope=ALL_SCOPES)
    before = len(guarded.upstream.received)
    headers: dict[str, str] = {
        "cookie": COOKIE,
        "proxy-authorization": COOKIE,
        "x-api-key": COOKIE,
        "forwarded": f"for={COOKIE}",
    }
    meta: Json = {
        **OWN_TOKENS,
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "mine/own": "passes",
    }
    requested: list[tuple[str, Json]] = [
        ("tools/list", {}),
        ("tools/call", {"name": "echo", "arguments": {"text": "x"}}),
        ("resources/read", {"uri": "book://1"}),
        ("prompts/get", {"name": "review"}),
    ]
    for method, params in requested:
        name: Any = params.get("name") or params.get("uri")
        sent = {**headers, "authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
        sent |= {"mcp-protocol-version": "2026-07-28", "mcp-method": method, **({"mcp-name": name} if name else {})}
        body: Json = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        await guarded.http.post("/mcp/git", json=body, headers=sent)
    session_id = await guarded.open_legacy_session("/mcp/git", bearer=token)
    params: Json = {"name": "echo", "arguments": {"text": "x"}, "_meta": {**OWN_TOKENS, "mine/own": "passes"}}
    await guarded.post_legacy("/mcp/git", "tools/call", params, bearer=token, session_id=session_id)
    observed = b"\n".join(guarded.upstream.received[before:])
    assert observed.count(b"mine/own") >= 2
    for secret in (token, COOKIE, SMUGGLED_HEADERS, '"ringback/', session_id, "authorization"):
        assert secret.encode() not in observed, secret


async def test_a_key_for_one_upstream_gets_unknown_for_every_other(guarded: OAuthService) -> None:
    key = await guarded.create_api_key("narrow", upstreams=frozenset({"time"}))
    session_id = await guarded.open_legacy_session("/mcp", bearer=key)

    async def requested(method: str, params: Json, path: str = "/mcp") -> list[tuple[int, str]]:
        today = await guarded.post_modern(path, method, params, bearer=key)
        before = await guarded.post_legacy("/mcp", method, params, bearer=key, session_id=session_id)
        return [(answer.status_code, read_message_texts(answer.text)) for answer in (today, before)]

    for method, forbidden, unknown in (
        ("tools/call", {"name": "git__echo"}, {"name": "gitt__echo"}),
        ("prompts/get", {"name": "git__x"}, {"name": "gitt__x"}),
    ):
        assert await requested(method, forbidden) == await requested(method, unknown)
    for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        assert all("git__" not in text for _, text in await requested(method, {}))
    headers = {"authorization": f"Bearer {key}"}
    requests: list[tuple[str, str, Json | None]] = [
        ("GET", "/v1/upstreams/{}/tools", None),
        ("POST", "/v1/calls", {"tool": "echo", "arguments": {}}),
        ("POST", "/v1/calls/adopt", {"task_id": "t"}),
    ]
    for method, path, body in requests:
        returned: list[tuple[int, str]] = []
        for name in ("git", "gxt"):
            named = None if body is None else {**body, "upstream": name}
            answer = await guarded.http.request(method, path.format(name), json=named, headers=headers)
            returned.append((answer.status_code, answer.text.replace(name, "IT")))
        assert returned[0] == returned[1]
    assert [
        each["name"] for each in (await guarded.http.get("/v1/upstreams", headers=headers)).json()["upstreams"]
    ] == ["time"]
    endpoints = [await guarded.post_modern(f"/mcp/{name}", "tools/list", {}, bearer=key) for name in ("git", "gxt")]
    assert endpoints[0].status_code == endpoints[1].status_code == 404
    assert endpoints[0].text == endpoints[1].text.replace("gxt", "git")
