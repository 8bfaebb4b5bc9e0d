"""A peer with the authorization server of the MCP SDK (`mcp.server.auth`): its routes, its checks, its bearer middleware.

The SDK leaves the tables and the consent page to the program that uses it; these are here.
"""

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from html import escape
from typing import Final

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    ProviderTokenVerifier,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ringback.domain.clock import SystemClock
from scripts.ports import free_port
from tests.support.login_peers.peer import READ, WRITE, LoginPeer, PeerFront
from tests.support.upstreams import App, Receive, Scope, Send, serving

CODE_SECONDS: Final = 60
"""RFC 6749 recommends at most ten minutes."""


def _now() -> int:
    return int(SystemClock().now().timestamp())


class TablesOfTokens(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Clients, codes and tokens in memory. Refresh tokens are rotated; the user chooses an account on the consent page."""

    def __init__(self, issuer: str) -> None:
        self.access_token_seconds = 3600
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access_tokens: dict[str, AccessToken] = {}
        self.refresh_tokens: dict[str, RefreshToken] = {}
        self.revoked: list[str] = []
        """The tokens that clients revoked."""
        self._issuer = issuer
        self._consents: dict[str, tuple[str, AuthorizationParams]] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        assert client.client_id is not None
        consent = secrets.token_urlsafe(16)
        self._consents[consent] = (client.client_id, params)
        return f"{self._issuer}/consent?consent={consent}"

    async def show_consent(self, request: Request) -> Response:
        consent = escape(request.query_params["consent"])
        return HTMLResponse(
            f'<form method="post" action="/consent"><input type="hidden" name="consent" value="{consent}">'
            '<input name="account"><button>Allow</button></form>'
        )

    async def approve_consent(self, request: Request) -> Response:
        form = await request.form()
        client_id, params = self._consents.pop(str(form["consent"]))
        answers: dict[str, str | None] = {"state": params.state, "iss": self._issuer}
        account = str(form["account"])
        if account == "nobody":
            answers["error"] = "access_denied"
        else:
            answers["code"] = self._issue_code(client_id, params, account)
        return RedirectResponse(construct_redirect_uri(str(params.redirect_uri), **answers), status_code=302)

    def _issue_code(self, client_id: str, params: AuthorizationParams, account: str) -> str:
        code = AuthorizationCode(
            code=f"code-{secrets.token_urlsafe(24)}",
            scopes=params.scopes or [READ],
            expires_at=_now() + CODE_SECONDS,
            client_id=client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=account,
        )
        self.codes[code.code] = code
        return code.code

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        code = self.codes.get(authorization_code)
        return code if code is not None and code.client_id == client.client_id else None

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        assert authorization_code.client_id == client.client_id
        del self.codes[authorization_code.code]
        return self._issue_tokens(authorization_code, authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        token = self.refresh_tokens.get(refresh_token)
        return token if token is not None and token.client_id == client.client_id else None

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        assert refresh_token.client_id == client.client_id
        del self.refresh_tokens[refresh_token.token]
        return self._issue_tokens(refresh_token, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access_tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.revoked.append(token.token)
        self.access_tokens.pop(token.token, None)
        self.refresh_tokens.pop(token.token, None)

    def _issue_tokens(self, grant: AuthorizationCode | RefreshToken, scopes: list[str]) -> OAuthToken:
        access, refresh = f"access-{secrets.token_urlsafe(24)}", f"refresh-{secrets.token_urlsafe(24)}"
        self.access_tokens[access] = AccessToken(
            token=access,
            client_id=grant.client_id,
            scopes=scopes,
            expires_at=_now() + self.access_token_seconds,
            resource=grant.resource,
            subject=grant.subject,
        )
        self.refresh_tokens[refresh] = RefreshToken(
            token=refresh,
            client_id=grant.client_id,
            scopes=grant.scopes,
            resource=grant.resource,
            subject=grant.subject,
        )
        return OAuthToken(
            access_token=access,
            token_type="Bearer",
            expires_in=self.access_token_seconds,
            scope=" ".join(scopes),
            refresh_token=refresh,
        )


@asynccontextmanager
async def serving_sdk_peer(make_app: Callable[..., App], *, has_own_origin: bool = False) -> AsyncGenerator[LoginPeer]:
    """The MCP server that `make_app` makes, behind the SDK's bearer check.

    The authorization server has the origin of the MCP server, or an origin of its own. `make_app` takes the options of the
    SDK's `streamable_http_app`.
    """
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        issuer_port = free_port() if has_own_origin else port
        issuer = f"http://127.0.0.1:{issuer_port}"
        provider = TablesOfTokens(issuer)
        peer = LoginPeer(url=f"{origin}/mcp", issuer=issuer, provider=provider)
        metadata_url = f"{origin}/.well-known/oauth-protected-resource/mcp"
        settings = make_auth_settings(issuer, peer.url)
        server = make_app(auth=settings, token_verifier=ProviderTokenVerifier(provider))
        authorization = make_authorization_app(provider, settings)
        if has_own_origin:
            front = PeerFront(authorization, peer, metadata_url=metadata_url)
            await stack.enter_async_context(serving(front, port=issuer_port))
        else:
            server = _join_apps(server, authorization)
        await stack.enter_async_context(serving(PeerFront(server, peer, metadata_url=metadata_url), port=port))
        yield peer


def make_auth_settings(issuer: str, url: str) -> AuthSettings:
    # Validated from text: a URL made by pydantic itself ends with a slash, and issuers are compared as text.
    return AuthSettings.model_validate(
        {
            "issuer_url": issuer,
            "resource_server_url": url,
            "required_scopes": [READ],
            "validate_token_resource": True,
        }
    )


def make_authorization_app(provider: TablesOfTokens, settings: AuthSettings) -> App:
    routes = create_auth_routes(
        provider,
        settings.issuer_url,
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=[READ, WRITE], default_scopes=[READ]
        ),
        revocation_options=RevocationOptions(enabled=True),
    )
    consent = [
        Route("/consent", provider.show_consent, methods=["GET"]),
        Route("/consent", provider.approve_consent, methods=["POST"]),
    ]
    return Starlette(routes=[*routes, *consent])


def _join_apps(server: App, authorization: App) -> App:
    """One origin for both: the endpoint and its metadata belong to the MCP server, all else to the authorization server."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_server = scope["type"] != "http" or scope["path"] in {"/mcp", "/.well-known/oauth-protected-resource/mcp"}
        await (server if is_server else authorization)(scope, receive, send)

    return serve
