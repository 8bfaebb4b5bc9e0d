"""Sign-ins to the dashboard: the browsers in which a person entered an API key, or came from the issuer of access tokens.

A browser has a random secret in a cookie, and the store has its hash. So a sign-in ends at once, on every node, when its row is
deleted: nothing that a browser kept works after that. A sign-in with a key has only the id of the key: what it may do is read
with every request.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from ringback.domain.ids import KeyId, SignInId
from ringback.domain.principal import Principal, Scope

SIGN_IN_SECONDS: Final = 8 * 3600.0
"""A working day. After it, the person signs in again."""
SIGN_INS_KEPT: Final = 50
"""Sign-ins of one principal at once. One more ends the oldest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    id: SignInId
    secret_hash: str = field(repr=False)
    principal: Principal
    key_id: KeyId | None
    """None for a person that the issuer of access tokens has identified."""
    scopes: frozenset[Scope]
    """Those of the access token. With a key, the key's own count."""
    upstreams: frozenset[str] | None = None
    """As `scopes`; None means all."""
    created_at: datetime
    expires_at: datetime


class SignInRows(Protocol):
    async def insert(self, sign_in: SignIn) -> None: ...

    async def find_by_hash(self, secret_hash: str, *, now: datetime) -> SignIn | None:
        """The sign-in with this secret; None if it has ended."""
        ...

    async def delete(self, secret_hash: str) -> None: ...

    async def remove_oldest(self, principal: Principal, *, kept: int) -> None:
        """Delete the sign-ins of the principal but for the newest `kept`."""
        ...

    async def remove_expired(self, *, now: datetime, limit: int) -> int: ...
