"""Control envelopes: messages about the deliveries themselves, marked by a top-level `type` (mcp-events §8)."""

from datetime import datetime
from typing import Final

from ringback.domain import jsontext
from ringback.domain.clock import seconds
from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.delivery import Delivery, DeliveryState, DeliveryKind, give_up_seconds
from ringback.domain.ids import DeliveryId
from ringback.domain.webhook import Webhook

_FIRST_GENERATION: Final = 1


def build_verification_body(challenge: str) -> bytes:
    """Asks whether callbacks are wanted here: the answer is JSON with the same challenge."""
    return jsontext.dumps({"type": "verification", "challenge": challenge})


def build_gap_delivery(webhook: Webhook, *, position: LogPosition, delivery_id: DeliveryId, now: datetime) -> Delivery:
    """Tells the receiver from where to poll for what was given up: `after` is just before the first such event."""
    return Delivery(
        id=delivery_id,
        principal=webhook.principal,
        webhook_id=webhook.id,
        event_id=None,
        kind=DeliveryKind.GAP,
        call_id=None,
        seq=position.seq + 1,
        generation=_FIRST_GENERATION,
        body=jsontext.dumps({"type": "gap", "cursor": encode_log_position(position)}),
        state=DeliveryState.PENDING,
        due_at=now,
        give_up_at=now + seconds(give_up_seconds(DeliveryKind.GAP, webhook.retries, ordered=False)),
        created_at=now,
    )
