"""The OAuth client signs in at authorization servers that others wrote: the SDK's and FastMCP's, on real sockets."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from ringback.domain.clock import SystemClock
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import (
    SHARED_OWNER,
    AuthorizationRequest,
    GrantedTokens,
    LoginFailed,
    LoginFailure,
    UpstreamTokens,
)
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.upstreams.oauth.authorization import OAuthLoginFlow
from ringback.upstreams.oauth.metadata_http import MetadataClients
from ringback.upstreams.oauth.token_requests import refresh_tokens
from tests.support.login_peers.account_server import AccountServer
from tests.support.login_peers.browser import Browser
from tests.support.login_peers.kinds import PEERS
from tests.support.login_peers.peer import READ, WRITE, LoginPeer
from tests.support.login_peers.registered_clients import KeptClients
from tests.support.login_peers.sdk_peer import TablesOfTokens, serving_sdk_peer
from tests.support.upstreams import make_http_config

WEB: Final = "https://console.example/callback"
LOOPBACK: Final = "http://127.0.0.1:9/callback"


class Login:
    """One login after the other at one peer, with the same OAuth client and the same registered clients."""

    def __init__(self, peer: LoginPeer, flow: OAuthLoginFlow, clients: MetadataClients) -> None:
        self.peer, self.flow = peer, flow
        self.config = make_http_config(peer.url, name="files")
        self._clients = clients

    async def sign_in(
        self, *, redirect_uri: str = WEB, scope: str | None = None, account: str = "ada"
    ) -> tuple[AuthorizationRequest, GrantedTokens]:
        started = await self.flow.begin_authorization("files", redirect_uri=redirect_uri, scope=scope)
        async with Browser(account=account) as browser:
            redirected_to = await browser.approve(started.authorization_url)
        query = parse_qs(urlsplit(redirected_to).query)
        assert query["state"] == [started.state]
        return started.request, await self.flow.exchange_code("files", started.request, code=query["code"][0])

    async def refresh(self, request: AuthorizationRequest, tokens: GrantedTokens) -> GrantedTokens:
        assert tokens.refresh_token is not None
        stored = self.make_stored_tokens(request, tokens)
        return await refresh_tokens(self._clients.get_client(self.config), stored, refresh_token=tokens.refresh_token)

    def make_stored_tokens(self, request: AuthorizationRequest, tokens: GrantedTokens) -> UpstreamTokens:
        return UpstreamTokens(
            upstream="files",
            owner=SHARED_OWNER,
            version=1,
            issuer=request.issuer,
            token_endpoint=request.token_endpoint,
            client=request.client,
            resource=request.resource,
            scope=tokens.scope,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token,
            obtained_at=SystemClock().now(),
            expires_at=None,
            logged_in_by=Principal("ada"),
        )

    async def post(self, token: str) -> int:
        """The status of a request to the MCP server with this token."""
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(trust_env=False) as http:
            return (await http.post(self.peer.url, json=message, headers=headers)).status_code


@asynccontextmanager
async def open_login(peer: LoginPeer) -> AsyncGenerator[Login]:
    async with aclosing(ConfiguredHosts()) as hosts:
        config = make_http_config(peer.url, name="files")
        clients = MetadataClients(hosts)
        yield Login(peer, OAuthLoginFlow(lambda: [config], clients, KeptClients(), clock=SystemClock()), clients)


@pytest.fixture(scope="module", params=PEERS)
async def login(request: pytest.FixtureRequest) -> AsyncGenerator[Login]:
    async with PEERS[request.param]() as peer, open_login(peer) as login:
        yield login


@pytest.fixture
async def sdk_login() -> AsyncGenerator[Login]:
    async with serving_sdk_peer(AccountServer().app) as peer, open_login(peer) as login:
        yield login


@pytest.mark.parametrize("redirect_uri", [WEB, LOOPBACK])
async def test_a_user_signs_in(login: Login, redirect_uri: str) -> None:
    request, tokens = await login.sign_in(redirect_uri=redirect_uri)

    assert await login.post(tokens.access_token) != 401
    assert await login.post("another") == 401
    assert request.resource == login.peer.url
    assert tokens.scope == READ
    assert tokens.refresh_token


async def test_the_client_is_registered_once_for_a_redirect_uri_of_a_web_front_end(login: Login) -> None:
    first, _ = await login.sign_in()
    second, tokens = await login.sign_in()

    assert first.client == second.client
    assert await login.post(tokens.access_token) != 401


async def test_a_refresh_token_is_used_once_and_replaced(login: Login) -> None:
    request, tokens = await login.sign_in()

    refreshed = await login.refresh(request, tokens)

    assert refreshed.refresh_token not in {None, tokens.refresh_token}
    assert await login.post(refreshed.access_token) != 401
    with pytest.raises(LoginFailed) as failed:
        await login.refresh(request, tokens)
    assert failed.value.failure is LoginFailure.REFUSED


async def test_a_code_is_exchanged_only_with_its_own_verifier(login: Login) -> None:
    started = await login.flow.begin_authorization("files", redirect_uri=WEB, scope=None)
    async with Browser() as browser:
        redirected_to = await browser.approve(started.authorization_url)
    (code,) = parse_qs(urlsplit(redirected_to).query)["code"]

    with pytest.raises(LoginFailed) as failed:
        await login.flow.exchange_code("files", replace(started.request, code_verifier="x" * 43), code=code)

    assert failed.value.failure is LoginFailure.REFUSED


@pytest.mark.parametrize("kind", ["sdk", "sdk-with-an-issuer-of-its-own", "fastmcp"])
async def test_a_revoked_login_is_not_refreshed(kind: str) -> None:
    """The proxy of FastMCP registers clients without a secret, whose revocations the SDK's endpoint (2.3.0) refuses."""
    async with PEERS[kind]() as peer, open_login(peer) as login:
        await revoke_and_refresh(login)


async def revoke_and_refresh(login: Login) -> None:
    request, tokens = await login.sign_in()

    await login.flow.revoke_tokens(login.make_stored_tokens(request, tokens))

    with pytest.raises(LoginFailed) as failed:
        await login.refresh(request, tokens)
    assert failed.value.failure is LoginFailure.REFUSED


async def test_a_later_login_may_ask_for_a_further_scope(sdk_login: Login) -> None:
    """The SDK's server grants only scopes that the client named when it registered (step-up)."""
    await sdk_login.sign_in()

    _, tokens = await sdk_login.sign_in(scope=f"{READ} {WRITE}")

    assert tokens.scope == f"{READ} {WRITE}"


async def test_a_client_that_the_server_has_forgotten_is_registered_again(sdk_login: Login) -> None:
    await sdk_login.sign_in()
    tables = sdk_login.peer.provider
    assert isinstance(tables, TablesOfTokens)
    started = await sdk_login.flow.begin_authorization("files", redirect_uri=WEB, scope=None)
    async with Browser() as browser:
        redirected_to = await browser.approve(started.authorization_url)
    (code,) = parse_qs(urlsplit(redirected_to).query)["code"]
    tables.clients.clear()

    with pytest.raises(LoginFailed) as failed:
        await sdk_login.flow.exchange_code("files", started.request, code=code)
    _, tokens = await sdk_login.sign_in()

    assert failed.value.failure is LoginFailure.REFUSED
    assert await sdk_login.post(tokens.access_token) != 401
