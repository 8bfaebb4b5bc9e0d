"""A login begins with an authorization URL and ends with checked tokens; hostile metadata begin none."""

import hashlib
from base64 import urlsafe_b64encode
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from ringback.domain.login_urls import client_metadata_url
from ringback.domain.upstream_logins import GrantedTokens, LoginFailed, LoginFailure, StartedAuthorization
from ringback.upstreams.config import ClientCredentials, LoginSettings, UpstreamConfig
from ringback.upstreams.oauth import authorization
from ringback.upstreams.oauth.authorization import OAuthLoginFlow
from tests.support.clock import FakeClock
from tests.support.logins import make_tokens
from tests.support.scripted_authorization import (
    CLIENT_DOCUMENT,
    CONFIG,
    ISSUER,
    REDIRECT,
    REGISTER,
    RESOURCE_DOCUMENT,
    RESOURCE_METADATA,
    REVOKE,
    SERVER_DOCUMENT,
    SERVER_METADATA,
    TOKEN,
    TOKEN_DOCUMENT,
    UPSTREAM,
    MemoryClients,
    ScriptedServers,
    answer_json,
    hang,
)

PUBLIC_URL = "https://ringback.example"
METADATA_URL = "https://ringback.example/login/git/client.json"
LOOPBACK = "http://127.0.0.1:7123/callback"
PARENT_METADATA = "https://mcp.example/.well-known/oauth-protected-resource"
LOCAL = "http://127.0.0.1:8000/mcp"


class Flow:
    def __init__(self, *configs: UpstreamConfig, is_public: bool = False) -> None:
        self.servers = ScriptedServers()
        self.clients = MemoryClients()
        self.flow = OAuthLoginFlow(
            lambda: configs or (CONFIG,),
            self.servers.make_clients(),
            self.clients,
            clock=FakeClock(),
            get_client_metadata_url=partial(client_metadata_url, PUBLIC_URL) if is_public else None,
        )

    async def begin(self, *, redirect_uri: str = REDIRECT, scope: str | None = None) -> StartedAuthorization:
        return await self.flow.begin_authorization("git", redirect_uri=redirect_uri, scope=scope)

    async def begin_and_fail(self) -> LoginFailed:
        with pytest.raises(LoginFailed) as raised:
            await self.begin()
        return raised.value

    async def exchange(self, code: str = "code-1") -> GrantedTokens:
        return await self.flow.exchange_code("git", (await self.begin()).request, code=code)


def parse_parameters(started: StartedAuthorization) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(started.authorization_url).query).items()}


def with_login(**settings: Any) -> UpstreamConfig:
    return replace(CONFIG, login=LoginSettings(**settings))


# -- the authorization URL -------------------------------------------------------------------------------------------------


async def test_a_login_begins_with_a_url_that_has_state_challenge_resource_and_scope() -> None:
    flow = Flow()
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
    flow = Flow()
    first, second = await flow.begin(), await flow.begin()

    assert first.state != second.state
    assert first.request.code_verifier != second.request.code_verifier


async def test_nothing_secret_is_in_the_repr_of_a_started_login() -> None:
    started = await Flow().begin()

    assert started.state not in repr(started)
    assert started.request.code_verifier not in repr(started)


async def test_the_query_of_an_authorization_endpoint_is_kept() -> None:
    flow = Flow()
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
    flow = Flow(with_login(scope=configured))
    named = "" if challenge is None else f', scope="{challenge}"'
    header = {"www-authenticate": f'Bearer resource_metadata="{RESOURCE_METADATA}"{named}'}
    flow.servers.answers[UPSTREAM] = answer_json({}, 401, header)
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, scopes_supported=supported)

    assert parse_parameters(await flow.begin(scope=wanted)).get("scope") == expected


async def test_a_refresh_token_is_asked_for_where_the_server_offers_offline_access() -> None:
    flow = Flow()
    flow.servers.change_document(SERVER_METADATA, SERVER_DOCUMENT, scopes_supported=["tools", "offline_access"])
    parameters = parse_parameters(await flow.begin())

    assert parameters["scope"] == "tools offline_access"
    assert parameters["prompt"] == "consent"


# -- discovery -------------------------------------------------------------------------------------------------------------


async def test_without_a_challenge_the_metadata_are_found_at_the_well_known_urls() -> None:
    flow = Flow()
    flow.servers.answers[UPSTREAM] = answer_json({}, 401)
    await flow.begin()

    assert RESOURCE_METADATA in flow.servers.list_urls()


async def test_an_upstream_without_resource_metadata_is_its_own_issuer() -> None:
    flow = Flow()
    flow.servers.answers[UPSTREAM] = answer_json({}, 401)
    del flow.servers.answers[RESOURCE_METADATA]
    flow.servers.answers["https://mcp.example/.well-known/oauth-authorization-server"] = answer_json(
        {**SERVER_DOCUMENT, "issuer": "https://mcp.example"}
    )
    started = await flow.begin()

    assert started.request.issuer == "https://mcp.example"
    assert started.request.resource == UPSTREAM


@pytest.mark.parametrize(
    "well_known",
    [
        "https://login.example/.well-known/oauth-authorization-server/realm",
        "https://login.example/.well-known/openid-configuration/realm",
        "https://login.example/realm/.well-known/openid-configuration",
    ],
)
async def test_the_metadata_of_an_issuer_with_a_path_are_found_at_every_specified_url(well_known: str) -> None:
    flow = Flow()
    flow.servers.change_document(
        RESOURCE_METADATA, RESOURCE_DOCUMENT, authorization_servers=["https://login.example/realm"]
    )
    flow.servers.answers[well_known] = answer_json({**SERVER_DOCUMENT, "issuer": "https://login.example/realm"})

    assert (await flow.begin()).request.issuer == "https://login.example/realm"


async def test_the_first_usable_authorization_server_of_four_is_taken() -> None:
    flow = Flow()
    flow.servers.change_document(
        RESOURCE_METADATA,
        RESOURCE_DOCUMENT,
        authorization_servers=["https://gone.example", "http://plain.example", ISSUER],
    )

    assert (await flow.begin()).request.issuer == ISSUER


async def test_a_fifth_authorization_server_is_not_tried() -> None:
    flow = Flow()
    gone = [f"https://gone-{n}.example" for n in range(4)]
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, authorization_servers=[*gone, ISSUER])

    assert (await flow.begin_and_fail()).failure is LoginFailure.NOT_OFFERED


@pytest.mark.parametrize("resource", ["https://mcp.example", "https://mcp.example/"])
@pytest.mark.parametrize("named", [RESOURCE_METADATA, PARENT_METADATA])
async def test_a_parent_is_the_resource_of_the_upstream_if_its_own_metadata_say_so(resource: str, named: str) -> None:
    flow = Flow()
    header = {"www-authenticate": f'Bearer resource_metadata="{named}"'}
    flow.servers.answers[UPSTREAM] = answer_json({}, 401, header)
    for url in (RESOURCE_METADATA, PARENT_METADATA):
        flow.servers.change_document(url, RESOURCE_DOCUMENT, resource=resource)

    assert (await flow.begin()).request.resource == resource


@pytest.mark.parametrize("own", [None, UPSTREAM])
async def test_a_parent_that_only_the_upstream_names_is_not_its_resource(own: str | None) -> None:
    """The token would be valid for the other tenants of the host too."""
    flow = Flow()
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, resource="https://mcp.example/")
    if own is not None:
        flow.servers.change_document(PARENT_METADATA, RESOURCE_DOCUMENT, resource=own)

    assert (await flow.begin_and_fail()).failure is LoginFailure.UNSAFE


async def test_the_authorization_servers_of_a_parent_are_those_that_its_own_metadata_name() -> None:
    flow = Flow()
    named = {"resource": "https://mcp.example/", "authorization_servers": ["https://evil.example"]}
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, **named)
    flow.servers.change_document(PARENT_METADATA, RESOURCE_DOCUMENT, resource="https://mcp.example/")

    assert (await flow.begin()).request.issuer == ISSUER
    assert not any("evil" in url for url in flow.servers.list_urls())


async def test_an_upstream_that_requires_nothing_offers_no_login() -> None:
    flow = Flow()
    flow.servers.answers[UPSTREAM] = answer_json({})
    del flow.servers.answers[RESOURCE_METADATA]

    assert (await flow.begin_and_fail()).failure is LoginFailure.NOT_OFFERED


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, headers={"Authorization": "Bearer configured"}),
        replace(CONFIG, oauth=ClientCredentials(token_url=TOKEN, client_id="c", client_secret="s")),
        replace(CONFIG, name="other"),
    ],
    ids=["a header", "client credentials", "another upstream"],
)
async def test_nobody_signs_in_where_the_configuration_has_credentials_or_no_upstream(config: UpstreamConfig) -> None:
    flow = Flow(config)

    assert (await flow.begin_and_fail()).failure is LoginFailure.NOT_OFFERED
    assert flow.servers.requests == []


HOSTILE_RESOURCES: dict[str, tuple[dict[str, Any], LoginFailure]] = {
    "another resource": ({"resource": "https://bank.example/mcp"}, LoginFailure.UNSAFE),
    "a longer path": ({"resource": "https://mcp.example/mcp2"}, LoginFailure.UNSAFE),
    "an invalid resource": ({"resource": "https://[bad"}, LoginFailure.UNSAFE),
    "a huge resource": ({"resource": f"{UPSTREAM}?{'x' * 5000}"}, LoginFailure.UNSAFE),
    "a resource with a fragment": ({"resource": f"{UPSTREAM}#x"}, LoginFailure.UNSAFE),
    "no resource": ({"resource": None}, LoginFailure.INVALID_RESPONSE),
    "no servers": ({"authorization_servers": []}, LoginFailure.INVALID_RESPONSE),
    "a plain issuer": ({"authorization_servers": ["http://login.example"]}, LoginFailure.UNSAFE),
    "no URL as issuer": ({"authorization_servers": ["javascript:alert(1)"]}, LoginFailure.UNSAFE),
}


@pytest.mark.parametrize(("changes", "failure"), HOSTILE_RESOURCES.values(), ids=HOSTILE_RESOURCES)
async def test_resource_metadata_of_a_hostile_upstream_begin_no_login(
    changes: dict[str, Any], failure: LoginFailure
) -> None:
    flow = Flow()
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, **changes)

    assert (await flow.begin_and_fail()).failure is failure


HOSTILE_SERVERS: dict[str, tuple[dict[str, Any], LoginFailure]] = {
    "another issuer": ({"issuer": "https://evil.example"}, LoginFailure.UNSAFE),
    "no issuer": ({"issuer": None}, LoginFailure.INVALID_RESPONSE),
    "no PKCE": ({"code_challenge_methods_supported": None}, LoginFailure.UNSUPPORTED),
    "plain PKCE": ({"code_challenge_methods_supported": ["plain"]}, LoginFailure.UNSUPPORTED),
    "no browser": ({"grant_types_supported": ["client_credentials"]}, LoginFailure.UNSUPPORTED),
    "a plain token endpoint": ({"token_endpoint": "http://login.example/token"}, LoginFailure.UNSAFE),
    "no token endpoint": ({"token_endpoint": None}, LoginFailure.UNSAFE),
    "a script": ({"authorization_endpoint": "javascript:alert(1)"}, LoginFailure.UNSAFE),
    "a loopback page": ({"authorization_endpoint": "http://127.0.0.1:1/authorize"}, LoginFailure.UNSAFE),
    "a line break": ({"authorization_endpoint": "https://login.example/\r\nx: y"}, LoginFailure.UNSAFE),
    "a fragment": ({"authorization_endpoint": "https://login.example/authorize#x"}, LoginFailure.UNSAFE),
    "a user": ({"token_endpoint": "https://a:b@login.example/token"}, LoginFailure.UNSAFE),
    "a parameter of ours": ({"authorization_endpoint": "https://login.example/a?state=1"}, LoginFailure.UNSAFE),
    "no registration": ({"registration_endpoint": None}, LoginFailure.UNSUPPORTED),
}


@pytest.mark.parametrize(("changes", "failure"), HOSTILE_SERVERS.values(), ids=HOSTILE_SERVERS)
async def test_metadata_of_a_hostile_authorization_server_begin_no_login(
    changes: dict[str, Any], failure: LoginFailure
) -> None:
    flow = Flow()
    flow.servers.change_document(SERVER_METADATA, SERVER_DOCUMENT, **changes)

    assert (await flow.begin_and_fail()).failure is failure


@pytest.mark.parametrize("url", [RESOURCE_METADATA, SERVER_METADATA, REGISTER])
async def test_a_server_that_fails_now_is_unreachable_and_no_other_url_is_tried(url: str) -> None:
    flow = Flow()
    flow.servers.answers[url] = answer_json({}, 503)

    assert (await flow.begin_and_fail()).failure is LoginFailure.UNREACHABLE
    assert flow.servers.list_urls()[-1] == url


@pytest.mark.parametrize("url", [RESOURCE_METADATA, SERVER_METADATA])
async def test_a_redirect_of_metadata_is_not_followed(url: str) -> None:
    flow = Flow()
    flow.servers.answers[url] = answer_json({}, 302, {"location": "https://evil.example/"})

    await flow.begin_and_fail()
    assert not any("evil" in each for each in flow.servers.list_urls())


async def test_a_configured_issuer_is_the_only_one() -> None:
    assert (await Flow(with_login(issuer=ISSUER)).begin()).request.issuer == ISSUER
    assert (await Flow(with_login(issuer="https://own.example")).begin_and_fail()).failure is LoginFailure.UNSAFE


async def test_an_upstream_on_loopback_may_have_its_authorization_server_there() -> None:
    flow = Flow(replace(CONFIG, url=LOCAL))
    issuer = "http://127.0.0.1:9000"
    flow.servers.answers |= {
        LOCAL: answer_json({}, 401),
        "http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp": answer_json(
            {"resource": LOCAL, "authorization_servers": [issuer]}
        ),
        f"{issuer}/.well-known/oauth-authorization-server": answer_json(
            {
                **SERVER_DOCUMENT,
                "issuer": issuer,
                "authorization_endpoint": f"{issuer}/authorize",
                "token_endpoint": f"{issuer}/token",
            }
        ),
    }

    assert (await flow.begin()).request.token_endpoint == f"{issuer}/token"


# -- clients ---------------------------------------------------------------------------------------------------------------


async def test_a_client_is_registered_once_and_used_again() -> None:
    flow = Flow()
    await flow.begin()
    await flow.begin()

    (document,) = flow.servers.list_documents()
    assert document == {
        "client_name": "Ringback",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
        "scope": "tools",
    }


async def test_a_client_for_loopback_is_registered_at_each_login_and_not_kept() -> None:
    flow = Flow(is_public=True)
    flow.servers.change_document(SERVER_METADATA, SERVER_DOCUMENT, client_id_metadata_document_supported=True)
    flow.servers.change_document(REGISTER, CLIENT_DOCUMENT, redirect_uris=[LOOPBACK])
    for _ in range(2):
        await flow.begin(redirect_uri=LOOPBACK)

    assert [document["application_type"] for document in flow.servers.list_documents()] == ["native", "native"]
    assert flow.clients.stored == {}


async def test_a_metadata_document_is_the_client_where_the_server_accepts_one() -> None:
    flow = Flow(is_public=True)
    flow.servers.change_document(SERVER_METADATA, SERVER_DOCUMENT, client_id_metadata_document_supported=True)

    assert parse_parameters(await flow.begin())["client_id"] == METADATA_URL
    assert flow.servers.list_documents() == []


async def test_a_configured_client_replaces_all_others() -> None:
    flow = Flow(with_login(client_id="by-hand", client_secret="s3cret", issuer=ISSUER), is_public=True)
    flow.servers.change_document(
        SERVER_METADATA,
        SERVER_DOCUMENT,
        client_id_metadata_document_supported=True,
        token_endpoint_auth_methods_supported=["client_secret_post"],
    )
    await flow.exchange()

    assert flow.servers.list_documents() == []
    assert flow.servers.list_forms()[0]["client_secret"] == "s3cret"


async def test_a_configured_secret_goes_to_no_server_that_the_upstream_names_instead_of_its_issuer() -> None:
    flow = Flow(with_login(client_id="by-hand", client_secret="s3cret", issuer=ISSUER))
    evil = "https://evil.example"
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, authorization_servers=[evil])

    assert (await flow.begin_and_fail()).failure is LoginFailure.UNSAFE
    assert not any(url.startswith(evil) for url in flow.servers.list_urls())


HOSTILE_CLIENTS: dict[str, dict[str, Any]] = {
    "no id": {"client_id": None},
    "another redirect": {"redirect_uris": ["https://evil.example/callback"]},
    "a line break in the secret": {"client_secret": "a\nb"},
    "a line break in the id": {"client_id": "a\r\nb"},
    "a method with keys": {"token_endpoint_auth_method": "private_key_jwt"},
    "a method without its secret": {"token_endpoint_auth_method": "client_secret_basic"},
    "a huge id": {"client_id": "x" * 5000},
}


@pytest.mark.parametrize("changes", HOSTILE_CLIENTS.values(), ids=HOSTILE_CLIENTS)
async def test_a_registration_that_is_not_usable_begins_no_login(changes: dict[str, Any]) -> None:
    flow = Flow()
    flow.servers.change_document(REGISTER, CLIENT_DOCUMENT, **changes)

    assert (await flow.begin_and_fail()).failure is LoginFailure.INVALID_RESPONSE
    assert flow.clients.stored == {}


# -- the code --------------------------------------------------------------------------------------------------------------


async def test_a_code_is_exchanged_with_verifier_and_resource() -> None:
    flow = Flow()
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
    flow = Flow()
    flow.servers.answers[TOKEN] = answer_json({"error": "invalid_client", "error_description": "hostile words"}, 401)
    with pytest.raises(LoginFailed, match="invalid_client") as raised:
        await flow.exchange()

    assert raised.value.failure is LoginFailure.REFUSED
    assert "hostile" not in str(raised.value)
    assert flow.clients.stored == {}


def answer_html(_: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, text="<html>")


HOSTILE_TOKENS: dict[str, tuple[Any, LoginFailure]] = {
    "refused": (answer_json({"error": "invalid_grant"}, 400), LoginFailure.REFUSED),
    "an unknown error": (answer_json({"error": "<script>"}, 400), LoginFailure.INVALID_RESPONSE),
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


@pytest.mark.parametrize(("answer", "failure"), HOSTILE_TOKENS.values(), ids=HOSTILE_TOKENS)
async def test_a_hostile_token_response_ends_the_login(answer: Any, failure: LoginFailure) -> None:
    flow = Flow()
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
    flow = Flow()
    flow.servers.change_document(TOKEN, TOKEN_DOCUMENT, expires_in=expires_in)

    assert (await flow.exchange()).lifetime_seconds == lifetime


async def test_a_code_for_an_upstream_whose_url_changed_is_not_exchanged() -> None:
    started = await Flow().begin()
    moved = Flow(replace(CONFIG, url="https://elsewhere.example/mcp"))
    with pytest.raises(LoginFailed) as raised:
        await moved.flow.exchange_code("git", started.request, code="code-1")

    assert raised.value.failure is LoginFailure.NOT_OFFERED
    assert moved.servers.requests == []


async def test_a_code_is_exchanged_by_the_rules_of_the_upstream_for_which_the_login_began() -> None:
    issuer = "http://127.0.0.1:9000"  # which the configuration of the second upstream alone allows
    flow = Flow(replace(CONFIG, name="first"), with_login(issuer=issuer))
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


_ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register"}


# -- revocation ------------------------------------------------------------------------------------------------------------


async def test_both_tokens_are_revoked_the_refresh_token_first() -> None:
    flow = Flow()
    await flow.flow.revoke_tokens(make_tokens(resource=UPSTREAM, refresh_token="refresh-1"))

    assert [form["token"] for form in flow.servers.list_forms(REVOKE)] == ["refresh-1", "token-1"]


async def test_a_revocation_without_a_secret_is_repeated_with_an_empty_one_where_the_server_refuses_it() -> None:
    flow = Flow()
    flow.servers.answers[REVOKE] = lambda request: httpx2.Response(200 if b"client_secret=" in request.content else 400)
    await flow.flow.revoke_tokens(make_tokens(resource=UPSTREAM))

    sent = [request.content for request in flow.servers.requests if str(request.url) == REVOKE]
    assert [b"client_secret=" in content for content in sent] == [False, True]


@pytest.mark.parametrize("url", [SERVER_METADATA, REVOKE])
async def test_a_revocation_that_fails_raises_nothing(url: str) -> None:
    flow = Flow()

    def fail(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    flow.servers.answers[url] = fail
    await flow.flow.revoke_tokens(make_tokens(resource=UPSTREAM))


async def test_an_access_token_is_revoked_also_if_the_revocation_of_the_refresh_token_fails() -> None:
    flow = Flow()
    revoked: list[bytes] = []

    def fail_first(request: httpx2.Request) -> httpx2.Response:
        if b"refresh-1" in request.content:
            raise httpx2.ReadError("closed")
        revoked.append(request.content)
        return httpx2.Response(200)

    flow.servers.answers[REVOKE] = fail_first
    await flow.flow.revoke_tokens(make_tokens(resource=UPSTREAM, refresh_token="refresh-1"))

    assert len(revoked) == 1
    assert b"token-1" in revoked[0]


@pytest.mark.parametrize("url", [SERVER_METADATA, REVOKE])
async def test_a_revocation_that_hangs_ends_in_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "REVOKE_SECONDS", 0.01)
    flow = Flow()
    hang(flow.servers, url)
    await flow.flow.revoke_tokens(make_tokens(resource=UPSTREAM))

    assert flow.servers.list_urls().count(url) == 0  # it arrived, and was given up
