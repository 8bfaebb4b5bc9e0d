"""Proofs of callback URLs that are needed before anything is stored: events/subscribe succeeds only after its challenge.

    proven to this principal, or allowlisted ──▶ nothing is sent, unless the proof must be a new one
    else: counted against the limits ──▶ challenge ──▶ proof stored, or the reason of the failure

Webhooks of REST are stored first and challenged afterwards (`services.webhooks.verification`). Both share limits and proofs.

Challenges of one principal to one origin go one after the other: the AI SDK subscribes with a new URL each time, so a client
that starts sends many at once. Each answered challenge frees its place in the limit of the origin before the next one is
counted.
"""

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ringback.domain.attempt_category import WIRE_REASONS, AttemptCategory
from ringback.domain.errors import QuotaExceeded
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store
from ringback.domain.principal import Principal
from ringback.domain.verification import Challenge
from ringback.domain.webhook import Webhook
from ringback.key_locks import KeyLocks
from ringback.notifier.challenge_sender import ChallengeSender, OutgoingChallenge
from ringback.notifier.http.target import TargetCache, TargetPolicy
from ringback.protocol.mcp_events.errors import CallbackFailure, EventError, callback_endpoint_error
from ringback.services.webhooks.verification import WebhookVerification

PRINCIPAL_PROOFS_MAX: Final = 16
"""Requests of one principal that wait for a proof at the same time: as many challenges as the verifier has in flight."""
TURN_SECONDS_MAX: Final = 5.0
"""How long a request waits for earlier challenges to its origin: as long as a challenge to a silent receiver takes."""

_DETAILS: Final[dict[CallbackFailure, str]] = {
    CallbackFailure.CONNECTION_REFUSED: "No connection to delivery.url was possible, or its address is not public.",
    CallbackFailure.TIMEOUT: "The receiver at delivery.url did not answer the verification challenge in time.",
    CallbackFailure.TLS_ERROR: "The TLS handshake with the receiver at delivery.url failed.",
    CallbackFailure.HTTP_4XX: "The receiver at delivery.url refused the verification challenge: "
    "its secret must be delivery.secret. Redirects are not followed.",
    CallbackFailure.HTTP_5XX: "The receiver at delivery.url failed at the verification challenge.",
    CallbackFailure.CHALLENGE_FAILED: 'The receiver at delivery.url must answer the challenge with 2xx and {"challenge": …}.',
}


class CallbackProofs:
    def __init__(
        self,
        *,
        store: Store,
        ids: IdGenerator,
        sender: ChallengeSender,
        verification: WebhookVerification,
        targets: TargetPolicy,
    ) -> None:
        self._store = store
        self._ids = ids
        self._sender = sender
        self._verification = verification
        self._targets = TargetCache(targets)
        self._turns = KeyLocks()
        self._waiting: Counter[Principal] = Counter()

    async def require_proof(self, webhook: Webhook, *, is_anew: bool = False) -> None:
        """Return once the URL of this webhook, which is not stored yet, is proven to its principal; with `is_anew`, now.

        Raises `EventError` (CallbackEndpointError) with the category of the failure, and `QuotaExceeded` if no challenge can be
        sent now. Takes at most about 15 s: the turn, the challenge, and the published list of the origin.
        """
        if not await self._store.read(lambda tx: self._verification.needs_proof(tx, webhook, is_anew=is_anew)):
            return
        with self._count_waiting(webhook.principal):
            turn = self._turns.hold(f"{webhook.principal}\0{self._targets.get_origin(webhook.url)}")
            try:
                async with asyncio.timeout(TURN_SECONDS_MAX):
                    await turn.acquire()
            except TimeoutError:
                raise _exceeded("challenges_of_origin", 1) from None
            try:
                await self._challenge(webhook, is_anew=is_anew)
            finally:
                turn.release()

    async def _challenge(self, webhook: Webhook, *, is_anew: bool) -> None:
        token = self._ids.new_lease_token()
        reserved = await self._store.write_for(
            webhook.principal,
            lambda tx: self._verification.reserve_challenge(tx, webhook, token=token, is_anew=is_anew),
        )
        if reserved is None:
            return  # proven meanwhile
        failure = await self._sender.send_challenge(_outgoing_challenge(webhook, reserved))
        if failure is not None:
            raise _describe_failure(failure.category)
        await self._store.write_for(webhook.principal, lambda tx: self._verification.record_proof(tx, reserved))

    @contextmanager
    def _count_waiting(self, principal: Principal) -> Generator[None]:
        if self._waiting[principal] >= PRINCIPAL_PROOFS_MAX:
            raise _exceeded("challenges_at_once", PRINCIPAL_PROOFS_MAX)
        self._waiting[principal] += 1
        try:
            yield
        finally:
            self._waiting[principal] -= 1
            if not self._waiting[principal]:
                del self._waiting[principal]


def _outgoing_challenge(webhook: Webhook, challenge: Challenge) -> OutgoingChallenge:
    return OutgoingChallenge(
        webhook_id=webhook.id,
        principal=webhook.principal,
        url=webhook.url,
        secrets=[secret.value for secret in webhook.secrets],
        message_suffix=(challenge.token or "").partition("_")[2],
    )


def _describe_failure(category: AttemptCategory) -> EventError:
    reason = CallbackFailure(WIRE_REASONS[category])
    return callback_endpoint_error(reason, _DETAILS[reason])


def _exceeded(quota: str, limit: int) -> QuotaExceeded:
    return QuotaExceeded(
        "Other verification challenges of yours are still running. Nothing was done. Try again in a few seconds.",
        retry_after_seconds=round(TURN_SECONDS_MAX),
        quota=quota,
        limit=limit,
    )
