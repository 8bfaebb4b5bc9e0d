"""The client of a login: configured, a metadata document, or registered."""

from typing import Any

import pytest

from ringback.domain.upstream_logins import LoginFailure
from tests.support.authorization_flow import LOOPBACK, METADATA_URL, LoginFlowStage, parse_parameters, with_login
from tests.support.scripted_authorization import (
    CLIENT_DOCUMENT,
    ISSUER,
    REDIRECT,
    REGISTER,
    RESOURCE_DOCUMENT,
    RESOURCE_METADATA,
    SERVER_DOCUMENT,
    SERVER_METADATA,
)

HOSTILE_CLIENTS: dict[str, dict[str, Any]] = {
    "no id": {"client_id": None},
    "another redirect": {"redirect_uris": ["https://evil.example/callback"]},
    "a line break in the secret": {"client_secret": "a\nb"},
    "a line break in the id": {"client_id": "a\r\nb"},
    "a method with keys": {"token_endpoint_auth_method": "private_key_jwt"},
    "a method without its secret": {"token_endpoint_auth_method": "client_secret_basic"},
    "a huge id": {"client_id": "x" * 5000},
}


async def test_a_client_is_registered_once_and_used_again() -> None:
    flow = LoginFlowStage()
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
    flow = LoginFlowStage(is_public=True)
    flow.servers.change_document(SERVER_METADATA, SERVER_DOCUMENT, client_id_metadata_document_supported=True)
    flow.servers.change_document(REGISTER, CLIENT_DOCUMENT, redirect_uris=[LOOPBACK])
    for _ in range(2):
        await flow.begin(redirect_uri=LOOPBACK)

    assert [document["application_type"] for document in flow.servers.list_documents()] == ["native", "native"]
    assert flow.clients.stored == {}


async def test_a_metadata_document_is_the_client_where_the_server_accepts_one() -> None:
    flow = LoginFlowStage(is_public=True)
    flow.servers.change_document(SERVER_METADATA, SERVER_DOCUMENT, client_id_metadata_document_supported=True)

    assert parse_parameters(await flow.begin())["client_id"] == METADATA_URL
    assert flow.servers.list_documents() == []


async def test_a_configured_client_replaces_all_others() -> None:
    flow = LoginFlowStage(with_login(client_id="by-hand", client_secret="s3cret", issuer=ISSUER), is_public=True)
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
    flow = LoginFlowStage(with_login(client_id="by-hand", client_secret="s3cret", issuer=ISSUER))
    evil = "https://evil.example"
    flow.servers.change_document(RESOURCE_METADATA, RESOURCE_DOCUMENT, authorization_servers=[evil])

    assert (await flow.begin_and_fail()).failure is LoginFailure.UNSAFE
    assert not any(url.startswith(evil) for url in flow.servers.list_urls())


@pytest.mark.parametrize("changes", HOSTILE_CLIENTS.values(), ids=HOSTILE_CLIENTS)
async def test_a_registration_that_is_not_usable_begins_no_login(changes: dict[str, Any]) -> None:
    flow = LoginFlowStage()
    flow.servers.change_document(REGISTER, CLIENT_DOCUMENT, **changes)

    assert (await flow.begin_and_fail()).failure is LoginFailure.INVALID_RESPONSE
    assert flow.clients.stored == {}
