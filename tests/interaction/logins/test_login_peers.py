"""The servers with which logins are tested are sound: the SDK's own OAuth client signs in to each, and its calls succeed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from mcp_types import CallToolResult, TextContent
from pydantic import AnyUrl

from tests.support.login_peers.browser import Browser
from tests.support.login_peers.kinds import PEERS
from tests.support.login_peers.peer import LoginPeer

REDIRECT_URI = "http://127.0.0.1:9/callback"


class Tokens:
    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@asynccontextmanager
async def signing_in(peer: LoginPeer, browser: Browser) -> AsyncGenerator[Client]:
    """The SDK's client, whose logins the browser approves."""
    redirects: list[str] = []

    async def open_browser(url: str) -> None:
        redirects.append(await browser.approve(url))

    async def wait_for_redirect() -> AuthorizationCodeResult:
        query = parse_qs(urlsplit(redirects[-1]).query)
        return AuthorizationCodeResult(code=query["code"][0], state=query["state"][0], iss=query.get("iss", [None])[0])

    auth = OAuthClientProvider(
        server_url=peer.url,
        client_metadata=OAuthClientMetadata(redirect_uris=[AnyUrl(REDIRECT_URI)], client_name="test"),
        storage=Tokens(),
        redirect_handler=open_browser,
        callback_handler=wait_for_redirect,
    )
    async with (
        httpx2.AsyncClient(auth=auth) as http,
        Client(streamable_http_client(peer.url, http_client=http)) as client,
    ):
        yield client


def read_text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize("kind", PEERS)
async def test_the_client_of_the_sdk_signs_in_to_the_peer_and_refreshes_an_expired_token(kind: str) -> None:
    async with PEERS[kind]() as peer, Browser(account="ada") as browser, signing_in(peer, browser) as client:
        result = await client.call_tool("whoami", {})
        peer.expire_access_tokens()
        await client.call_tool("whoami", {})

    assert read_text(result) == ("files:read" if kind == "fastmcp" else "ada")
    first, second = peer.list_tokens_of_calls("whoami")
    assert first != second
    assert {first, second} <= peer.secrets
    assert peer.received[0].status == 401
