"""The permit that an attempt in flight holds, and the receiver whose limit it counts against."""

from typing import NamedTuple

from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal


class ReceiverKey(NamedTuple):
    """One principal's callbacks to one origin."""

    principal: Principal
    origin: str

    @property
    def breaker_key(self) -> str:
        """The key of its circuit breaker. Its principal comes first, so that an erasure finds all of a principal."""
        return f"{self.principal} {self.origin}"


def split_breaker_key(key: str) -> ReceiverKey | None:
    """The principal and the origin of a `breaker_key`; None for the key of an origin's breaker: the origin, without a space."""
    principal, _, origin = key.rpartition(" ")
    return ReceiverKey(Principal(principal), origin) if principal else None


class Permit(NamedTuple):
    """Allows one attempt to be in flight."""

    webhook_id: WebhookId
    receiver_key: ReceiverKey
    body_bytes: int = 0
    """Of the attempt, once its delivery is leased or inserted."""
