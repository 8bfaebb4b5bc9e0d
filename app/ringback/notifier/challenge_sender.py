"""Sends one verification challenge: a signed POST with a nonce, which the receiver repeats in its response."""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.callback_headers import CallbackHeaders
from ringback.domain.clock import Clock
from ringback.domain.delivery import AttemptResult
from ringback.domain.errors import InvalidCallbackUrl
from ringback.domain.ids import IdGenerator
from ringback.domain.principal import Principal
from ringback.notifier.attempts import redact_result
from ringback.notifier.http.sender import HttpRequester
from ringback.notifier.http.target import Target, TargetPolicy, parse_target
from ringback.notifier.payload import build_callback_headers, build_verification_body
from ringback.notifier.verification import PublishedReceiverLists, parse_json_object
from ringback.signing.ed25519 import SigningKey

CHALLENGE_TIMEOUT_SECONDS: Final = 5.0
"""For one challenge: a client waits for the response to its registration (and MCP events allow as long, §8)."""
NONCE_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingChallenge:
    """What one challenge is made of. The webhook need not be stored yet."""

    webhook_id: str
    principal: Principal
    url: str
    secrets: Sequence[str] = field(repr=False)
    headers: CallbackHeaders = field(default=(), repr=False)
    message_suffix: str
    """Random; the webhook-id ends with it."""


class ChallengeSender:
    def __init__(
        self,
        *,
        clock: Clock,
        ids: IdGenerator,
        requester: HttpRequester,
        policy: TargetPolicy,
        signing_keys: Sequence[SigningKey] = (),
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._requester = requester
        self._policy = policy
        self._signing_keys = signing_keys
        self._receiver_lists = PublishedReceiverLists(requester, clock=clock, policy=policy)

    async def send_challenge(self, challenge: OutgoingChallenge) -> AttemptResult | None:
        """Why the URL is not proven; None if it is proven, by its response or by the published list of its origin."""
        try:
            target = parse_target(challenge.url, self._policy)
        except InvalidCallbackUrl:  # the operator's policy has become stricter since the registration
            return AttemptResult(category=AttemptCategory.URL_NOT_ALLOWED)
        nonce = urlsafe_b64encode(self._ids.random_bytes(NONCE_BYTES)).decode()
        result, response_body = await self._post(challenge, target, build_verification_body(nonce))
        if result.category is AttemptCategory.DELIVERED and echoes_nonce(response_body, nonce):
            return None
        if result.status_code is not None and await self._receiver_lists.lists_target(target, challenge.principal):
            return None
        return redact_result(_challenge_failure(result), challenge.headers)

    async def _post(self, challenge: OutgoingChallenge, target: Target, body: bytes) -> tuple[AttemptResult, bytes]:
        headers = build_callback_headers(
            webhook_id=challenge.webhook_id,
            message_id=f"msg_verification_{challenge.message_suffix}",
            body=body,
            secrets=challenge.secrets,
            signing_keys=self._signing_keys,
            now=self._clock.wall_time(),
        )
        return await self._requester.send_request(
            "POST",
            target,
            dict(challenge.headers) | headers,
            body,
            principal=challenge.principal,
            deadline_seconds=CHALLENGE_TIMEOUT_SECONDS,
        )


def echoes_nonce(response_body: bytes, nonce: str) -> bool:
    """Whether the response is JSON with this challenge; compared in constant time."""
    challenge = parse_json_object(response_body).get("challenge")
    return isinstance(challenge, str) and hmac.compare_digest(challenge.encode(), nonce.encode())


def _challenge_failure(result: AttemptResult) -> AttemptResult:
    """The attempt's result, but `challenge_failed` for a 2xx without the nonce."""
    if result.category is AttemptCategory.DELIVERED:
        return replace(result, category=AttemptCategory.CHALLENGE_FAILED)
    return result
