"""Logins to upstreams by OAuth: what the store keeps of them, and its ports.

    POST /v1/upstreams/{name}/login ──▶ UpstreamLogin ──browser, authorization server──▶ code ──▶ UpstreamTokens
                                        one attempt, minutes                              of one owner, until they are refused

The operator decides by `"credentials"` of an upstream who owns its tokens: the service (`shared`), or each principal. A call is
sent with the tokens of its owner and of no other one. Everything that is secret is sealed at rest and has no `repr`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from ringback.domain.ids import KeyId, LoginId
from ringback.domain.principal import Principal

UNKNOWN_LOGIN: Final = LoginId("")
"""The login of tokens whose login was not stored."""
SHARED_OWNER: Final = Principal("")
"""The owner of tokens that all principals use. No principal has an empty name."""
SCOPE_LENGTH_MAX: Final = 4096
"""Characters of all scopes together: they become a part of a URL, and browsers and servers accept some 8 KiB."""


class CredentialsScope(StrEnum):
    """Who signs in to an upstream: the operator once for all principals, or each principal for itself."""

    SHARED = "shared"
    PRINCIPAL = "principal"

    def get_owner(self, principal: Principal) -> Principal:
        """The owner of the tokens with which calls of this principal are sent."""
        return SHARED_OWNER if self is CredentialsScope.SHARED else principal


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """How Ringback identifies itself at an authorization server: configured, registered (RFC 7591) or a metadata document."""

    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    auth_method: str = "none"
    """none | client_secret_basic | client_secret_post"""
    redirect_uri: str | None = None
    """For a client that was registered dynamically and is stored: the redirect URI under which `OAuthClientRows` has it."""
    scope: str | None = None
    """The scope that Ringback registered it for. Some servers grant a registered client no other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredClient:
    """A client that Ringback registered dynamically, for one redirect URI. Later logins that come back there use it too."""

    issuer: str
    redirect_uri: str
    client: OAuthClient = field(repr=False)
    created_at: datetime
    expires_at: datetime | None
    """When the secret ends (`client_secret_expires_at`); None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRequest:
    """What the redirect back from the authorization server is checked against, and what the token request needs."""

    issuer: str
    token_endpoint: str = field(repr=False)
    client: OAuthClient = field(repr=False)
    redirect_uri: str
    code_verifier: str = field(repr=False)
    """PKCE, method S256 (RFC 7636)."""
    resource: str
    """The upstream as the audience of the token (RFC 8707)."""
    scope: str | None
    requires_issuer: bool
    """Whether the redirect must name the issuer (`authorization_response_iss_parameter_supported`, RFC 9207)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamLogin:
    """One attempt to sign in, from the start until the redirect back or its expiry."""

    id: LoginId
    state_hash: str = field(repr=False)
    """SHA-256 of the OAuth `state`, in hexadecimal. The state itself is only in the authorization URL."""
    upstream: str
    owner: Principal
    """Whose tokens this login makes: `SHARED_OWNER` or a principal."""
    principal: Principal
    """Who started it, and who alone may complete it."""
    key_id: KeyId | None
    request: AuthorizationRequest = field(repr=False)
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTokens:
    """The tokens of one owner for one upstream. They are valid for `resource` and are sent to no other origin."""

    upstream: str
    owner: Principal
    version: int
    """Grows with each write, so that of two concurrent refreshes one wins: a rotated refresh token is used once."""
    issuer: str
    token_endpoint: str = field(repr=False)
    client: OAuthClient = field(repr=False)
    resource: str
    scope: str | None
    access_token: str | None = field(repr=False)
    """None once a refresh was refused: the owner has to sign in again."""
    refresh_token: str | None = field(default=None, repr=False)
    required_scope: str | None = None
    """The scope that the upstream asked for last (step-up), which the next login requests."""
    obtained_at: datetime
    expires_at: datetime | None
    """None if the authorization server did not say; the token is used until the upstream refuses it."""
    logged_in_by: Principal
    login_id: LoginId = UNKNOWN_LOGIN
    """The login that made them, which refreshes keep. Another login may be that of another account."""
    refresh_claimed_until: datetime | None = None
    """Until then one node refreshes the tokens, and the others wait for its result: a second use of a rotated refresh token
    looks like a theft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableTokens:
    """Stored tokens that this node cannot unseal, while other nodes may: it lacks a key of theirs.

    They are no missing login. Nothing here replaces or deletes them.
    """

    upstream: str
    owner: Principal
    version: int
    """As in `UpstreamTokens`. Tokens of a version that was read before are the same: another node has sealed them anew."""
    resource: str
    scope: str | None
    expires_at: datetime | None


# -- what the service needs of the OAuth client ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedAuthorization:
    authorization_url: str = field(repr=False)
    """Where the browser goes. It contains the state."""
    state: str = field(repr=False)
    request: AuthorizationRequest = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedTokens:
    """A token response that was checked (RFC 6749 §5.1)."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    scope: str | None = None
    lifetime_seconds: float | None = None


class LoginFailure(StrEnum):
    """Why a login does not begin or does not succeed. Texts of the servers are not shown: they could contain anything."""

    NOT_OFFERED = "not_offered"
    """The upstream names no authorization server, or accepts requests without a login."""
    UNSAFE = "unsafe"
    """A URL of the metadata is not https, has a private address, or belongs to another issuer or resource."""
    UNSUPPORTED = "unsupported"
    """The authorization server has no PKCE with S256, or no way to identify a client."""
    UNREACHABLE = "unreachable"
    INVALID_RESPONSE = "invalid_response"
    DENIED = "denied"
    """The user, or the authorization server, refused (`access_denied`)."""
    MISMATCH = "mismatch"
    """The redirect belongs to another login, issuer or browser."""
    REFUSED = "refused"
    """The authorization server refused the code, the client or the refresh token."""


class LoginFailed(Exception):
    """The message says what to do; it contains no text of the upstream and no secret."""

    def __init__(self, failure: LoginFailure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


class LoginFlow(Protocol):
    """The OAuth client towards the authorization servers of upstreams (`upstreams.oauth` implements it)."""

    async def begin_authorization(self, upstream: str, *, redirect_uri: str, scope: str | None) -> StartedAuthorization:
        """Discover the authorization server, identify the client there, and make the URL. Raises `LoginFailed`."""
        ...

    async def exchange_code(self, upstream: str, request: AuthorizationRequest, *, code: str) -> GrantedTokens:
        """Exchange the code by the rules of this upstream, for which the login began. Raises `LoginFailed`."""
        ...

    async def revoke_tokens(self, tokens: UpstreamTokens) -> None:
        """Revoke the tokens at the authorization server (RFC 7009), if it offers that. Raises nothing."""
        ...


# -- rows --------------------------------------------------------------------------------------------------------------------


class UpstreamLoginRows(Protocol):
    """Attempts to sign in. A login is found by the hash of its state, and deleted once."""

    async def add(self, login: UpstreamLogin) -> None: ...

    async def get(self, login_id: LoginId, *, now: datetime) -> UpstreamLogin | None:
        """The login; None if it is unknown, taken or expired. In a write transaction its row is locked."""
        ...

    async def find_by_state(self, state_hash: str, *, now: datetime) -> UpstreamLogin | None: ...

    async def delete(self, login_id: LoginId) -> bool:
        """False if there is none, because another unit has deleted it."""
        ...

    async def count(self, principal: Principal, *, now: datetime, limit: int) -> int: ...

    async def remove_expired(self, *, now: datetime, limit: int) -> int: ...


class UpstreamTokenRows(Protocol):
    async def get(self, upstream: str, owner: Principal) -> UpstreamTokens | UnreadableTokens | None:
        """The stored tokens; None also if no node can unseal them any more. A write transaction locks the row."""
        ...

    async def save(self, tokens: UpstreamTokens, *, expected_version: int | None) -> bool:
        """Insert (None) or replace the tokens. False if the stored version is another one: nothing is written."""
        ...

    async def delete(self, upstream: str, owner: Principal) -> bool: ...

    async def list_owned(
        self, upstreams: Sequence[str], owners: Sequence[Principal]
    ) -> Sequence[UpstreamTokens | UnreadableTokens]:
        """The tokens of these owners for these upstreams, for the state of logins in lists of upstreams."""
        ...

    async def count_owners(self, upstream: str, *, limit: int) -> int:
        """The number of principals that have tokens for the upstream, at most `limit`. Shared tokens do not count."""
        ...

    async def list_all_owned(self, owner: Principal, *, limit: int) -> Sequence[UpstreamTokens]:
        """Tokens of an owner for all upstreams, without those that cannot be unsealed here."""
        ...


class OAuthClientRows(Protocol):
    async def get(self, issuer: str, redirect_uri: str, *, now: datetime) -> RegisteredClient | None: ...

    async def save(self, registered: RegisteredClient) -> None:
        """Insert the client. If one is stored for this issuer and redirect URI, replace it. The oldest of many are removed."""
        ...

    async def delete(self, issuer: str, redirect_uri: str, client_id: str) -> bool:
        """Forget a client that the authorization server does not know any more."""
        ...
