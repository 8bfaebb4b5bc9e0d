"""What an attempt in flight holds."""

from typing import NamedTuple

from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal


class ReceiverKey(NamedTuple):
    """One principal's callbacks to one origin."""

    principal: Principal
    origin: str


class Permit(NamedTuple):
    """One attempt in flight."""

    webhook_id: WebhookId
    receiver_key: ReceiverKey
