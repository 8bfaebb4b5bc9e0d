"""The headers of a callback (Standard Webhooks, and the subscription id of mcp-events §8)."""

from collections.abc import Sequence
from datetime import datetime

from ringback.signing import standard_webhooks
from ringback.signing.ed25519 import SigningKey


def build_callback_headers(
    *,
    webhook_id: str,
    message_id: str,
    body: bytes,
    secrets: Sequence[str],
    signing_keys: Sequence[SigningKey] = (),
    now: datetime,
) -> dict[str, str]:
    """Headers for one attempt: the same id as ever, this attempt's timestamp, a signature for each living secret and key."""
    timestamp = int(now.timestamp())
    signature = standard_webhooks.sign_message(secrets, message_id=message_id, timestamp=timestamp, body=body, keys=signing_keys)
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature,
        "x-mcp-subscription-id": webhook_id,
    }
