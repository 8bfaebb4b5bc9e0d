"""Who is asking, and what they may do.

A principal owns calls, webhooks and events; every row is keyed by it, and what belongs to another looks exactly like what
does not exist. A caller is a principal as it arrived: with the scopes and the upstreams its key allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType, Protocol

from ringback.domain.errors import Forbidden
from ringback.domain.ids import KeyId

Principal = NewType("Principal", str)

ANONYMOUS_PRINCIPAL = Principal("anonymous")
"""The one owner of everything while authentication is off, which is allowed on loopback only."""

PRINCIPAL_LENGTH_MAX = 128

OIDC_PRINCIPAL_PREFIX: Final = "oidc:"
"""How the principals of access tokens begin; no API key is made for one of these."""


class Scope(StrEnum):
    CALLS = "calls"
    WEBHOOKS = "webhooks"
    READ = "read"
    ADOPT = "adopt"
    ADMIN = "admin"


DEFAULT_SCOPES = frozenset({Scope.CALLS, Scope.WEBHOOKS, Scope.READ})
ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    principal: Principal
    scopes: frozenset[Scope]
    upstreams: frozenset[str] | None = None
    """The upstreams this caller may see; None means all of them."""

    def require_scope(self, scope: Scope) -> None:
        """Raise `Forbidden` unless the caller holds the scope; `admin` holds them all."""
        if scope not in self.scopes and Scope.ADMIN not in self.scopes:
            raise Forbidden(
                f"This key lacks the scope '{scope}'. Create one that has it: ringback keys create. An access token needs "
                f"'ringback:{scope}'.",
                scope=scope,
            )

    def may_use_upstream(self, upstream: str) -> bool:
        return self.upstreams is None or upstream in self.upstreams


class Authenticator(Protocol):
    """Tells who a bearer token stands for, at every door alike."""

    async def authenticate(self, bearer: str | None, *, resource: str) -> Caller:
        """Who presents this token at a resource (a path below the public URL, `domain.protected_resource`).

        Raises `Unauthenticated` for nobody we know, and `Unavailable` when that cannot be found out now.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key as it is stored: the key itself is shown once and kept only as a hash."""

    id: KeyId
    principal: Principal
    name: str
    hash: str
    prefix: str
    """The first characters, so that a person can tell keys apart in a list."""
    scopes: frozenset[Scope]
    upstreams: frozenset[str] | None
    created_at: datetime
    revoked_at: datetime | None = None

    def to_caller(self) -> Caller:
        return Caller(principal=self.principal, scopes=self.scopes, upstreams=self.upstreams)


class ApiKeyRows(Protocol):
    async def insert(self, key: ApiKey) -> None: ...

    async def find_by_hash(self, key_hash: str) -> ApiKey | None:
        """The key, revoked or not."""
        ...

    async def list_all(self) -> Sequence[ApiKey]: ...

    async def revoke(self, key_id: KeyId, *, now: datetime) -> bool: ...
