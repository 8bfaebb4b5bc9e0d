"""A peer made with FastMCP: its own authorization server, its in-memory provider, its bearer middleware."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastmcp import FastMCP
from fastmcp.server.auth import AccessToken, AuthProvider, OAuthProxy, TokenVerifier
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from fastmcp.server.dependencies import get_access_token
from key_value.aio.stores.memory import MemoryStore
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from scripts.ports import free_port
from tests.support.login_peers.peer import READ, WRITE, IssuedTokens, LoginPeer, PeerFront
from tests.support.login_peers.sdk_peer import TablesOfTokens, make_auth_settings, make_authorization_app
from tests.support.upstreams import serving


def show_account() -> str:
    """Return the account of the token; its scopes if it has none."""
    token = get_access_token()
    return (token.subject or " ".join(token.scopes)) if token else ""


@asynccontextmanager
async def serving_fastmcp_peer() -> AsyncGenerator[LoginPeer]:
    """A server with the tools `whoami` and `deploy`. Its authorization server approves without a question."""
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    provider = InMemoryOAuthProvider(
        base_url=origin,
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=[READ, WRITE], default_scopes=[READ]
        ),
        revocation_options=RevocationOptions(enabled=True),
        required_scopes=[READ],
    )
    async with _serving(provider, port, provider) as peer:
        yield peer


@asynccontextmanager
async def serving_fastmcp_proxy() -> AsyncGenerator[LoginPeer]:
    """The same server behind FastMCP's proxy, which has a consent page, and signs in elsewhere with a client of its own.

    "Elsewhere" is the authorization server of the SDK. The tables of the peer are those of that server.
    """
    port, identity_port = free_port(), free_port()
    origin, identity = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{identity_port}"
    tables = TablesOfTokens(identity)
    client = OAuthClientInformationFull(
        client_id="proxy",
        client_secret="canary-proxy-secret",
        redirect_uris=[AnyUrl(f"{origin}/auth/callback")],
        token_endpoint_auth_method="client_secret_post",
        scope=f"{READ} {WRITE}",
    )
    await tables.register_client(client)
    proxy = OAuthProxy(
        upstream_authorization_endpoint=f"{identity}/authorize",
        upstream_token_endpoint=f"{identity}/token",
        upstream_revocation_endpoint=f"{identity}/revoke",
        upstream_client_id="proxy",
        upstream_client_secret=client.client_secret,
        token_endpoint_auth_method="client_secret_post",
        token_verifier=TablesVerifier(tables),
        base_url=origin,
        valid_scopes=[READ, WRITE],
        client_storage=MemoryStore(),
    )
    settings = make_auth_settings(identity, f"{identity}/mcp")
    async with (
        serving(make_authorization_app(tables, settings), port=identity_port),
        _serving(proxy, port, tables) as peer,
    ):
        yield peer


class TablesVerifier(TokenVerifier):
    """Accepts the tokens of the tables."""

    def __init__(self, tables: TablesOfTokens) -> None:
        super().__init__(required_scopes=[READ])
        self._tables = tables

    async def verify_token(self, token: str) -> AccessToken | None:
        found = await self._tables.load_access_token(token)
        return None if found is None else AccessToken.model_validate(found.model_dump(exclude={"claims"}))


@asynccontextmanager
async def _serving(provider: AuthProvider, port: int, tables: IssuedTokens) -> AsyncGenerator[LoginPeer]:
    server = FastMCP("accounts", auth=provider)
    server.tool(show_account, name="whoami")
    server.tool(show_account, name="deploy")
    origin = f"http://127.0.0.1:{port}"
    peer = LoginPeer(url=f"{origin}/mcp", issuer=f"{origin}/", provider=tables)
    metadata_url = f"{origin}/.well-known/oauth-protected-resource/mcp"
    async with serving(PeerFront(server.http_app(path="/mcp"), peer, metadata_url=metadata_url), port=port):
        yield peer
