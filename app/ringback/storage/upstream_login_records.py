"""The stored form of logins to upstreams: what is secret becomes one text for each row, which the row classes seal."""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from ringback.domain import jsontext
from ringback.domain.clock import epoch_milliseconds, from_epoch_milliseconds
from ringback.domain.ids import LoginId
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import (
    UNKNOWN_LOGIN,
    AuthorizationRequest,
    OAuthClient,
    RegisteredClient,
    UpstreamTokens,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensRecord:
    """A row of `upstream_tokens`."""

    id: str
    upstream: str
    owner: Principal
    version: int
    issuer: str
    resource: str
    scope: str | None
    required_scope: str | None
    obtained_at: datetime
    expires_at: datetime | None
    logged_in_by: Principal
    secrets: bytes = field(repr=False)
    """JSON: token endpoint, client, access token, refresh token, their login, and until when a node refreshes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord:
    """A row of `oauth_clients`."""

    id: str
    issuer: str
    redirect_uri: str
    client: bytes = field(repr=False)
    """JSON of the client."""
    created_at: datetime
    expires_at: datetime | None


def tokens_id(upstream: str, owner: Principal) -> str:
    """Names of upstreams contain no slash."""
    return f"{upstream}/{owner}"


def client_row_id(issuer: str, redirect_uri: str) -> str:
    """A URL contains no space."""
    return f"{issuer} {redirect_uri}"


def to_stored_tokens(tokens: UpstreamTokens) -> TokensRecord:
    secrets: dict[str, Any] = {
        "token_endpoint": tokens.token_endpoint,
        "client": asdict(tokens.client),
        "access_token": tokens.access_token,
        "refresh_token": tokens.refresh_token,
        "login_id": tokens.login_id,
    }
    if tokens.refresh_claimed_until is not None:
        secrets["refresh_claimed_until"] = epoch_milliseconds(tokens.refresh_claimed_until)
    return TokensRecord(
        id=tokens_id(tokens.upstream, tokens.owner),
        upstream=tokens.upstream,
        owner=tokens.owner,
        version=tokens.version,
        issuer=tokens.issuer,
        resource=tokens.resource,
        scope=tokens.scope,
        required_scope=tokens.required_scope,
        obtained_at=tokens.obtained_at,
        expires_at=tokens.expires_at,
        logged_in_by=tokens.logged_in_by,
        secrets=jsontext.dumps(secrets),
    )


def from_stored_tokens(stored: TokensRecord) -> UpstreamTokens:
    secrets = jsontext.loads(stored.secrets)
    claimed_until = secrets.get("refresh_claimed_until")
    return UpstreamTokens(
        upstream=stored.upstream,
        owner=stored.owner,
        version=stored.version,
        issuer=stored.issuer,
        token_endpoint=secrets["token_endpoint"],
        client=OAuthClient(**secrets["client"]),
        resource=stored.resource,
        scope=stored.scope,
        access_token=secrets["access_token"],
        refresh_token=secrets["refresh_token"],
        required_scope=stored.required_scope,
        obtained_at=stored.obtained_at,
        expires_at=stored.expires_at,
        logged_in_by=stored.logged_in_by,
        login_id=LoginId(secrets.get("login_id", UNKNOWN_LOGIN)),
        refresh_claimed_until=None if claimed_until is None else from_epoch_milliseconds(claimed_until),
    )


def to_stored_client(registered: RegisteredClient) -> ClientRecord:
    return ClientRecord(
        id=client_row_id(registered.issuer, registered.redirect_uri),
        issuer=registered.issuer,
        redirect_uri=registered.redirect_uri,
        client=jsontext.dumps(asdict(registered.client)),
        created_at=registered.created_at,
        expires_at=registered.expires_at,
    )


def from_stored_client(stored: ClientRecord) -> RegisteredClient:
    return RegisteredClient(
        issuer=stored.issuer,
        redirect_uri=stored.redirect_uri,
        client=OAuthClient(**jsontext.loads(stored.client)),
        created_at=stored.created_at,
        expires_at=stored.expires_at,
    )


def encode_request(request: AuthorizationRequest) -> bytes:
    """The text that is sealed for a login."""
    return jsontext.dumps(asdict(request))


def decode_request(text: bytes) -> AuthorizationRequest:
    values = jsontext.loads(text)
    return AuthorizationRequest(**values | {"client": OAuthClient(**values["client"])})
