"""The body of a callback: one form for every webhook, an MCP EventOccurrence (mcp-events §3).

It is thin: ids, digests and a resume token. No text that an upstream controls is in it unless the owner asked for the result.
There is no top-level `type`, because that is what marks control envelopes.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from ringback.domain import jsontext
from ringback.domain.call import Call, call_resource_uri
from ringback.domain.clock import format_iso, seconds
from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.delivery import Delivery, DeliveryKind, DeliveryState, give_up_seconds
from ringback.domain.event import Event, EventName
from ringback.domain.ids import DeliveryId, EventId
from ringback.domain.webhook import TEST_EVENT_NAME, DeliveryCondition, Webhook
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.signing import standard_webhooks
from ringback.signing.ed25519 import SigningKey

BODY_BYTES_MAX: Final = 262_144
"""The largest body that may be sent (mcp-events §8). A result that does not fit is left out whole, never cut."""


class PayloadBuilder:
    def __init__(self, *, tokens: CallResumeTokens, public_url: str) -> None:
        self._tokens = tokens
        self._public_url = public_url.rstrip("/")
        self._last_token: tuple[Call, LogPosition, str] | None = None
        """The last token, and what it was issued for: all webhooks that hear an event are given the same one."""

    def build_event_body(
        self, event: Event, webhook: Webhook, *, call: Call | None, watermark: LogPosition, result: bytes | None = None
    ) -> bytes:
        """The bytes that every attempt sends.

        `call` is None when the call has already expired: then there is nothing left to resume. `safe` is the place
        at or before which everything of this webhook was delivered or abandoned. `result` is inlined if it fits.
        """
        data = dict(event.data)
        if webhook.correlation_id is not None:
            data["webhook_correlation_id"] = webhook.correlation_id
        if call is not None:
            data["resume_token"] = self._resume_token(call, event.position)
            data["resume_url"] = f"{self._public_url}/v1/resume"
            data["resource_uri"] = call_resource_uri(call)
            data["mcp_url"] = f"{self._public_url}/mcp"
        if call is not None and event.name is EventName.CALL_FINISHED:
            # A detached webhook rings only if nobody is known to have read the answer.
            data["answered_inline"] = call.answered_inline and webhook.when is DeliveryCondition.ALWAYS
        without_result = _encode_event(event, data, watermark)
        if result is None or len(without_result) + len(result) > BODY_BYTES_MAX:
            return without_result
        with_result = _encode_event(event, {**data, "result": orjson.Fragment(result)}, watermark)
        return with_result if len(with_result) <= BODY_BYTES_MAX else without_result

    def _resume_token(self, call: Call, position: LogPosition) -> str:
        if self._last_token is None or self._last_token[0] is not call or self._last_token[1] != position:
            self._last_token = call, position, self._tokens.issue_token(call, position=position)
        return self._last_token[2]


def build_test_body(webhook: Webhook, *, event_id: EventId, watermark: LogPosition, now: datetime) -> bytes:
    """The same form for a test: it is about the webhook and no call, so there is nothing to resume."""
    data: dict[str, Any] = {"webhook_id": webhook.id, "client_session_id": webhook.client_session_id}
    if webhook.correlation_id is not None:
        data["webhook_correlation_id"] = webhook.correlation_id
    return _encode_occurrence(event_id, TEST_EVENT_NAME, now, data, watermark)


def _encode_event(event: Event, data: dict[str, Any], watermark: LogPosition) -> bytes:
    return _encode_occurrence(event.id, event.name, event.created_at, data, watermark)


def _encode_occurrence(
    event_id: EventId, name: str, timestamp: datetime, data: dict[str, Any], watermark: LogPosition
) -> bytes:
    return orjson.dumps(
        {
            "eventId": event_id,
            "name": name,
            "timestamp": format_iso(timestamp),
            "cursor": encode_log_position(watermark),
            "data": data,
        }
    )


# Control envelopes: messages about the deliveries themselves, marked by a top-level `type` (mcp-events §8).

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


# The headers of a callback (Standard Webhooks, and the subscription id of mcp-events §8).


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
    signature = standard_webhooks.sign_message(
        secrets, message_id=message_id, timestamp=timestamp, body=body, keys=signing_keys
    )
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature,
        "x-mcp-subscription-id": webhook_id,
    }
