"""Where the browser comes back from an authorization server, and what is refused there."""

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from ringback.domain.principal import Scope
from ringback.domain.upstream_logins import LoginFailed, LoginFailure
from tests.support.login_flow import ISSUER
from tests.support.rest_logins import (
    FRONT_END,
    FRONT_END_OF_EACH,
    LOOPBACK,
    build_redirect,
    complete_login,
    running_login_service,
    start_login,
)
from tests.support.service import PUBLIC_URL, ServiceUnderTest


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_login_service(tmp_path) as running:
        yield running


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
    started = await start_login(alice)

    refused = await complete_login(alice, build_redirect(started, **query))

    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/login-failed")
    assert refused.json()["reason"] == reason
    assert "canary" not in refused.text
    assert service.login_flow.codes == []
    assert (await complete_login(alice, build_redirect(started))).status_code == 404


async def test_a_server_that_announces_its_issuer_must_send_it(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    service.login_flow.requires_issuer = True

    assert (await complete_login(alice, build_redirect(await start_login(alice)))).json()["reason"] == "mismatch"
    assert (await complete_login(alice, build_redirect(await start_login(alice), iss=ISSUER))).status_code == 200


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
    refused = await complete_login(alice, redirected_to)

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
    started = await start_login(alice, redirect_uri=redirect_uri)
    completed = await complete_login(
        alice, redirected_to + build_redirect(started).removeprefix(started["redirect_uri"])
    )

    assert completed.status_code == status_code


async def test_the_state_alone_binds_a_redirect_to_its_login_at_a_front_end_with_one_redirect_uri(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    admin = await service.create_client("alice", scopes=frozenset({Scope.ADMIN}))
    mine = await start_login(alice, "mine", redirect_uri=FRONT_END)
    ours = await start_login(admin, "ours", redirect_uri=FRONT_END)

    mixed_up = await complete_login(admin, build_redirect(mine), "ours")
    assert (mixed_up.status_code, service.login_flow.codes) == (404, [])
    completed = [
        await complete_login(alice, build_redirect(mine)),
        await complete_login(admin, build_redirect(ours), "ours"),
    ]
    assert [(each.status_code, each.json()["upstream"]) for each in completed] == [(200, "mine"), (200, "ours")]


async def test_the_code_of_another_server_is_not_sent_to_a_hostile_one_if_each_upstream_has_a_redirect_uri(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    """The hostile server of `mine` sent the browser on to that of `ours`, with its own state; neither sends `iss`."""
    started = await start_login(alice, redirect_uri=FRONT_END_OF_EACH.format(upstream="mine"))
    mixed_up = build_redirect({**started, "redirect_uri": FRONT_END_OF_EACH.format(upstream="ours")})

    refused = await complete_login(alice, mixed_up)
    assert (refused.status_code, refused.json()["reason"], service.login_flow.codes) == (409, "mismatch", [])
    assert (await complete_login(alice, build_redirect(started))).status_code == 404, "it has ended"
    again = await start_login(alice, redirect_uri=FRONT_END_OF_EACH.format(upstream="mine"))
    assert (await complete_login(alice, build_redirect(again))).status_code == 200


@pytest.mark.parametrize("redirect_uri", ["https://app.example/signed-in?from=ours", FRONT_END_OF_EACH])
async def test_the_redirect_uri_of_another_upstream_is_refused(alice: httpx.AsyncClient, redirect_uri: str) -> None:
    refused = await alice.post("/v1/upstreams/mine/login", json={"redirect_uri": redirect_uri})

    assert refused.status_code == 422


@pytest.mark.parametrize("redirect_uri", [LOOPBACK, FRONT_END, None])
async def test_a_browser_may_come_back_to_loopback_to_a_configured_url_and_to_the_services_own_page(
    service: ServiceUnderTest, alice: httpx.AsyncClient, redirect_uri: str | None
) -> None:
    started = await start_login(alice, redirect_uri=redirect_uri)

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
    refused = await complete_login(alice, build_redirect(await start_login(alice)))

    assert (unsupported.status_code, unsupported.json()["reason"]) == (409, "unsupported")
    assert (unreachable.status_code, unreachable.json()["type"]) == (503, "/problems/login-unavailable")
    assert (refused.status_code, refused.json()["reason"], refused.json()["detail"]) == (
        409,
        "refused",
        "Start it again.",
    )
