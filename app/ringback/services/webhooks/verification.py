"""Decides which webhooks must prove that their URL accepts callbacks, and schedules challenges. The verifier sends them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from ringback.domain.clock import Clock
from ringback.domain.errors import QuotaExceeded, StoreUnavailable
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.verification import (
    CHALLENGE_PLANNED_TOPIC,
    Challenge,
    challenge_ended_topic,
    seconds_until_oldest_expires,
)
from ringback.domain.webhook import Webhook, WebhookOrigin, WebhookState
from ringback.domain.webhook_rows import WebhookPart, changed_parts
from ringback.notifier.http.target import TargetPolicy, parse_target
from ringback.notifier.verification import (
    CallbackAllowlist,
    ChallengeLimit,
    accept_proof,
    count_against_limits,
    is_proven,
)
from ringback.services.lifecycle import Lifecycle
from ringback.services.long_polling import poll_until
from ringback.services.webhooks.webhook_checks import get_own_webhook

FIRST_CHALLENGE_WAIT_SECONDS: Final = 6.0
"""How long a response waits for the first challenge, which takes 5 s at most. The challenge continues after that."""

VerificationMode = Literal["mcp", "always"]
"""Which webhooks need a proof: those of MCP clients, or all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationPolicy:
    mode: VerificationMode = "mcp"
    allowlist: Sequence[str] = ()
    """Prefixes of URLs that need no proof, as the operator decides."""
    first_challenge_wait_seconds: float = FIRST_CHALLENGE_WAIT_SECONDS


class WebhookVerification:
    """Methods with a transaction parameter run inside their caller's transaction."""

    def __init__(
        self, *, store: Store, clock: Clock, lifecycle: Lifecycle, targets: TargetPolicy, policy: VerificationPolicy
    ) -> None:
        """Raises `InvalidCallbackUrl` for an invalid allowlist."""
        self._store = store
        self._clock = clock
        self._lifecycle = lifecycle
        self._targets = targets
        self._policy = policy
        self._allowlist = CallbackAllowlist(policy.allowlist, targets)

    async def insert_webhook(self, tx: Transaction, webhook: Webhook) -> Webhook:
        """Store a new webhook in its first state. Raises `QuotaExceeded` if it needs a challenge and none can be sent now."""
        if not await self.needs_proof(tx, webhook):
            await tx.webhooks.insert(webhook)
            return webhook
        pending = replace(webhook, state=WebhookState.PENDING_VERIFICATION)
        await self._require_challenge_quota(tx, pending)
        await tx.webhooks.insert(pending)
        await self._schedule_challenge(tx, pending)
        return pending

    async def update_webhook(self, tx: Transaction, previous: Webhook, updated: Webhook) -> Webhook:
        """Store a changed webhook. A new URL needs its own proof before the next delivery."""
        updated = await self._with_verified_state(tx, previous, updated)
        is_pending = updated.state is WebhookState.PENDING_VERIFICATION
        needs_challenge = is_pending and (updated.state, updated.url) != (previous.state, previous.url)
        if needs_challenge:
            await self._require_challenge_quota(tx, updated)  # before anything is written
        await tx.webhooks.update(updated, *{WebhookPart.SETTINGS, *changed_parts(previous, updated)})
        if updated.url != previous.url:
            await tx.challenges.remove(updated.id)
        if needs_challenge:
            await self._schedule_challenge(tx, updated)
        return updated

    async def restart_challenge(self, tx: Transaction, webhook: Webhook) -> None:
        """Challenge the webhook again, from the first retry step. A webhook that needs no proof becomes active instead."""
        if webhook.state is WebhookState.PENDING_VERIFICATION and not await self.needs_proof(tx, webhook):
            await accept_proof(tx, webhook, url=webhook.url)
            return
        await self._require_challenge_quota(tx, webhook)
        await self._schedule_challenge(tx, webhook)

    async def reserve_challenge(
        self, tx: Transaction, webhook: Webhook, *, token: str, is_anew: bool = False
    ) -> Challenge | None:
        """Count a challenge that the caller sends itself, before the webhook is stored; None if the URL needs no proof.

        Raises `QuotaExceeded` if none can be sent now.
        """
        if not await self.needs_proof(tx, webhook, is_anew=is_anew):
            return None
        await tx.sent_challenges.lock()
        await self._require_challenge_quota(tx, webhook)
        challenge = replace(self._build_challenge(tx, webhook), attempts=1, token=token)
        await tx.challenges.record_sent(challenge, now=tx.now())
        return challenge

    async def record_proof(self, tx: Transaction, challenge: Challenge) -> None:
        """Save the proof that the response to a reserved challenge was."""
        await tx.sent_challenges.record_answered(challenge.origin, challenge.principal)
        await tx.proofs.save(challenge.principal, challenge.url, now=tx.now())

    async def needs_proof(self, tx: Transaction, webhook: Webhook, *, is_anew: bool = False) -> bool:
        """Whether the URL must answer a challenge before the webhook may become active. With `is_anew`, proofs do not count."""
        if self._policy.mode == "mcp" and webhook.origin is not WebhookOrigin.MCP:
            return False
        if self._allowlist.allows_target(parse_target(webhook.url, self._targets)):
            return False
        return is_anew or not await is_proven(tx, webhook)

    async def wait_for_challenge(self, webhook_id: WebhookId) -> None:
        """Return when the first challenge has ended, or after the longest wait of the policy."""

        async def challenge(tx: Transaction) -> Challenge | None:
            return await tx.challenges.get(webhook_id)

        await poll_until(
            lambda: self._store.read(challenge),
            lambda found: found is None or found.has_ended_attempt,
            signals=self._store.signals,
            topics=[challenge_ended_topic(webhook_id)],
            wait_seconds=self._policy.first_challenge_wait_seconds,
            clock=self._clock,
            lifecycle=self._lifecycle,
        )

    async def wait_until_challenged(self, webhook: Webhook) -> Webhook:
        """Wait for the first challenge if the webhook needs one. Raises `NotFound` if it was removed in the meantime.

        The webhook is stored, and only the response to its registration has its generated secret. So if the store becomes
        unavailable, return the webhook as it was before the wait.
        """
        if webhook.state is not WebhookState.PENDING_VERIFICATION:
            return webhook
        try:
            await self.wait_for_challenge(webhook.id)
            return await self._store.read(lambda tx: get_own_webhook(tx, webhook.principal, webhook.id))
        except StoreUnavailable:
            return webhook

    async def _with_verified_state(self, tx: Transaction, previous: Webhook, updated: Webhook) -> Webhook:
        has_new_url = updated.url != previous.url
        is_enabled = previous.state is WebhookState.DISABLED and updated.state is WebhookState.ACTIVE
        if updated.state is WebhookState.DISABLED or not (has_new_url or is_enabled):
            return updated
        if await self.needs_proof(tx, updated):
            return replace(updated, state=WebhookState.PENDING_VERIFICATION)
        was_pending = updated.state is WebhookState.PENDING_VERIFICATION
        return replace(updated, state=WebhookState.ACTIVE) if was_pending else updated

    async def _schedule_challenge(self, tx: Transaction, webhook: Webhook) -> None:
        await tx.challenges.save(self._build_challenge(tx, webhook))
        tx.notify(CHALLENGE_PLANNED_TOPIC)

    def _build_challenge(self, tx: Transaction, webhook: Webhook) -> Challenge:
        return Challenge(
            webhook_id=webhook.id,
            principal=webhook.principal,
            url=webhook.url,
            origin=self._target_origin(webhook),
            due_at=tx.now(),
        )

    async def _require_challenge_quota(self, tx: Transaction, webhook: Webhook) -> None:
        """Raise `QuotaExceeded` at the limit. Waiting challenges count, so that concurrent registrations cannot exceed it."""
        limits = await count_against_limits(tx, origin=self._target_origin(webhook), principal=webhook.principal)
        for limit in limits:
            _require_below_limit(limit, tx.now())

    def _target_origin(self, webhook: Webhook) -> str:
        return parse_target(webhook.url, self._targets).origin


def _require_below_limit(checked: ChallengeLimit, now: datetime) -> None:
    recent, limit, quota = checked.recent, checked.limit, checked.quota
    if recent.sent_count + recent.waiting_count < limit:
        return
    raise QuotaExceeded(
        f"{limit} challenges per minute are sent to prove callback URLs, and all are used ('{quota}'). Nothing was done. "
        "Try again later, or let the operator add the URL to RINGBACK_CALLBACK_ALLOWLIST.",
        retry_after_seconds=math.ceil(seconds_until_oldest_expires(recent, now=now)),
        quota=quota,
        limit=limit,
    )
