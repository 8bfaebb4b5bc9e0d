"""The SDK's OAuth client learns from a 401 which token it needs, gets it, and repeats the request."""

import httpx2
import pytest
from mcp import Client
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from tests.support.application import PUBLIC_URL
from tests.support.oauth_service import OAuthService


class InMemoryTokenStorage:
    """The token storage of the SDK's client."""

    def __init__(self) -> None:
        self.token: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.token = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError(f"{client_info.client_id} was registered before")


@pytest.mark.requirement("R25")
async def test_a_client_with_the_url_and_its_own_credentials_logs_in_and_calls(guarded: OAuthService) -> None:
    endpoint = f"{PUBLIC_URL}/mcp/git"
    provider = ClientCredentialsOAuthProvider(
        server_url=endpoint,
        storage=InMemoryTokenStorage(),
        client_id="agent",
        client_secret="not looked at",
        issuer=guarded.issuer.url,
    )
    transport = httpx2.ASGITransport(guarded.service.app.api)
    async with (
        httpx2.AsyncClient(auth=provider, mounts={PUBLIC_URL: transport}) as http,
        Client(streamable_http_client(endpoint, http_client=http), mode="2026-07-28") as client,
    ):
        result = await client.call_tool("echo", {"text": "hello"})

    assert not result.is_error
    (wanted,) = guarded.issuer.token_requests
    assert (wanted["resource"], wanted["scope"]) == (endpoint, "ringback:calls ringback:read ringback:webhooks")
