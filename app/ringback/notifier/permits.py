"""The permit that an attempt in flight holds, and the receiver whose limit it counts against."""

from typing import NamedTuple

from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal


class ReceiverKey(NamedTuple):
    """One principal's callbacks to one origin."""

    principal: Principal
    origin: str


class Permit(NamedTuple):
    """Allows one attempt to be in flight."""

    webhook_id: WebhookId
    receiver_key: ReceiverKey
    body_bytes: int = 0
    """Of the attempt, once its delivery is leased or inserted."""
