"""The stored tokens of owners, and the claim by which one node at a time refreshes them.

A refresh token that rotates is valid once. A second use looks like a theft, and some authorization servers then revoke the
whole login. So a node claims the refresh before it sends it; the others wait for its result, or for the end of its claim.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol

from ringback.domain.clock import seconds
from ringback.domain.clock_confirmation import is_of_wrong_clock
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import upstream_tokens_topic
from ringback.domain.upstream_logins import UnreadableTokens, UpstreamTokens
from ringback.services.logins.login_waits import write_for_owner

REFRESH_CLAIM_SECONDS: Final = 20.0
"""The token request takes at most 10 s (`metadata_http`), and the rest is for the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshClaim:
    tokens: UpstreamTokens | UnreadableTokens | None = field(repr=False)
    """The stored tokens: of the claim, or those of another node, or None if they were deleted."""
    is_ours: bool = False
    wait_seconds: float = 0.0
    """How long another node has its claim at most; 0 if none has."""


class TokenStore(Protocol):
    async def load(self, upstream: str, owner: Principal) -> UpstreamTokens | UnreadableTokens | None: ...

    async def claim_refresh(self, tokens: UpstreamTokens) -> RefreshClaim:
        """Claim the refresh of these tokens, if they are stored unchanged and no other node has claimed it."""
        ...

    async def save(self, tokens: UpstreamTokens, *, expected_version: int) -> bool:
        """Replace the tokens and end the claim, if there is one. False if another version is stored: nothing is written."""
        ...


class StoredTokens:
    """Implements `TokenStore` over the service's store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self, upstream: str, owner: Principal) -> UpstreamTokens | UnreadableTokens | None:
        return await self._store.read(lambda tx: tx.upstream_tokens.get(upstream, owner))

    async def claim_refresh(self, tokens: UpstreamTokens) -> RefreshClaim:
        async def claim(tx: Transaction) -> RefreshClaim:
            now, stored = tx.now(), await tx.upstream_tokens.get(tokens.upstream, tokens.owner)
            if isinstance(stored, UnreadableTokens) and stored.version == tokens.version:
                stored = tokens
            if isinstance(stored, UnreadableTokens):
                return RefreshClaim(tokens=stored)
            if stored is None or stored.version != tokens.version:
                return RefreshClaim(tokens=stored, wait_seconds=_get_wait_seconds(stored, now))
            if (wait_seconds := _get_wait_seconds(stored, now)) > 0:
                return RefreshClaim(tokens=stored, wait_seconds=wait_seconds)
            claimed = replace(
                stored, version=stored.version + 1, refresh_claimed_until=now + seconds(REFRESH_CLAIM_SECONDS)
            )
            is_ours = await tx.upstream_tokens.save(claimed, expected_version=stored.version)
            return RefreshClaim(tokens=claimed if is_ours else stored, is_ours=is_ours)

        return await write_for_owner(self._store, tokens.owner, claim)

    async def save(self, tokens: UpstreamTokens, *, expected_version: int) -> bool:
        async def save(tx: Transaction) -> bool:
            if not await tx.upstream_tokens.save(tokens, expected_version=expected_version):
                return False
            tx.notify(upstream_tokens_topic(tokens.upstream, tokens.owner))
            return True

        return await write_for_owner(self._store, tokens.owner, save)


class NoTokens:
    """Implements `TokenStore` for a process without a store, which has no logins."""

    async def load(self, upstream: str, owner: Principal) -> UpstreamTokens | None:  # noqa: ARG002 - the port's names
        return None

    async def claim_refresh(self, tokens: UpstreamTokens) -> RefreshClaim:  # noqa: ARG002 - the port's names
        return RefreshClaim(tokens=None)

    async def save(self, tokens: UpstreamTokens, *, expected_version: int) -> bool:  # noqa: ARG002 - the port's names
        return False


def _get_wait_seconds(tokens: UpstreamTokens | None, now: datetime) -> float:
    if tokens is None or tokens.refresh_claimed_until is None:
        return 0.0
    if is_of_wrong_clock(tokens.refresh_claimed_until, now=now):
        return 0.0  # a process that died while the clock was far ahead has left the claim
    return max(0.0, (tokens.refresh_claimed_until - now).total_seconds())
