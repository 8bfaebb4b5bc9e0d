"""New tokens for stored ones: the token request of a claimed refresh, and the write of its result.

Between the claim and the write, another write may raise the version: a demand for a scope, or the end of the login that the old
access token caused. The result of the refresh is then written over it, because the old refresh token may be used up. A login, a
logout and the refresh of another node win: their tokens are of another grant. After a logout the new tokens are revoked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

from ringback.domain.clock import Clock
from ringback.domain.upstream_logins import LoginFailed, UnreadableTokens, UpstreamTokens
from ringback.upstreams.oauth.client_store import ClientStore
from ringback.upstreams.oauth.metadata_http import MetadataHttp
from ringback.upstreams.oauth.registration import forget_client
from ringback.upstreams.oauth.revocation import revoke_at_server
from ringback.upstreams.oauth.token_requests import TokenRefused, apply_grant, refresh_tokens
from ringback.upstreams.oauth.token_responses import CLIENT_UNKNOWN
from ringback.upstreams.oauth.token_store import TokenStore

log = logging.getLogger(__name__)
T = TypeVar("T")

CLAIM_POLL_SECONDS: Final = 0.25
"""How often a node that waits for another node's refresh reads the store, if no notification arrives."""
SAVE_PAUSES_SECONDS: Final = (0.2, 1.0, 5.0)
"""Between attempts to save new tokens: a database that restarts is back in this time."""
SAVES_MAX: Final = 100
"""Writes of others that one refresh follows: each demand for scopes writes once, and an upstream gets a hundred scopes."""


class TokenRenewal:
    def __init__(self, store: TokenStore, clients: ClientStore, http: MetadataHttp, *, clock: Clock) -> None:
        self._store = store
        self._clients = clients
        self._http = http
        self._clock = clock

    async def request_tokens(self, claimed: UpstreamTokens) -> UpstreamTokens | None:
        """The tokens after the refresh, without the claim; None if the authorization server could not be asked."""
        unclaimed = end_claim(claimed)
        if claimed.refresh_token is None:
            return replace(unclaimed, access_token=None)
        requested_at = self._clock.now()
        try:
            granted = await refresh_tokens(self._http, claimed, refresh_token=claimed.refresh_token)
        except LoginFailed as failure:
            details = {"upstream": claimed.upstream, "failure": str(failure.failure)}
            if isinstance(failure, TokenRefused):
                log.warning("upstream.login_ended", extra=details)
                if failure.code == CLIENT_UNKNOWN:
                    await forget_client(self._clients, claimed.issuer, claimed.client)
                return replace(unclaimed, access_token=None, refresh_token=None)
            log.warning("upstream.tokens_not_refreshed", extra=details)
            return None
        return apply_grant(unclaimed, granted, requested_at)

    async def save(self, renewed: UpstreamTokens, *, claimed: UpstreamTokens) -> bool:
        """Save the result of a refresh. False if the stored tokens are other ones now."""
        if await self._persist(lambda: self._store.save(renewed, expected_version=claimed.version), claimed):
            return True
        for _ in range(SAVES_MAX):
            stored = await self._persist(lambda: self._store.load(claimed.upstream, claimed.owner), claimed)
            if stored is None or isinstance(stored, UnreadableTokens) or not _is_same_grant(stored, claimed):
                break
            if await self._save_over(stored, renewed, claimed):
                break
        return False

    async def revoke_unstored(self, renewed: UpstreamTokens, *, claimed: UpstreamTokens) -> None:
        """Revoke new tokens if their login has ended during the refresh: its end revoked only the claimed ones.

        Not if another login has replaced it: an authorization server may keep one grant for a user and a client.
        """
        if renewed.access_token in {None, claimed.access_token}:
            return
        if await self._persist(lambda: self._store.load(claimed.upstream, claimed.owner), claimed) is None:
            await revoke_at_server(self._http, renewed)

    async def _save_over(self, stored: UpstreamTokens, renewed: UpstreamTokens, claimed: UpstreamTokens) -> bool:
        merged = _merge(stored, renewed, claimed)
        return await self._persist(lambda: self._store.save(merged, expected_version=stored.version), claimed)

    async def _persist(self, access: Callable[[], Awaitable[T]], claimed: UpstreamTokens) -> T:
        """Try again if the store fails: without the write, a rotated refresh token is lost."""
        for pause_seconds in SAVE_PAUSES_SECONDS:
            try:
                return await access()
            except Exception:  # noqa: BLE001 - whatever it is, trying again is right
                log.warning("upstream.tokens_not_saved", extra={"upstream": claimed.upstream})
                await self._clock.sleep(pause_seconds)
        return await access()


async def wait_for_other_node(changed: asyncio.Event, wait_seconds: float, *, clock: Clock) -> None:
    """Wait a moment for the notification of another node's refresh, but no longer than its claim."""
    notified = asyncio.create_task(changed.wait())
    pausing = asyncio.create_task(clock.sleep(min(wait_seconds, CLAIM_POLL_SECONDS)))
    try:
        await asyncio.wait({notified, pausing}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        notified.cancel()
        pausing.cancel()


def end_claim(tokens: UpstreamTokens) -> UpstreamTokens:
    return replace(tokens, version=tokens.version + 1, refresh_claimed_until=None)


def _is_same_grant(stored: UpstreamTokens, claimed: UpstreamTokens) -> bool:
    """Whether the stored tokens are the claimed ones, with other notes of what the upstream refused."""
    is_same_login = (stored.login_id, stored.refresh_token) == (claimed.login_id, claimed.refresh_token)
    return is_same_login and stored.access_token in {None, claimed.access_token}


def _merge(stored: UpstreamTokens, renewed: UpstreamTokens, claimed: UpstreamTokens) -> UpstreamTokens:
    merged = replace(renewed, version=stored.version + 1, required_scope=stored.required_scope)
    if renewed.access_token == claimed.access_token:  # there is no new token, and the old one may have been refused
        return replace(merged, access_token=stored.access_token)
    return merged
