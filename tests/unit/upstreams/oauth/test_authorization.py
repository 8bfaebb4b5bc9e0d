"""A login begins with an authorization URL and ends with checked tokens; hostile metadata begin none."""

import hashlib
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from ringback.domain.upstream_logins import GrantedTokens, LoginFailed, LoginFailure
from tests.support.authorization_flow import LoginFlowStage, parse_parameters, with_login
from tests.support.scripted_authorization import (
    CLIENT_DOCUMENT,
    CONFIG,
    ISSUER,
    REDIRECT,
    RESOURCE_DOCUMENT,
    RESOURCE_METADATA,
    SERVER_DOCUMENT,
    SERVER_METADATA,
    TOKEN,
    TOKEN_DOCUMENT,
    UPSTREAM,
    answer_json,
)


def answer_html(_: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, text="<html>")


HOSTILE_TOKENS: dict[str, tuple[Any, LoginFailure]] = {
    "refused": (answer_json({"error": "invalid_grant"}, 400), LoginFailure.REFUSED),
    "refused with 200": (answer_json({"error": "bad_verification_code"}), LoginFailure.REFUSED),
    "an unknown error": (answer_json({"error": "<script>"}, 400), LoginFailure.INVALID_RESPONSE),
    "an object as the error": (answer_json({"error": {"code": 400}}, 400), LoginFailure.INVALID_RESPONSE),
    "a crash": (answer_json({}, 500), LoginFailure.UNREACHABLE),
    "a redirect": (answer_json({}, 302, {"location": "https://evil.example/"}), LoginFailure.INVALID_RESPONSE),
    "HTML": (answer_html, LoginFailure.INVALID_RESPONSE),
    "a list": (answer_json([TOKEN_DOCUMENT]), LoginFailure.INVALID_RESPONSE),
    "another type": (answer_json({**TOKEN_DOCUMENT, "token_type": "DPoP"}), LoginFailure.INVALID_RESPONSE),
    "no type": (answer_json({"access_token": "a"}), LoginFailure.INVALID_RESPONSE),
    "control characters": (answer_json({**TOKEN_DOCUMENT, "access_token": "a\r\nb"}), LoginFailure.INVALID_RESPONSE),
    "a huge token": (answer_json({**TOKEN_DOCUMENT, "access_token": "a" * 17_000}), LoginFailure.INVALID_RESPONSE),
    "a huge body": (answer_json({**TOKEN_DOCUMENT, "x": "a" * 70_000}), LoginFailure.INVALID_RESPONSE),
    "no token": (answer_json({"token_type": "Bearer"}), LoginFailure.INVALID_RESPONSE),
}
_ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register"}


async def test_a_login_begins_with_a_url_that_has_state_challenge_resource_and_scope() -> None:
    flow = LoginFlowStage()
    started = await flow.begin()
    digest = hashlib.sha256(started.request.code_verifier.encode()).digest()

    assert started.authorization_url.startswith("https://login.example/authorize?")
    assert parse_parameters(started) == {
        "response_type": "code",
        "client_id": "client-1",
        "redirect_uri": REDIRECT,
        "state": started.state,
        "code_challenge": urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
        "resource": UPSTREAM,
        "scope": "tools",
    }
    assert started.request.issuer == ISSUER
    assert len(started.state) == len(started.request.code_verifier) == 43


async def test_two_logins_have_different_states_and_verifiers() -> None:
    flow = LoginFlowStage()
    first, second = await flow.begin(), await flow.begin()

    assert first.state != second.state
    assert first.request.code_verifier != second.request.code_verifier


async def test_nothing_secret_is_in_the_repr_of_a_started_login() -> None:
    started = await LoginFlowStage().begin()

    assert started.state not in repr(started)
    assert started.request.code_verifier not in repr(started)


async def test_the_query_of_an_authorization_endpoint_is_kept() -> None:
    flow = LoginFlowStage()
    flow.servers.change_document(
        SERVER_METADATA, SERVER_DOCUMENT, authorization_endpoint="https://login.example/authorize?tenant=acme"
    )

    assert parse_parameters(await flow.begin())["tenant"] == "acme"


@pytest.mark.parametrize(
    ("wanted", "configured", "challenge", "supported", "expected"),
    [
        ("mine", "theirs", "challenged", ["supported"], "mine"),
        (None, "theirs", "challenged", ["supported"], "theirs"),
        (None, None, "challenged", ["supported"], "challenged"),
        (None, None, None, ["read", "write"], "read write"),
        (None, None, None, None, None),
        (None, None, "sc\\\\ope", ["supported"], "supported"),
        (None, None, None, [f"scope-{n}" for n in range(101)], None),
    ],
)
async def test_the_scope_comes_from_the_first_who_names_one(
    wanted: str | None, configured: str | None, challenge: str | None, supported: list[str] | None, expected: str | None
) -> None:
    flow = LoginFlowStage(with_login(scope=configured))
    named = "" if challenge is None else f', scope="{challenge}"'
    header = {"www-authenticate": f'Bearer resource_metadata="{RESOURCE_METADATA}"{named}'}
    flow.servers.answers[UPSTREAM] = answer_json({}, 401, header)
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, scopes_supported=supported)

    assert parse_parameters(await flow.begin(scope=wanted)).get("scope") == expected


async def test_a_refresh_token_is_asked_for_where_the_server_offers_offline_access() -> None:
    flow = LoginFlowStage()
    flow.servers.change_document(SERVER_METADATA, SERVER_DOCUMENT, scopes_supported=["tools", "offline_access"])
    parameters = parse_parameters(await flow.begin())

    assert parameters["scope"] == "tools offline_access"
    assert parameters["prompt"] == "consent"


async def test_a_code_is_exchanged_with_verifier_and_resource() -> None:
    flow = LoginFlowStage()
    started = await flow.begin()
    granted = await flow.flow.exchange_code("git", started.request, code="code-1")

    assert granted == GrantedTokens(
        access_token="access-2", refresh_token="refresh-2", scope="tools", lifetime_seconds=3600.0
    )
    assert flow.servers.list_forms() == [
        {
            "grant_type": "authorization_code",
            "code": "code-1",
            "redirect_uri": REDIRECT,
            "code_verifier": started.request.code_verifier,
            "resource": UPSTREAM,
            "client_id": "client-1",
        }
    ]


async def test_a_client_that_the_server_does_not_know_any_more_is_forgotten() -> None:
    flow = LoginFlowStage()
    flow.servers.answers[TOKEN] = answer_json({"error": "invalid_client", "error_description": "hostile words"}, 401)
    with pytest.raises(LoginFailed, match="invalid_client") as raised:
        await flow.exchange()

    assert raised.value.failure is LoginFailure.REFUSED
    assert "hostile" not in str(raised.value)
    assert flow.clients.stored == {}


@pytest.mark.parametrize(("answer", "failure"), HOSTILE_TOKENS.values(), ids=HOSTILE_TOKENS)
async def test_a_hostile_token_response_ends_the_login(answer: Any, failure: LoginFailure) -> None:
    flow = LoginFlowStage()
    flow.servers.answers[TOKEN] = answer
    with pytest.raises(LoginFailed) as raised:
        await flow.exchange(code="secret-code")

    assert raised.value.failure is failure
    assert "secret-code" not in str(raised.value)
    assert not any("evil" in url for url in flow.servers.list_urls())


@pytest.mark.parametrize(
    ("expires_in", "lifetime"),
    [
        (60, 60.0),
        ("90", 90.0),
        (-5, None),
        (0, None),
        ("nan", None),
        (1e300, 10 * 366 * 86_400.0),
        ("soon", None),
        (True, None),
        ([], None),
    ],
)
async def test_the_lifetime_of_a_token_is_bounded(expires_in: Any, lifetime: float | None) -> None:
    flow = LoginFlowStage()
    flow.servers.change_document(TOKEN, TOKEN_DOCUMENT, expires_in=expires_in)

    assert (await flow.exchange()).lifetime_seconds == lifetime


async def test_a_code_for_an_upstream_whose_url_changed_is_not_exchanged() -> None:
    started = await LoginFlowStage().begin()
    moved = LoginFlowStage(replace(CONFIG, url="https://elsewhere.example/mcp"))
    with pytest.raises(LoginFailed) as raised:
        await moved.flow.exchange_code("git", started.request, code="code-1")

    assert raised.value.failure is LoginFailure.NOT_OFFERED
    assert moved.servers.requests == []


async def test_a_code_is_exchanged_by_the_rules_of_the_upstream_for_which_the_login_began() -> None:
    issuer = "http://127.0.0.1:9000"  # which the configuration of the second upstream alone allows
    flow = LoginFlowStage(replace(CONFIG, name="first"), with_login(issuer=issuer))
    urls = {name: f"{issuer}/{name}" for name in ("authorize", "token", "register")}
    document = {f"{name}_endpoint": urls[kind] for name, kind in _ENDPOINTS.items()}
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, authorization_servers=[issuer])
    flow.servers.answers |= {
        f"{issuer}/.well-known/oauth-authorization-server": answer_json(
            {**SERVER_DOCUMENT, "issuer": issuer, **document}
        ),
        urls["register"]: answer_json(CLIENT_DOCUMENT, 201),
        urls["token"]: answer_json(TOKEN_DOCUMENT),
    }

    assert (await flow.exchange()).access_token == "access-2"
