"""Logins to upstreams over REST, with a scripted authorization server."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from ringback.domain.erasure import ErasureState
from ringback.domain.errors import UnknownLogin
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.upstream_logins import SHARED_OWNER, LoginFailed, LoginFailure
from ringback.services.logins.upstream_logins import LOGIN_SECONDS, OPEN_LOGINS_MAX, START_RATE
from tests.support.limits import WAIT_SECONDS
from tests.support.login_flow import ACCESS_TOKEN, CODE
from tests.support.rest_logins import (
    LOOPBACK,
    build_redirect,
    complete_login,
    read_login_state,
    read_stored_tokens,
    running_login_service,
    start_login,
)
from tests.support.service import PUBLIC_URL, ServiceUnderTest


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_login_service(tmp_path) as running:
        yield running


@pytest.fixture
async def operator(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("operator", scopes=frozenset({Scope.ADMIN}))


async def test_a_principal_signs_in_with_its_own_login(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    started = await start_login(alice, scope="read write")
    completed = await complete_login(alice, build_redirect(started))

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
    tokens = await read_stored_tokens(service, "mine", "alice")
    assert tokens is not None
    assert (tokens.access_token, tokens.resource, tokens.logged_in_by) == (
        ACCESS_TOKEN,
        "https://mine.example/mcp",
        "alice",
    )
    assert await read_stored_tokens(service, "mine", SHARED_OWNER) is None


async def test_the_list_of_upstreams_shows_each_caller_its_own_login(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    service.connections["mine"].last_error = "login_required"
    before = await read_login_state(alice, "mine")
    await complete_login(alice, build_redirect(await start_login(alice, scope="read")))
    after = await read_login_state(alice, "mine")

    url = f"{PUBLIC_URL}/login/mine"
    empty = {"owner": "principal", "scope": None, "expires_at": None, "login_url": url}
    assert before == {"state": "required", **empty}
    assert after | {"expires_at": None} == {"state": "signed_in", **empty, "scope": "read"}
    assert await read_login_state(bob, "mine") == before
    assert await read_login_state(alice, "git") == {
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
    completed = await complete_login(operator, build_redirect(await start_login(operator, "ours")), "ours")

    assert (refused.status_code, refused.json()["scope"]) == (403, "admin")
    assert completed.json()["owner"] == "shared"
    assert (await read_login_state(alice, "ours"))["state"] == "signed_in"
    tokens = await read_stored_tokens(service, "ours", SHARED_OWNER)
    assert tokens is not None
    assert tokens.logged_in_by == "operator"


async def test_only_the_key_that_started_a_login_completes_it_and_only_once(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    another_key = await service.create_client("alice")
    url = build_redirect(await start_login(alice))

    answers = [await complete_login(client, url) for client in (bob, another_key, alice, alice)]

    assert [answer.status_code for answer in answers] == [404, 404, 200, 404]
    assert {answer.json()["type"] for answer in answers if answer.status_code == 404} == {"/problems/unknown-login"}
    assert service.login_flow.codes == [CODE]


async def test_a_login_is_completed_at_its_own_upstream_only(
    alice: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    started = await start_login(operator, "ours")

    assert (await complete_login(operator, build_redirect(started), "mine")).status_code == 404
    assert (await complete_login(operator, build_redirect(started), "ours")).status_code == 200


async def test_of_two_concurrent_completions_one_exchanges_the_code(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    url = build_redirect(await start_login(alice))

    answers = await asyncio.gather(*(complete_login(alice, url) for _ in range(5)))

    assert sorted(answer.status_code for answer in answers) == [200, 404, 404, 404, 404]
    assert service.login_flow.codes == [CODE]


async def test_the_janitor_removes_expired_logins(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    await start_login(alice)
    await service.run_janitor()
    before = service.count_rows()["upstream_logins"]
    service.clock.advance(LOGIN_SECONDS)
    await service.run_janitor()

    assert (before, service.count_rows()["upstream_logins"]) == (1, 0)


async def test_a_login_expires(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    url = build_redirect(await start_login(alice))
    service.clock.advance(LOGIN_SECONDS)

    assert (await complete_login(alice, url)).status_code == 404


async def test_a_login_whose_authorization_server_is_silent_does_not_delay_a_shutdown(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    service.login_flow.begin_gate = asyncio.Event()
    starting = asyncio.create_task(alice.post("/v1/upstreams/mine/login", json={"redirect_uri": LOOPBACK}))
    await service.login_flow.begin_began.wait()
    service.services.lifecycle.begin_shutdown()
    async with asyncio.timeout(WAIT_SECONDS):
        answer = await starting

    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/shutting-down")
    assert service.count_rows()["upstream_logins"] == 0


async def test_a_login_of_a_revoked_key_is_not_completed(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    url = build_redirect(await start_login(alice))
    service.login_flow.exchange_gate = asyncio.Event()
    completing = asyncio.create_task(complete_login(alice, url))
    await service.login_flow.exchange_began.wait()
    (key,) = [key for key in await service.services.api_keys.list_keys() if key.principal == "alice"]
    await service.services.api_keys.revoke_key(key.id)
    service.login_flow.exchange_gate.set()

    assert (await completing).status_code == 404
    assert await read_stored_tokens(service, "mine", "alice") is None


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
    await complete_login(alice, build_redirect(await start_login(alice)))

    assert service.count_rows()["upstream_logins"] == 0


async def test_a_principal_has_ten_open_logins_and_starts_a_limited_number_before_any_network(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    for _ in range(OPEN_LOGINS_MAX):
        await start_login(alice)
    refused = await alice.post("/v1/upstreams/mine/login", json={"scope": "read"})
    after_refusal = len(service.login_flow.requests)
    await start_login(bob)
    service.clock.advance(LOGIN_SECONDS)
    await start_login(alice)

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
