"""An OAuth client whose authorization server is a script: no network, and every secret is a canary."""

import asyncio
from dataclasses import dataclass, field
from urllib.parse import urlencode

from ringback.domain.upstream_logins import (
    AuthorizationRequest,
    GrantedTokens,
    LoginFailed,
    OAuthClient,
    StartedAuthorization,
    UpstreamTokens,
)

ISSUER = "https://login.example"
CODE = "canary-code"
VERIFIER = "canary-verifier"
ACCESS_TOKEN = "canary-access-token"
REFRESH_TOKEN = "canary-refresh-token"
CLIENT_SECRET = "canary-client-secret"


@dataclass(slots=True)
class ScriptedLoginFlow:
    """Implements `domain.upstream_logins.LoginFlow`."""

    begin_failure: LoginFailed | None = None
    begin_began: asyncio.Event = field(default_factory=asyncio.Event)
    begin_gate: asyncio.Event | None = None
    """Logins wait until it is set."""
    exchange_failure: LoginFailed | None = None
    requires_issuer: bool = False
    client_id: str = "ringback"
    granted_scope: str | None = None
    refresh_token: str | None = REFRESH_TOKEN
    lifetime_seconds: float | None = 3600.0
    requests: list[tuple[str, str, str | None]] = field(default_factory=list[tuple[str, str, str | None]])
    """Upstream, redirect URI and scope of each login that began."""
    codes: list[str] = field(default_factory=list[str])
    revoked: list[UpstreamTokens] = field(default_factory=list[UpstreamTokens])
    revocation_began: asyncio.Event = field(default_factory=asyncio.Event)
    exchange_began: asyncio.Event = field(default_factory=asyncio.Event)
    exchange_gate: asyncio.Event | None = None
    """Exchanges wait until it is set."""

    async def begin_authorization(self, upstream: str, *, redirect_uri: str, scope: str | None) -> StartedAuthorization:
        self.requests.append((upstream, redirect_uri, scope))
        self.begin_began.set()
        if self.begin_gate is not None:
            await self.begin_gate.wait()
        if self.begin_failure is not None:
            raise self.begin_failure
        state = f"canary-state-{len(self.requests)}"
        request = AuthorizationRequest(
            issuer=ISSUER,
            token_endpoint=f"{ISSUER}/token",
            client=OAuthClient(
                client_id=self.client_id, client_secret=CLIENT_SECRET, auth_method="client_secret_basic"
            ),
            redirect_uri=redirect_uri,
            code_verifier=VERIFIER,
            resource=f"https://{upstream}.example/mcp",
            scope=scope,
            requires_issuer=self.requires_issuer,
        )
        url = f"{ISSUER}/authorize?{urlencode({'state': state, 'redirect_uri': redirect_uri})}"
        return StartedAuthorization(authorization_url=url, state=state, request=request)

    async def exchange_code(self, upstream: str, request: AuthorizationRequest, *, code: str) -> GrantedTokens:
        assert request.resource == f"https://{upstream}.example/mcp"
        self.codes.append(code)
        self.exchange_began.set()
        if self.exchange_gate is not None:
            await self.exchange_gate.wait()
        if self.exchange_failure is not None:
            raise self.exchange_failure
        return GrantedTokens(
            access_token=ACCESS_TOKEN,
            refresh_token=self.refresh_token,
            scope=self.granted_scope if self.granted_scope is not None else request.scope,
            lifetime_seconds=self.lifetime_seconds,
        )

    async def revoke_tokens(self, tokens: UpstreamTokens) -> None:
        self.revoked.append(tokens)
        self.revocation_began.set()
