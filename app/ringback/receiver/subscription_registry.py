"""The secrets of several subscriptions, and how far each has been received.

    add(secret) ──▶ no id yet ──a signed verification names the id──▶ bound to the id ──▶ callbacks of that id
                        └──── bind(id, secret), from the subscribe response ────┘

A server challenges the callback URL before the client knows the subscription's id (mcp-events §8), which may be that of a known
subscription. So a verification is tested against every secret without an id, too, and binds its own. Any other message needs a
bound secret: one whose subscribe response has not been read yet gets 503, and comes again within seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ringback.signing.standard_webhooks import VerifiedMessage, check_secret, compute_fingerprint

UNBOUND_SECRETS_MAX: Final = 64
"""Subscribe requests at the same time. Each of their secrets is tried with a verification: an HMAC of a small body."""
SECRETS_OF_ONE_MAX: Final = 4
"""The newest secrets of one subscription: servers sign with the old and the new one for about a day."""


@dataclass(slots=True)
class _RegisteredSubscription:
    secrets: list[str] = field(repr=False)
    """Newest first."""
    cursor: str | None = None


class SubscriptionRegistry:
    """Pass it as the secrets of a `ReceiverApp`: `ReceiverApp(registry, on_callback=…)`. For one event loop."""

    def __init__(self) -> None:
        self._bound: dict[str, _RegisteredSubscription] = {}
        self._unbound: list[str] = []

    def __call__(self, subscription_id: str | None) -> Sequence[str]:
        """The secrets with which a message of this subscription may be signed: its own, and those without an id."""
        found = self._bound.get(subscription_id or "")
        return [*(() if found is None else found.secrets), *self._unbound]

    def is_bound(self, subscription_id: str | None) -> bool:
        return subscription_id in self._bound

    def has_signed(self, subscription_id: str | None, message: VerifiedMessage) -> bool:
        """Whether the secret that verified the message is bound to this subscription."""
        found = self._bound.get(subscription_id or "")
        secrets = () if found is None else found.secrets
        return any(compute_fingerprint(secret) == message.key_fingerprint for secret in secrets)

    def add(self, secret: str) -> None:
        """Accept this secret for a subscription whose id is not known yet. Call it before events/subscribe.

        Raises `InvalidSecret`, and ValueError if too many secrets have no id.
        """
        check_secret(secret)
        if len(self._unbound) >= UNBOUND_SECRETS_MAX:
            raise ValueError(
                f"{UNBOUND_SECRETS_MAX} secrets have no subscription yet. Wait for their subscribe responses."
            )
        self._unbound.append(secret)

    def discard(self, secret: str) -> None:
        """Forget a secret whose events/subscribe has failed. One that a verification has bound goes with it."""
        self._unbound = [each for each in self._unbound if each != secret]
        for subscription_id, found in list(self._bound.items()):
            found.secrets = [each for each in found.secrets if each != secret]
            if not found.secrets:
                del self._bound[subscription_id]

    def bind(self, subscription_id: str, secret: str) -> None:
        """The subscribe response names the id of this secret. A new secret of a known id comes beside its earlier ones."""
        check_secret(secret)
        known = self._bound.get(subscription_id)
        earlier = [] if known is None else [each for each in known.secrets if each != secret]
        cursor = None if known is None else known.cursor
        self.discard(secret)
        self._bound[subscription_id] = _RegisteredSubscription([secret, *earlier][:SECRETS_OF_ONE_MAX], cursor)

    def bind_verified(self, subscription_id: str | None, message: VerifiedMessage) -> None:
        """A verification that one of the secrets without an id has signed names its id."""
        if subscription_id is None or self.is_bound(subscription_id):
            return
        for secret in self._unbound:
            if compute_fingerprint(secret) == message.key_fingerprint:
                self.bind(subscription_id, secret)
                return

    def remove(self, subscription_id: str) -> None:
        """Accept nothing of this subscription any more."""
        self._bound.pop(subscription_id, None)

    def record_cursor(self, subscription_id: str | None, cursor: str | None) -> None:
        """Everything of the subscription at or before this cursor has been received."""
        found = self._bound.get(subscription_id or "")
        if found is not None and cursor is not None:
            found.cursor = cursor

    def read_cursor(self, subscription_id: str | None) -> str | None:
        """The last recorded cursor; None for an unknown subscription, or one without replay."""
        found = self._bound.get(subscription_id or "")
        return None if found is None else found.cursor
