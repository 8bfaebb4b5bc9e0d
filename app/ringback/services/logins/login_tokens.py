"""Writes the tokens of a completed login, deletes those of a login that ends, and revokes what is not used any more.

Another login may be that of another account. So both delete the stored lists of the upstream, as it showed them to the earlier
account, and each node replaces the connection of the owner.
"""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import datetime
from typing import Any, Final, NamedTuple

from ringback.domain.clock import epoch_milliseconds, seconds
from ringback.domain.errors import ContentUnreadable, StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import upstream_tokens_topic
from ringback.domain.upstream_logins import (
    SHARED_OWNER,
    GrantedTokens,
    LoginFlow,
    UnreadableTokens,
    UpstreamLogin,
    UpstreamTokens,
)

log = logging.getLogger(__name__)

REVOCATIONS_MAX: Final = 100
"""Revocations at the same time at each node. Each ends within seconds, and a principal has some dozen logins at most."""


class EndedLogin(NamedTuple):
    tokens: UpstreamTokens | None
    """None if no node can unseal them any more."""


async def get_readable_tokens(tx: Transaction, upstream: str, owner: Principal) -> UpstreamTokens | None:
    """The stored tokens. Raises `ContentUnreadable` if only other nodes can read them: they are changed there."""
    tokens = await tx.upstream_tokens.get(upstream, owner)
    if isinstance(tokens, UnreadableTokens):
        raise ContentUnreadable(
            f"There is a login to upstream '{upstream}', and this node lacks the key that sealed its tokens. Another node has "
            "it. Send the request again."
        )
    return tokens


async def end_login(tx: Transaction, upstream: str, owner: Principal) -> EndedLogin | None:
    """Delete the tokens of the owner and return them; None if there were none. Raises `ContentUnreadable`."""
    tokens = await get_readable_tokens(tx, upstream, owner)
    if not await tx.upstream_tokens.delete(upstream, owner):
        return None
    await _note_change(tx, upstream, owner)
    return EndedLogin(tokens)


async def replace_tokens(tx: Transaction, login: UpstreamLogin, granted: GrantedTokens) -> UpstreamTokens:
    """Store the tokens of a login and return them. Those of an earlier login, and what no node can unseal, are overwritten.

    Raises `ContentUnreadable`.
    """
    while True:
        stored = await get_readable_tokens(tx, login.upstream, login.owner)
        tokens = _make_tokens(login, granted, stored, now=tx.now())
        if stored is None:
            await tx.upstream_tokens.delete(login.upstream, login.owner)  # a row that no node can unseal any more
        if await tx.upstream_tokens.save(tokens, expected_version=None if stored is None else stored.version):
            await _note_change(tx, login.upstream, login.owner)
            return tokens


def _make_tokens(
    login: UpstreamLogin, granted: GrantedTokens, stored: UpstreamTokens | None, *, now: datetime
) -> UpstreamTokens:
    """The version also grows past that of tokens that were deleted: a refresh of theirs that is on its way loses."""
    lifetime = granted.lifetime_seconds
    return UpstreamTokens(
        upstream=login.upstream,
        owner=login.owner,
        version=max(epoch_milliseconds(now), 0 if stored is None else stored.version + 1),
        issuer=login.request.issuer,
        token_endpoint=login.request.token_endpoint,
        client=login.request.client,
        resource=login.request.resource,
        scope=granted.scope if granted.scope is not None else login.request.scope,
        access_token=granted.access_token,
        refresh_token=granted.refresh_token,
        obtained_at=now,
        expires_at=None if lifetime is None else now + seconds(lifetime),
        logged_in_by=login.principal,
        login_id=login.id,
    )


async def _note_change(tx: Transaction, upstream: str, owner: Principal) -> None:
    if owner == SHARED_OWNER:
        await tx.catalog.remove_upstream(upstream)
    else:
        await tx.owned_catalog.remove_owned(upstream, owner)
    tx.notify(upstream_tokens_topic(upstream, owner))


class LoginRevocations:
    """Revokes tokens that are not stored any more, without a request that waits for it.

    The authorization server may be slow or gone. So a revocation is tried once, and a node that stops gives its revocations up.
    """

    def __init__(self, flow: LoginFlow) -> None:
        self._flow = flow
        self._running: set[asyncio.Task[None]] = set()

    def revoke_unsaved(self, store: Store, login: UpstreamLogin, granted: GrantedTokens) -> None:
        """Revoke the tokens of a login whose unit failed, unless they are stored after all. Call it after the unit."""
        self._start_revocation(self._revoke_unsaved(store, login, granted), login.upstream)

    def revoke_later(self, tokens: UpstreamTokens) -> None:
        """Call it after the unit that removed the tokens is committed."""
        self._start_revocation(self._flow.revoke_tokens(tokens), tokens.upstream)

    def _start_revocation(self, revocation: Coroutine[Any, Any, None], upstream: str) -> None:
        if len(self._running) >= REVOCATIONS_MAX:
            revocation.close()
            log.warning("login.not_revoked", extra={"upstream": upstream, "failure": "busy"})
            return
        task = asyncio.create_task(revocation, name="login-revocation")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _revoke_unsaved(self, store: Store, login: UpstreamLogin, granted: GrantedTokens) -> None:
        async def read(tx: Transaction) -> tuple[UpstreamTokens | UnreadableTokens | None, UpstreamTokens]:
            unsaved = _make_tokens(login, granted, None, now=tx.now())
            return await tx.upstream_tokens.get(login.upstream, login.owner), unsaved

        try:
            stored, unsaved = await store.read(read)
        except StoreUnavailable:  # the commit may have been lost, and the tokens be stored
            log.warning("login.not_revoked", extra={"upstream": login.upstream, "failure": "store_unavailable"})
            return
        if isinstance(stored, UnreadableTokens):  # they may be of the same grant, which other nodes use
            log.warning("login.not_revoked", extra={"upstream": login.upstream, "failure": "tokens_unreadable"})
        elif stored is None or ends_grant_of(stored, unsaved):
            await self._flow.revoke_tokens(unsaved)


def ends_grant_of(replacement: UpstreamTokens, replaced: UpstreamTokens) -> bool:
    """Whether the replaced tokens belong to a grant of their own, which is not used any more.

    An authorization server may keep one grant for a user and a client. Then the revocation of the older tokens also ends the
    newer ones (RFC 7009 §2.1), so tokens of the same client are not revoked.
    """
    return (replaced.issuer, replaced.client.client_id) != (replacement.issuer, replacement.client.client_id)
