"""Which authorization server a login uses; hostile metadata begin no login."""

from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.upstream_logins import LoginFailure
from ringback.upstreams.config import ClientCredentials, UpstreamConfig
from tests.support.authorization_flow import LOCAL, PARENT_METADATA, LoginFlowStage, with_login
from tests.support.scripted_authorization import (
    CONFIG,
    ISSUER,
    REGISTER,
    RESOURCE_DOCUMENT,
    RESOURCE_METADATA,
    SERVER_DOCUMENT,
    SERVER_METADATA,
    TOKEN,
    UPSTREAM,
    answer_json,
)

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


async def test_without_a_challenge_the_metadata_are_found_at_the_well_known_urls() -> None:
    flow = LoginFlowStage()
    flow.servers.answers[UPSTREAM] = answer_json({}, 401)
    await flow.begin()

    assert RESOURCE_METADATA in flow.servers.list_urls()


async def test_an_upstream_without_resource_metadata_is_its_own_issuer() -> None:
    flow = LoginFlowStage()
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
    flow = LoginFlowStage()
    flow.servers.change_document(
        RESOURCE_METADATA, RESOURCE_DOCUMENT, authorization_servers=["https://login.example/realm"]
    )
    flow.servers.answers[well_known] = answer_json({**SERVER_DOCUMENT, "issuer": "https://login.example/realm"})

    assert (await flow.begin()).request.issuer == "https://login.example/realm"


async def test_the_first_usable_authorization_server_of_four_is_taken() -> None:
    flow = LoginFlowStage()
    flow.servers.change_document(
        RESOURCE_METADATA,
        RESOURCE_DOCUMENT,
        authorization_servers=["https://gone.example", "http://plain.example", ISSUER],
    )

    assert (await flow.begin()).request.issuer == ISSUER


async def test_a_fifth_authorization_server_is_not_tried() -> None:
    flow = LoginFlowStage()
    gone = [f"https://gone-{n}.example" for n in range(4)]
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, authorization_servers=[*gone, ISSUER])

    assert (await flow.begin_and_fail()).failure is LoginFailure.NOT_OFFERED


@pytest.mark.parametrize("resource", ["https://mcp.example", "https://mcp.example/"])
@pytest.mark.parametrize("named", [RESOURCE_METADATA, PARENT_METADATA])
async def test_a_parent_is_the_resource_of_the_upstream_if_its_own_metadata_say_so(resource: str, named: str) -> None:
    flow = LoginFlowStage()
    header = {"www-authenticate": f'Bearer resource_metadata="{named}"'}
    flow.servers.answers[UPSTREAM] = answer_json({}, 401, header)
    for url in (RESOURCE_METADATA, PARENT_METADATA):
        flow.servers.change_document(url, RESOURCE_DOCUMENT, resource=resource)

    assert (await flow.begin()).request.resource == resource


@pytest.mark.parametrize("own", [None, UPSTREAM])
async def test_a_parent_that_only_the_upstream_names_is_not_its_resource(own: str | None) -> None:
    """The token would be valid for the other tenants of the host too."""
    flow = LoginFlowStage()
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, resource="https://mcp.example/")
    if own is not None:
        flow.servers.change_document(PARENT_METADATA, RESOURCE_DOCUMENT, resource=own)

    assert (await flow.begin_and_fail()).failure is LoginFailure.UNSAFE


async def test_the_authorization_servers_of_a_parent_are_those_that_its_own_metadata_name() -> None:
    flow = LoginFlowStage()
    named = {"resource": "https://mcp.example/", "authorization_servers": ["https://evil.example"]}
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, **named)
    flow.servers.change_document(PARENT_METADATA, RESOURCE_DOCUMENT, resource="https://mcp.example/")

    assert (await flow.begin()).request.issuer == ISSUER
    assert not any("evil" in url for url in flow.servers.list_urls())


async def test_an_upstream_that_requires_nothing_offers_no_login() -> None:
    flow = LoginFlowStage()
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
async def test_no_login_starts_where_the_configuration_has_credentials_or_no_upstream(config: UpstreamConfig) -> None:
    flow = LoginFlowStage(config)

    assert (await flow.begin_and_fail()).failure is LoginFailure.NOT_OFFERED
    assert flow.servers.requests == []


@pytest.mark.parametrize(("changes", "failure"), HOSTILE_RESOURCES.values(), ids=HOSTILE_RESOURCES)
async def test_resource_metadata_of_a_hostile_upstream_begin_no_login(
    changes: dict[str, Any], failure: LoginFailure
) -> None:
    flow = LoginFlowStage()
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, **changes)

    assert (await flow.begin_and_fail()).failure is failure


@pytest.mark.parametrize(("changes", "failure"), HOSTILE_SERVERS.values(), ids=HOSTILE_SERVERS)
async def test_metadata_of_a_hostile_authorization_server_begin_no_login(
    changes: dict[str, Any], failure: LoginFailure
) -> None:
    flow = LoginFlowStage()
    flow.servers.change_document(SERVER_METADATA, SERVER_DOCUMENT, **changes)

    assert (await flow.begin_and_fail()).failure is failure


@pytest.mark.parametrize("url", [RESOURCE_METADATA, SERVER_METADATA, REGISTER])
async def test_a_server_that_fails_now_is_unreachable_and_no_other_url_is_tried(url: str) -> None:
    flow = LoginFlowStage()
    flow.servers.answers[url] = answer_json({}, 503)

    assert (await flow.begin_and_fail()).failure is LoginFailure.UNREACHABLE
    assert flow.servers.list_urls()[-1] == url


@pytest.mark.parametrize("url", [RESOURCE_METADATA, SERVER_METADATA])
async def test_a_redirect_of_metadata_is_not_followed(url: str) -> None:
    flow = LoginFlowStage()
    flow.servers.answers[url] = answer_json({}, 302, {"location": "https://evil.example/"})

    await flow.begin_and_fail()
    assert not any("evil" in each for each in flow.servers.list_urls())


async def test_a_configured_issuer_is_the_only_one() -> None:
    assert (await LoginFlowStage(with_login(issuer=ISSUER)).begin()).request.issuer == ISSUER
    assert (
        await LoginFlowStage(with_login(issuer="https://own.example")).begin_and_fail()
    ).failure is LoginFailure.UNSAFE


async def test_an_upstream_on_loopback_may_have_its_authorization_server_there() -> None:
    flow = LoginFlowStage(replace(CONFIG, url=LOCAL))
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
