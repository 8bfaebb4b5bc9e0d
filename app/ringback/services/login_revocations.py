"""Revokes tokens that are not stored any more, without a request that waits for it.

The authorization server may be slow or gone. So a revocation is tried once, and a node that stops gives its revocations up.
"""

import asyncio
import logging
from typing import Final

from ringback.domain.upstream_logins import LoginFlow, UpstreamTokens

log = logging.getLogger(__name__)

REVOCATIONS_MAX: Final = 100
"""Revocations at the same time at each node. Each ends within seconds, and a principal has some dozen logins at most."""


class LoginRevocations:
    def __init__(self, flow: LoginFlow) -> None:
        self._flow = flow
        self._running: set[asyncio.Task[None]] = set()

    def revoke_later(self, tokens: UpstreamTokens) -> None:
        """Call it after the unit that removed the tokens is committed."""
        if len(self._running) >= REVOCATIONS_MAX:
            log.warning("login.not_revoked", extra={"upstream": tokens.upstream, "failure": "busy"})
            return
        task = asyncio.create_task(self._flow.revoke_tokens(tokens), name="login-revocation")
        self._running.add(task)
        task.add_done_callback(self._running.discard)


def ends_grant_of(replacement: UpstreamTokens, replaced: UpstreamTokens) -> bool:
    """Whether the replaced tokens belong to a grant of their own, which is not used any more.

    An authorization server may keep one grant for a user and a client. Then the revocation of the older tokens also ends the
    newer ones (RFC 7009 §2.1), so tokens of the same client are not revoked.
    """
    return (replaced.issuer, replaced.client.client_id) != (replacement.issuer, replacement.client.client_id)
