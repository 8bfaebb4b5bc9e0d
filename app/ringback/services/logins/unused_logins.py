"""Removes the tokens for upstreams that the configuration does not have any more (`domain.unused_logins`)."""

import logging
from collections.abc import Collection

from ringback.domain.clock import seconds
from ringback.domain.ports import Transaction
from ringback.domain.unused_logins import UNUSED_SECONDS, UPSTREAMS_MAX

log = logging.getLogger(__name__)


async def mark_unused_logins(tx: Transaction, configured: Collection[str]) -> None:
    """`configured` are all upstreams of this node's configuration. A node without any knows nothing about them."""
    if not configured:
        return
    found = await tx.unused_logins.list_upstreams(limit=UPSTREAMS_MAX)
    await tx.unused_logins.unmark(configured)
    unused = sorted(set(found) - set(configured))
    if unused and await tx.unused_logins.mark(unused, now=tx.now()):
        log.warning("upstream.tokens_unused", extra={"upstreams": unused})


async def remove_unused_tokens(tx: Transaction, *, limit: int) -> bool:
    """Remove a batch of tokens that have been unused for too long. Return whether there may be more."""
    unused = await tx.unused_logins.find_due(cutoff=tx.confirmed_now() - seconds(UNUSED_SECONDS))
    if unused is None:
        return False
    removed = await tx.unused_logins.remove_tokens(unused, limit=limit)
    if removed < limit:
        await tx.unused_logins.unmark([unused.upstream])
    log.warning("upstream.tokens_removed", extra={"upstream": unused.upstream, "count": removed})
    return True
