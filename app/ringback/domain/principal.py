"""Principals, callers and API keys.

A principal owns calls, webhooks and events. Every row has its principal, and rows of other principals look as if they did not
exist. A caller is a principal with the scopes and upstreams of one request's key or token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType, Protocol

from ringback.domain.cursor import Page
from ringback.domain.errors import Forbidden
from ringback.domain.ids import KeyId

Principal = NewType("Principal", str)

ANONYMOUS_PRINCIPAL = Principal("anonymous")
"""The owner of everything while authentication is off, which is allowed on loopback only."""

PRINCIPAL_LENGTH_MAX = 128

OIDC_PRINCIPAL_PREFIX: Final = "oidc:"
"""The prefix of principals of access tokens. API keys cannot use it."""


class Scope(StrEnum):
    CALLS = "calls"
    WEBHOOKS = "webhooks"
    READ = "read"
    ADOPT = "adopt"
    METRICS = "metrics"
    """GET /metrics only, for scrapers."""
    ADMIN = "admin"
    """All scopes, and the view of an operator over all principals."""


SCOPES_TEXT: Final = (
    "calls: start, answer, cancel and erase calls. webhooks: change webhooks, and deliver again. read: read all that the "
    "principal has. adopt: follow tasks that run upstream, and report calls. metrics: GET /metrics only. admin: everything, "
    "for all principals."
)


class Surface(StrEnum):
    """Where a request arrives."""

    REST = "rest"
    MCP = "mcp"
    UI = "ui"
    CLI = "cli"
    """The command line with access to the database. Without it, the command line sends REST requests."""


DEFAULT_SCOPES = frozenset({Scope.CALLS, Scope.WEBHOOKS, Scope.READ})
ALL_SCOPES = frozenset(Scope)


ALL_PRINCIPALS: Final = "*"
"""What an operator names instead of one principal. No key can be created for a principal of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Who acts for another principal, or reads all principals' rows."""

    principal: Principal
    key_id: KeyId | None
    """None if the operator authenticated with an access token, or if authentication is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    principal: Principal
    """Whose rows the caller sees. For an operator, the principal that the request names."""
    scopes: frozenset[Scope]
    upstreams: frozenset[str] | None = None
    """The upstreams that the caller may use; None means all."""
    key_id: KeyId | None = None
    """The API key of the request; None with an access token, or without authentication."""
    operator: Operator | None = None
    """Set if the request names a principal and its key has the scope `admin`."""
    sees_all_principals: bool = False
    """Whether an operator lists the rows of all principals. `principal` is then the operator's own."""
    surface: Surface = Surface.REST
    """For the audit log."""

    @property
    def is_operator(self) -> bool:
        """Whether an operator sends the request, for a principal that it names. Responses then show who owns what."""
        return self.operator is not None

    @property
    def listed_principal(self) -> Principal | None:
        """The principal whose rows a list shows; None for all principals."""
        return None if self.sees_all_principals else self.principal

    def has_scope(self, scope: Scope) -> bool:
        """Whether the caller has the scope. `admin` includes all scopes."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def require_scope(self, scope: Scope) -> None:
        """Raise `Forbidden` unless the caller has the scope."""
        if not self.has_scope(scope):
            raise Forbidden(
                f"This key lacks the scope '{scope}'. Create one that has it: ringback keys create PRINCIPAL"
                f"{'' if scope in DEFAULT_SCOPES else f' --scope {scope}'}. "
                f"An access token needs 'ringback:{scope}'.",
                scope=scope,
            )

    def may_use_upstream(self, upstream: str) -> bool:
        return self.upstreams is None or upstream in self.upstreams

    def may_grant_upstreams(self, upstreams: frozenset[str] | None) -> bool:
        """Whether the caller may use all these upstreams itself; None means every upstream."""
        return self.upstreams is None or (upstreams is not None and upstreams <= self.upstreams)


class Authenticator(Protocol):
    """Finds the caller of a bearer token, for every interface."""

    async def authenticate(self, bearer: str | None, *, resource: str) -> Caller:
        """The caller with this token at a resource (a path below the public URL, `domain.protected_resource`).

        Raises `Unauthenticated` for an unknown token, and `Unavailable` if the token cannot be checked now.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A stored API key. The key itself is shown once, and only its hash is stored."""

    id: KeyId
    principal: Principal
    name: str
    hash: str
    prefix: str
    """The first characters, so that people can distinguish keys in a list."""
    scopes: frozenset[Scope]
    upstreams: frozenset[str] | None
    created_at: datetime
    expires_at: datetime | None = None
    """From this instant on the key is refused. None: it does not expire."""
    replaced_by: KeyId | None = None
    """The key that a rotation created. This one expires when the overlap ends."""
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def to_caller(self) -> Caller:
        return Caller(principal=self.principal, scopes=self.scopes, upstreams=self.upstreams, key_id=self.id)


class ApiKeyRows(Protocol):
    async def insert(self, key: ApiKey) -> None: ...

    async def find_by_hash(self, key_hash: str) -> ApiKey | None:
        """The key, also if it is revoked or has expired."""
        ...

    async def get(self, key_id: KeyId) -> ApiKey | None: ...

    async def hold(self, key_id: KeyId) -> bool:
        """Whether the key exists. Until the unit ends, no other unit deletes it; several units may hold it at once."""
        ...

    async def list_all(self) -> Sequence[ApiKey]: ...

    async def list_page(self, principal: Principal | None, *, position: str | None, limit: int) -> Page[ApiKey, str]:
        """Keys of this principal (None: of all), newest first, from after the key with the id `position`."""
        ...

    async def revoke(self, key_id: KeyId, *, now: datetime) -> bool:
        """Whether the key was not revoked before."""
        ...

    async def replace(self, key_id: KeyId, *, replaced_by: KeyId, expires_at: datetime, now: datetime) -> bool:
        """Let the key expire at this instant, unless it expires earlier.

        False, and nothing is written, if it is not valid now or was replaced before.
        """
        ...


class KeyOwnerRows(Protocol):
    """The principals that have API keys."""

    async def is_single(self, *, now: datetime) -> bool:
        """Whether exactly one principal has valid keys that can start or adopt calls."""
        ...
