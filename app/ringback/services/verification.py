"""Which webhooks have to prove that their URL wants callbacks, and what is done about it. The verifier challenges them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from ringback.domain.clock import Clock
from ringback.domain.errors import QuotaExceeded
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.verification import (
    CHALLENGES,
    PER_ORIGIN_MAX,
    PER_PRINCIPAL_MAX,
    Asked,
    Challenge,
    challenged,
    seconds_until_less,
)
from ringback.domain.webhook import Origin, Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart, changed_parts
from ringback.notifier.consent import Allowlist
from ringback.notifier.target_guard import TargetPolicy, parse_target
from ringback.notifier.verifier import accept, is_proven
from ringback.services.lifecycle import Lifecycle
from ringback.services.waiting import look_until
from ringback.services.webhook_rules import own_webhook

PATIENCE_SECONDS: Final = 6.0
"""How long an answer waits for the first challenge, which takes 5 s at most. It goes on without us after that."""

Mode = Literal["mcp", "always"]
"""Whose webhooks have to prove themselves: those of MCP clients, or every one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationPolicy:
    mode: Mode = "mcp"
    allowlist: Sequence[str] = ()
    """Prefixes of URLs that the operator vouches for."""
    patience_seconds: float = PATIENCE_SECONDS


class Verification:
    """Every method that takes a transaction runs inside one of its caller's."""

    def __init__(
        self, *, store: Store, clock: Clock, lifecycle: Lifecycle, targets: TargetPolicy, policy: VerificationPolicy
    ) -> None:
        """Raises `InvalidCallbackUrl` for an allowlist that is none."""
        self._store = store
        self._clock = clock
        self._lifecycle = lifecycle
        self._targets = targets
        self._policy = policy
        self._allowlist = Allowlist(policy.allowlist, targets)

    async def insert(self, tx: Transaction, webhook: Webhook) -> Webhook:
        """Store a new webhook, in the state that it is to have. Raises `QuotaExceeded` when no challenge may be sent now."""
        if not await self._needs_proof(tx, webhook):
            await tx.webhooks.insert(webhook)
            return webhook
        pending = replace(webhook, state=WebhookState.PENDING_VERIFICATION)
        await self._require_room(tx, pending)
        await tx.webhooks.insert(pending)
        await self._plan(tx, pending)
        return pending

    async def update(self, tx: Transaction, before: Webhook, after: Webhook) -> Webhook:
        """Store a changed webhook. One whose URL is another has to prove that one, before anything more is sent."""
        after = await self._judged(tx, before, after)
        waits = after.state is WebhookState.PENDING_VERIFICATION
        to_prove = waits and (after.state, after.url) != (before.state, before.url)
        if to_prove:
            await self._require_room(tx, after)  # before anything is written
        await tx.webhooks.update(after, *{WebhookPart.SETTINGS, *changed_parts(before, after)})
        if after.url != before.url:
            await tx.challenges.drop(after.id)
        if to_prove:
            await self._plan(tx, after)
        return after

    async def again(self, tx: Transaction, webhook: Webhook) -> None:
        """Challenge it anew, from the beginning of the ladder; one that has nothing to prove is active instead."""
        if webhook.state is WebhookState.PENDING_VERIFICATION and not await self._needs_proof(tx, webhook):
            await accept(tx, webhook, url=webhook.url)
            return
        await self._require_room(tx, webhook)
        await self._plan(tx, webhook)

    async def wait(self, webhook_id: WebhookId) -> None:
        """Return when its first challenge has ended, or when whoever waits has waited long enough."""

        async def challenge(tx: Transaction) -> Challenge | None:
            return await tx.challenges.get(webhook_id)

        await look_until(
            lambda: self._store.read(challenge),
            lambda found: found is None or found.answered,
            signals=self._store.signals,
            topics=[challenged(webhook_id)],
            wait_seconds=self._policy.patience_seconds,
            clock=self._clock,
            lifecycle=self._lifecycle,
        )

    async def once_challenged(self, webhook: Webhook) -> Webhook:
        """The webhook once its URL has been challenged, if it has to be; raises `NotFound` when it was removed meanwhile."""
        if webhook.state is not WebhookState.PENDING_VERIFICATION:
            return webhook
        await self.wait(webhook.id)
        return await self._store.read(lambda tx: own_webhook(tx, webhook.principal, webhook.id))

    async def _judged(self, tx: Transaction, before: Webhook, after: Webhook) -> Webhook:
        moved = after.url != before.url
        switched_on = before.state is WebhookState.DISABLED and after.state is WebhookState.ACTIVE
        if after.state is WebhookState.DISABLED or not (moved or switched_on):
            return after
        if await self._needs_proof(tx, after):
            return replace(after, state=WebhookState.PENDING_VERIFICATION)
        waited = after.state is WebhookState.PENDING_VERIFICATION
        return replace(after, state=WebhookState.ACTIVE) if waited else after

    async def _needs_proof(self, tx: Transaction, webhook: Webhook) -> bool:
        if self._policy.mode == "mcp" and webhook.origin is not Origin.MCP:
            return False
        if self._allowlist.allows(parse_target(webhook.url, self._targets)):
            return False
        return not await is_proven(tx, webhook)

    async def _plan(self, tx: Transaction, webhook: Webhook) -> None:
        await tx.challenges.put(
            Challenge(
                webhook_id=webhook.id,
                principal=webhook.principal,
                url=webhook.url,
                origin=self._origin(webhook),
                due_at=tx.now(),
            )
        )
        tx.ring(CHALLENGES)

    async def _require_room(self, tx: Transaction, webhook: Webhook) -> None:
        """Those that wait for their turn count, too: however many register at once, none of them is too many."""
        now = tx.now()
        of_origin = await tx.challenges.asked(origin=self._origin(webhook), now=now)
        of_principal = await tx.challenges.asked(principal=webhook.principal, now=now)
        _require(of_origin, PER_ORIGIN_MAX, "challenges_of_origin", now)
        _require(of_principal, PER_PRINCIPAL_MAX, "challenges", now)

    def _origin(self, webhook: Webhook) -> str:
        return parse_target(webhook.url, self._targets).origin


def _require(asked: Asked, limit: int, quota: str, now: datetime) -> None:
    if asked.sent + asked.waiting < limit:
        return
    raise QuotaExceeded(
        f"{limit} challenges a minute are sent to prove callback URLs, and they are used up ('{quota}'). Nothing was done. "
        "Try again later, or have the operator put the URL on RINGBACK_CALLBACK_ALLOWLIST.",
        retry_after_seconds=math.ceil(seconds_until_less(asked, now=now)),
        quota=quota,
        limit=limit,
    )
