"""Clients that can log in, such as mcp-remote, show why a service that takes only API keys refuses them.

They do not show the text of a 401: they look for an authorization server, find none, and register with the service itself (MCP
2025-03-26, Authorization). The requests are those of mcp-remote 0.1.38 and 0.15.1, with the JavaScript SDK 1.x and 2.x.
"""

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from ringback.domain.principal import DEFAULT_SCOPES
from tests.support.api_server import serving_api
from tests.support.application import RunningApplication, running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.oauth_service import OAuthService

pytestmark = pytest.mark.requirement("R25")

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "mcp-remote-fallback-test", "version": "0.0.0"},
    },
}
METADATA = (
    "/.well-known/oauth-protected-resource/mcp/git",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
)
CLIENT = {
    "redirect_uris": ["http://localhost:3334/oauth/callback"],
    "token_endpoint_auth_method": "none",
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "client_name": "MCP CLI Proxy",
}
SHOWN_AS_ANOTHER_ERROR = ("404", "405", "Not Found", "Method Not Allowed", "Unauthorized")
"""mcp-remote takes an error with one of these for a server of the retired transport, or opens a browser."""


@pytest.fixture(scope="module")
async def keyed(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RunningApplication]:
    async with running_application(module_path_factory.mktemp("keyed")) as running:
        yield running


@pytest.fixture
async def http(keyed: RunningApplication) -> AsyncGenerator[httpx.AsyncClient]:
    async with (
        serving_api(keyed.app.api) as url,
        httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS) as client,
    ):
        yield client


async def register(http: httpx.AsyncClient, bearer: str | None) -> str:
    """The description that the client shows."""
    headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
    refused = await http.post("/register", json=CLIENT, headers=headers)
    assert (refused.status_code, refused.json()["error"]) == (400, "access_denied")
    description: str = refused.json()["error_description"]
    assert description.isascii()
    assert not [text for text in SHOWN_AS_ANOTHER_ERROR if text in description]
    return description


async def test_no_metadata_leads_a_client_to_a_login_that_does_not_exist(http: httpx.AsyncClient) -> None:
    refused = await http.post("/mcp/git", json=INITIALIZE)
    metadata = [await http.get(path) for path in METADATA]

    assert refused.status_code == 401
    assert "resource_metadata" not in refused.headers["www-authenticate"]
    assert [answer.status_code for answer in metadata] == [404] * len(METADATA)


async def test_a_registration_is_refused_with_the_words_of_the_401(http: httpx.AsyncClient) -> None:
    refused = await http.post("/mcp/git", json=INITIALIZE)
    description = await register(http, None)

    assert description == refused.json()["error"]["message"].replace("…", "...")
    assert "Send your API key: 'Authorization: Bearer rbk_...'" in description


async def test_a_wrong_key_is_named_as_such(keyed: RunningApplication, http: httpx.AsyncClient) -> None:
    key, text = await keyed.app.services.api_keys.create_key("alice", name="", scopes=DEFAULT_SCOPES, upstreams=None)
    with_key = await http.post("/register", json=CLIENT, headers={"authorization": f"Bearer {text}"})
    await keyed.app.services.api_keys.revoke_key(key.id)

    assert with_key.status_code == 404
    assert "unknown or revoked" in await register(http, text)


async def test_with_an_issuer_clients_register_there(guarded: OAuthService) -> None:
    refused = await guarded.http.post("/register", json=CLIENT)

    assert refused.status_code == 404
    assert guarded.issuer.url in refused.json()["detail"]
