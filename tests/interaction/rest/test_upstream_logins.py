"""Logins to upstreams over REST, with a scripted authorization server."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from ringback.domain.erasure import ErasureState
from ringback.domain.errors import UnknownLogin
from ringback.domain.login_waits import NO_TOKENS_VERSION
from ringback.domain.ports import Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.upstream_logins import SHARED_OWNER, CredentialsScope, LoginFailed, LoginFailure, UpstreamTokens
from ringback.services.upstream_logins import LOGIN_SECONDS, OPEN_LOGINS_MAX, START_RATE
from tests.support import login_flow
from tests.support.builders import make_call
from tests.support.examples import ALICE
from tests.support.login_flow import ACCESS_TOKEN, CODE, ISSUER
from tests.support.service import PUBLIC_URL, ServiceUnderTest, running_service

LOOPBACK = "http://127.0.0.1:4711/callback"
FRONT_END = "https://app.example/signed-in"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    hosted = {"mine": CredentialsScope.PRINCIPAL, "ours": CredentialsScope.SHARED}
    async with running_service(tmp_path, hosted=hosted, login_redirect_urls=[FRONT_END]) as running:
        yield running


@pytest.fixture
async def operator(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))


async def start(client: httpx.AsyncClient, upstream: str = "mine", **body: Any) -> dict[str, Any]:
    answer = await client.post(f"/v1/upstreams/{upstream}/login", json={"redirect_uri": LOOPBACK, **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


def redirect(started: dict[str, Any], **query: str) -> str:
    """Where the authorization server sends the browser."""
    state = parse_qs(urlsplit(str(started["authorization_url"])).query)["state"][0]
    return f"{started['redirect_uri']}?{urlencode({'state': state, 'code': CODE} | query)}"


async def complete(client: httpx.AsyncClient, redirected_to: str, upstream: str = "mine") -> httpx.Response:
    return await client.post(f"/v1/upstreams/{upstream}/login/complete", json={"redirected_to": redirected_to})


async def stored(service: ServiceUnderTest, upstream: str, owner: str) -> UpstreamTokens | None:
    return await service.store.read(lambda tx: tx.upstream_tokens.get(upstream, Principal(owner)))


async def login_state(client: httpx.AsyncClient, upstream: str) -> dict[str, Any]:
    listed = (await client.get("/v1/upstreams")).json()["upstreams"]
    (state,) = [each["login"] for each in listed if each["name"] == upstream]
    return state


async def test_a_principal_signs_in_with_its_own_login(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    started = await start(alice, scope="read write")
    completed = await complete(alice, redirect(started))

    assert started | {"login_id": "", "expires_at": ""} == {
        "login_id": "",
        "upstream": "mine",
        "owner": "principal",
        "authorization_url": started["authorization_url"],
        "redirect_uri": LOOPBACK,
        "scope": "read write",
        "expires_at": "",
    }
    assert completed.status_code == 200
    assert completed.json() | {"expires_at": ""} == {
        "upstream": "mine",
        "owner": "principal",
        "scope": "read write",
        "expires_at": "",
    }
    tokens = await stored(service, "mine", "alice")
    assert tokens is not None
    assert (tokens.access_token, tokens.resource, tokens.logged_in_by) == (
        ACCESS_TOKEN,
        "https://mine.example/mcp",
        "alice",
    )
    assert await stored(service, "mine", SHARED_OWNER) is None


async def test_the_list_of_upstreams_shows_each_caller_its_own_login(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    service.connections["mine"].last_error = "login_required"
    before = await login_state(alice, "mine")
    await complete(alice, redirect(await start(alice, scope="read")))
    after = await login_state(alice, "mine")

    url = f"{PUBLIC_URL}/login/mine"
    empty = {"owner": "principal", "scope": None, "expires_at": None, "login_url": url}
    assert before == {"state": "required", **empty}
    assert after | {"expires_at": None} == {"state": "signed_in", **empty, "scope": "read"}
    assert await login_state(bob, "mine") == before
    assert await login_state(alice, "git") == {
        "state": "none",
        "owner": None,
        "scope": None,
        "expires_at": None,
        "login_url": None,
    }


async def test_an_operator_signs_in_once_for_all_principals(
    service: ServiceUnderTest, operator: httpx.AsyncClient, alice: httpx.AsyncClient
) -> None:
    refused = await alice.post("/v1/upstreams/ours/login", json={})
    completed = await complete(operator, redirect(await start(operator, "ours")), "ours")

    assert (refused.status_code, refused.json()["scope"]) == (403, "admin")
    assert completed.json()["owner"] == "shared"
    assert (await login_state(alice, "ours"))["state"] == "signed_in"
    tokens = await stored(service, "ours", SHARED_OWNER)
    assert tokens is not None
    assert tokens.logged_in_by == "operator"


async def test_only_the_key_that_started_a_login_completes_it_and_only_once(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    another_key = await service.create_client("alice")
    url = redirect(await start(alice))

    answers = [await complete(client, url) for client in (bob, another_key, alice, alice)]

    assert [answer.status_code for answer in answers] == [404, 404, 200, 404]
    assert {answer.json()["type"] for answer in answers if answer.status_code == 404} == {"/problems/unknown-login"}
    assert service.login_flow.codes == [CODE]


async def test_a_login_is_completed_at_its_own_upstream_only(
    alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    started = await start(operator, "ours")

    assert (await complete(operator, redirect(started), "mine")).status_code == 404
    assert (await complete(operator, redirect(started), "ours")).status_code == 200


async def test_of_two_concurrent_completions_one_exchanges_the_code(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    url = redirect(await start(alice))

    answers = await asyncio.gather(*(complete(alice, url) for _ in range(5)))

    assert sorted(answer.status_code for answer in answers) == [200, 404, 404, 404, 404]
    assert service.login_flow.codes == [CODE]


async def test_the_janitor_removes_expired_logins(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    await start(alice)
    await service.run_janitor()
    before = service.count_rows()["upstream_logins"]
    service.clock.advance(LOGIN_SECONDS)
    await service.run_janitor()

    assert (before, service.count_rows()["upstream_logins"]) == (1, 0)


async def test_a_login_expires(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    url = redirect(await start(alice))
    service.clock.advance(LOGIN_SECONDS)

    assert (await complete(alice, url)).status_code == 404


async def test_a_login_of_a_revoked_key_is_not_completed(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    url = redirect(await start(alice))
    service.login_flow.exchange_gate = asyncio.Event()
    completing = asyncio.create_task(complete(alice, url))
    await service.login_flow.exchange_began.wait()
    (key,) = [key for key in await service.services.api_keys.list_keys() if key.principal == "alice"]
    await service.services.api_keys.revoke_key(key.id)
    service.login_flow.exchange_gate.set()

    assert (await completing).status_code == 404
    assert await stored(service, "mine", "alice") is None


@pytest.mark.parametrize("upstream", ["mine", "ours"])
async def test_a_login_in_flight_of_an_erased_principal_without_a_key_stores_no_tokens(
    service: ServiceUnderTest, upstream: str
) -> None:
    """The principal of an access token has no key that the erasure could delete."""
    logins, erasures = service.services.upstream_logins, service.services.erasures
    carol = Caller(principal=Principal("carol"), scopes=frozenset({Scope.ADMIN}))
    started = await logins.start_login(carol, upstream, redirect_uri=LOOPBACK)
    state = parse_qs(urlsplit(started.authorization_url).query)["state"][0]
    service.login_flow.exchange_gate = asyncio.Event()
    completing = asyncio.create_task(logins.complete_login(carol, upstream, f"{LOOPBACK}?state={state}&code={CODE}"))
    await service.login_flow.exchange_began.wait()
    erasure = await erasures.erase_principal(replace(carol, principal=Principal("operator")), "carol", cancel=False)
    service.login_flow.exchange_gate.set()
    with pytest.raises(UnknownLogin):
        await completing

    assert erasure.state is ErasureState.FINISHED
    assert service.count_rows()["upstream_tokens"] == 0


@pytest.mark.parametrize("failure", [None, LoginFailed(LoginFailure.REFUSED, "Start it again.")])
async def test_a_login_that_ended_leaves_no_row(
    service: ServiceUnderTest, alice: httpx.AsyncClient, failure: LoginFailed | None
) -> None:
    service.login_flow.exchange_failure = failure
    await complete(alice, redirect(await start(alice)))

    assert service.count_rows()["upstream_logins"] == 0


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"iss": "https://evil.example"}, "mismatch"),
        ({"iss": ISSUER + "/"}, "mismatch"),
        ({"code": "", "error": "access_denied", "error_description": "<script>canary</script>"}, "denied"),
        ({"code": "", "error": "server_error", "error_uri": "https://canary.example"}, "refused"),
        ({"error": "access_denied"}, "denied"),
    ],
)
async def test_a_redirect_with_an_error_or_of_another_issuer_ends_the_login_without_the_servers_words(
    service: ServiceUnderTest, alice: httpx.AsyncClient, query: dict[str, str], reason: str
) -> None:
    started = await start(alice)

    refused = await complete(alice, redirect(started, **query))

    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/login-failed")
    assert refused.json()["reason"] == reason
    assert "canary" not in refused.text
    assert service.login_flow.codes == []
    assert (await complete(alice, redirect(started))).status_code == 404


async def test_a_server_that_announces_its_issuer_must_send_it(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    service.login_flow.requires_issuer = True

    assert (await complete(alice, redirect(await start(alice)))).json()["reason"] == "mismatch"
    assert (await complete(alice, redirect(await start(alice), iss=ISSUER))).status_code == 200


@pytest.mark.parametrize(
    "redirected_to",
    [
        "https://us.example/",
        "x",
        "https://us.example/?state=s",
        "?state=s&state=t&code=c",
        "?code=c",
        "http://[::1/?state=s&code=c",
    ],
)
async def test_a_url_that_is_no_redirect_is_refused_with_words(alice: httpx.AsyncClient, redirected_to: str) -> None:
    refused = await complete(alice, redirected_to)

    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/invalid-request")


@pytest.mark.parametrize(
    ("redirect_uri", "redirected_to", "status_code"),
    [
        ("http://127.0.0.1:4711/callback/mine", "http://127.0.0.1:4711/callback/ours", 409),
        ("http://127.0.0.1:4711/callback/mine", "http://127.0.0.1:4711/", 409),
        (None, f"{PUBLIC_URL}/login/callback/ours", 409),
        (FRONT_END, "http://behind.a.proxy/", 200),
        (LOOPBACK, "", 200),
    ],
)
async def test_a_redirect_to_another_path_is_of_another_login_but_for_front_ends(
    alice: httpx.AsyncClient, redirect_uri: str | None, redirected_to: str, status_code: int
) -> None:
    started = await start(alice, redirect_uri=redirect_uri)
    completed = await complete(alice, redirected_to + redirect(started).removeprefix(started["redirect_uri"]))

    assert completed.status_code == status_code


@pytest.mark.parametrize("redirect_uri", [LOOPBACK, FRONT_END, None])
async def test_a_browser_may_come_back_to_loopback_to_a_configured_url_and_to_the_services_own_page(
    service: ServiceUnderTest, alice: httpx.AsyncClient, redirect_uri: str | None
) -> None:
    started = await start(alice, redirect_uri=redirect_uri)

    assert started["redirect_uri"] == (redirect_uri or f"{PUBLIC_URL}/login/callback/mine")


async def test_a_browser_may_come_back_to_no_other_place(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    refused = await alice.post("/v1/upstreams/mine/login", json={"redirect_uri": "https://evil.example/"})

    assert refused.status_code == 422
    assert service.login_flow.requests == []


async def test_upstreams_without_logins_and_unknown_ones_are_refused(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    limited = await service.create_client("alice", upstreams=frozenset({"git"}))

    without = await alice.post("/v1/upstreams/git/login")
    unknown = await alice.post("/v1/upstreams/none/login")
    hidden = await limited.post("/v1/upstreams/mine/login")

    assert (without.status_code, without.json()["reason"]) == (409, "not_offered")
    assert (unknown.status_code, hidden.status_code) == (404, 404)
    assert hidden.json()["detail"] == unknown.json()["detail"].replace("none", "mine")


async def test_failures_of_the_authorization_server_are_problems_with_a_reason(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    service.login_flow.begin_failure = LoginFailed(LoginFailure.UNSUPPORTED, "It has no PKCE.")
    unsupported = await alice.post("/v1/upstreams/mine/login")
    service.login_flow.begin_failure = LoginFailed(LoginFailure.UNREACHABLE, "Try again later.")
    unreachable = await alice.post("/v1/upstreams/mine/login")
    service.login_flow.begin_failure = None
    service.login_flow.exchange_failure = LoginFailed(LoginFailure.REFUSED, "Start it again.")
    refused = await complete(alice, redirect(await start(alice)))

    assert (unsupported.status_code, unsupported.json()["reason"]) == (409, "unsupported")
    assert (unreachable.status_code, unreachable.json()["type"]) == (503, "/problems/login-unavailable")
    assert (refused.status_code, refused.json()["reason"], refused.json()["detail"]) == (
        409,
        "refused",
        "Start it again.",
    )


async def test_a_principal_has_ten_open_logins_and_starts_a_limited_number_before_any_network(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    for _ in range(OPEN_LOGINS_MAX):
        await start(alice)
    refused = await alice.post("/v1/upstreams/mine/login", json={"scope": "read"})
    after_refusal = len(service.login_flow.requests)
    await start(bob)
    service.clock.advance(LOGIN_SECONDS)
    await start(alice)

    assert (refused.status_code, refused.json()["quota"]) == (429, "open_logins")
    assert after_refusal == OPEN_LOGINS_MAX


async def test_a_principal_that_starts_logins_in_a_loop_is_slowed_down(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    service.login_flow.begin_failure = LoginFailed(LoginFailure.UNREACHABLE, "Try again later.")
    for _ in range(int(START_RATE.burst)):
        await alice.post("/v1/upstreams/mine/login")
    refused = await alice.post("/v1/upstreams/mine/login")

    assert (refused.status_code, refused.json()["quota"]) == (429, "login_starts")
    assert int(refused.headers["retry-after"]) > 0
    assert len(service.login_flow.requests) == START_RATE.burst


async def test_signing_out_deletes_and_revokes_the_callers_tokens_only(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    for client in (alice, bob):
        await complete(client, redirect(await start(client)))

    answers = [await alice.delete("/v1/upstreams/mine/login") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [204, 204]
    assert await stored(service, "mine", "alice") is None
    assert await stored(service, "mine", "bob") is not None
    assert [tokens.owner for tokens in service.login_flow.revoked] == ["alice"]


async def test_a_second_login_replaces_the_tokens_and_outdates_a_refresh_that_is_on_its_way(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await complete(alice, redirect(await start(alice, scope="read")))
    first = await stored(service, "mine", "alice")
    assert first is not None
    await alice.delete("/v1/upstreams/mine/login")
    service.clock.advance(1)
    await complete(alice, redirect(await start(alice, scope="write")))
    second = await stored(service, "mine", "alice")

    assert second is not None
    assert (second.scope, second.version > first.version) == ("write", True)
    assert not await service.store.write(lambda tx: tx.upstream_tokens.save(first, expected_version=first.version))


async def test_a_second_login_revokes_the_grant_of_another_client_and_no_grant_of_its_own(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    for client_id in ("first", "second", "second"):
        service.login_flow.client_id = client_id
        await complete(alice, redirect(await start(alice)))
    await service.login_flow.revocation_began.wait()

    assert [tokens.client.client_id for tokens in service.login_flow.revoked] == ["first"]


async def test_the_erasure_of_a_principal_revokes_its_logins_and_no_others(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    for client in (alice, bob):
        await complete(client, redirect(await start(client)))
    erased = await operator.delete("/v1/principals/alice")
    await service.login_flow.revocation_began.wait()

    assert erased.status_code == 200
    assert [tokens.owner for tokens in service.login_flow.revoked] == ["alice"]


async def test_a_login_asks_for_the_scope_that_the_upstream_asked_for_last(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await complete(alice, redirect(await start(alice, scope="read")))
    await require_scope(service, "read write")
    state = await login_state(alice, "mine")
    started = await start(alice)
    await complete(alice, redirect(started))

    assert state["state"] == "required"
    assert started["scope"] == "read write"
    assert (await login_state(alice, "mine"))["state"] == "signed_in"


async def require_scope(service: ServiceUnderTest, scope: str) -> None:
    tokens = await stored(service, "mine", "alice")
    assert tokens is not None
    stepped = replace(tokens, required_scope=scope, version=tokens.version + 1)
    assert await service.store.write(lambda tx: tx.upstream_tokens.save(stepped, expected_version=tokens.version))


async def test_tokens_that_cannot_be_refreshed_are_shown_as_expired(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    service.login_flow.refresh_token = None
    await complete(alice, redirect(await start(alice)))
    service.clock.advance(3600)

    assert (await login_state(alice, "mine"))["state"] == "expired"


async def test_the_audit_log_says_who_signed_in_and_out(
    alice: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="ringback.audit")
    await complete(alice, redirect(await start(alice)))
    await complete(alice, redirect(await start(alice), error="access_denied"))
    await alice.delete("/v1/upstreams/mine/login")

    said = [record.__dict__ for record in caplog.records if record.name == "ringback.audit"]
    assert [each["msg"] for each in said] == [
        "audit.login_started",
        "audit.login_completed",
        "audit.login_started",
        "audit.login_failed",
        "audit.login_ended",
    ]
    assert {(each["principal"], each["upstream"]) for each in said} == {("alice", "mine")}


async def test_no_secret_of_a_login_is_in_logs_errors_or_the_database(
    service: ServiceUnderTest, alice: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    started = await start(alice)
    open_login = b"".join(path.read_bytes() for path in service.folder.rglob("*") if path.is_file())
    texts = [(await complete(alice, redirect(started, iss="https://evil.example"))).text]
    texts.append((await complete(alice, redirect(await start(alice)))).text)
    texts.append((await alice.get("/v1/upstreams")).text)
    texts.extend(str(record.__dict__) for record in caplog.records)
    tokens = await stored(service, "mine", "alice")
    texts.append(repr(tokens))
    completed = b"".join(path.read_bytes() for path in service.folder.rglob("*") if path.is_file())

    secrets = (
        CODE,
        login_flow.VERIFIER,
        login_flow.REFRESH_TOKEN,
        login_flow.CLIENT_SECRET,
        ACCESS_TOKEN,
        "canary-state",
    )
    assert tokens is not None
    assert [each for each in secrets if each in "".join(texts)] == []
    assert [each for each in secrets if each.encode() in open_login + completed] == []


async def test_a_reload_resumes_calls_that_wait_for_logins_that_are_not_used_any_more(
    service: ServiceUnderTest, operator: httpx.AsyncClient
) -> None:
    waits = [("ours", ALICE), ("mine", ALICE), ("ours", SHARED_OWNER), ("git", SHARED_OWNER), ("mine", SHARED_OWNER)]

    async def add(tx: Transaction) -> None:
        for upstream, owner in waits:
            call = make_call(upstream=upstream)
            await tx.calls.insert(call)
            await tx.login_waits.add(call.id, upstream, owner, tokens_version=NO_TOKENS_VERSION)

    async def take_resumption(tx: Transaction) -> tuple[str, str] | None:
        if (found := await tx.login_waits.find_next_resumption()) is None:
            return None
        await tx.login_waits.remove_resumption(found)
        return found.upstream, found.owner

    await service.store.write(add)
    assert (await operator.post("/v1/upstreams/reload")).status_code == 200
    resumed = {await service.store.write(take_resumption) for _ in waits}
    assert resumed == {("ours", ALICE), ("mine", SHARED_OWNER), ("git", SHARED_OWNER), None}
