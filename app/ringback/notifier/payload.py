"""Everything that is sent to a receiver: event bodies, control envelopes and headers, and the deliveries that carry them.

An event body is an MCP EventOccurrence (mcp-events §3) for every webhook: ids, digests and a resume token. It contains no text
that an upstream controls, unless the webhook includes the result. It has no top-level `type`: that marks control envelopes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from ringback.domain import jsontext
from ringback.domain.call import Call, call_resource_uri
from ringback.domain.clock import format_iso, seconds
from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.delivery import (
    CONTROL_ENVELOPES,
    Delivery,
    DeliveryKind,
    DeliveryState,
    give_up_seconds,
    suspended_window,
)
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId, DeliveryId, EventId
from ringback.domain.webhook import TEST_EVENT_NAME, DeliveryCondition, MessageIds, Webhook, WebhookState
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.post_commit import DeliveryLease
from ringback.signing import standard_webhooks
from ringback.signing.ed25519 import SigningKey

BODY_BYTES_MAX: Final = 262_144
"""The largest body (mcp-events §8). A result that does not fit is left out completely, never cut."""


def new_delivery(
    webhook: Webhook,
    *,
    delivery_id: DeliveryId,
    kind: DeliveryKind = DeliveryKind.EVENT,
    event_id: EventId | None = None,
    call_id: CallId | None = None,
    seq: int | None,
    body: bytes,
    now: datetime,
    due_at: datetime | None = None,
    order_key: str | None = None,
    lease: DeliveryLease | None = None,
    traceparent: str | None = None,
) -> Delivery:
    """The first generation of a delivery: leased, or held while the webhook holds deliveries, or pending."""
    is_ordered = webhook.ordered and kind not in CONTROL_ENVELOPES
    is_held = webhook.holds_deliveries() and kind is not DeliveryKind.TERMINATED
    held_or_pending = DeliveryState.HELD if is_held else DeliveryState.PENDING
    stopped = new_window_stop(webhook, now=now) if is_held else timedelta(0)
    return Delivery(
        id=delivery_id,
        principal=webhook.principal,
        webhook_id=webhook.id,
        event_id=event_id,
        kind=kind,
        call_id=call_id,
        seq=seq,
        body=body,
        state=held_or_pending if lease is None else DeliveryState.LEASED,
        attempts=0 if lease is None else 1,
        lease_owner=None if lease is None else lease.owner,
        lease_token=None if lease is None else lease.token,
        lease_until=None if lease is None else lease.until,
        due_at=(due_at or now) + stopped,
        give_up_at=now + stopped + seconds(give_up_seconds(kind, webhook.retry_schedule, ordered=is_ordered)),
        order_key=order_key,
        created_at=now,
        traceparent=traceparent,
    )


def new_window_stop(webhook: Webhook, *, now: datetime) -> timedelta:
    """How far the retry window of a delivery moves that is held from the beginning: time in suspension does not count."""
    stops = webhook.is_subscription and webhook.state is WebhookState.SUSPENDED
    return suspended_window(created_at=now, now=now) if stops else timedelta(0)


class PayloadBuilder:
    """`public_url` is None if clients cannot reach the API: callbacks then contain no URLs."""

    def __init__(self, *, tokens: CallResumeTokens, public_url: str | None) -> None:
        self._tokens = tokens
        self._public_url = None if public_url is None else public_url.rstrip("/")
        self._last_token: tuple[Call, LogPosition, str] | None = None
        """The last token with its call and position: all webhooks that match one event get the same token."""

    def build_event_body(
        self, event: Event, webhook: Webhook, *, call: Call | None, watermark: LogPosition, result: bytes | None = None
    ) -> bytes:
        """The bytes that every attempt of the delivery sends.

        `call` is None if the call has expired: there is nothing left to resume. Everything of this webhook at or before
        `watermark` was delivered or given up. `result` is inlined if it fits.
        """
        data = dict(event.data)
        if not (event.is_external and webhook.is_subscription):  # its data has the payloadSchema of its source
            data["subscription_id"] = webhook.id
            if webhook.correlation_id is not None:
                data["webhook_correlation_id"] = webhook.correlation_id
        if call is not None:
            data["resume_token"] = self._resume_token(call, event.position)
        if call is not None and self._public_url is not None:
            data["resume_url"] = f"{self._public_url}/v1/resume"
            data["resource_uri"] = call_resource_uri(call)
            data["mcp_url"] = f"{self._public_url}/mcp"
        if call is not None and event.name == EventName.CALL_FINISHED:
            # A webhook for detached calls only gets events of calls that no client answered inline.
            data["answered_inline"] = call.answered_inline and webhook.when is DeliveryCondition.ALWAYS
        name = webhook.shown_event_name or event.name
        without_result = _encode_event(event, name, data, watermark)
        if result is None or len(without_result) + len(result) > BODY_BYTES_MAX:
            return without_result
        with_result = _encode_event(event, name, {**data, "result": orjson.Fragment(result)}, watermark)
        return with_result if len(with_result) <= BODY_BYTES_MAX else without_result

    def _resume_token(self, call: Call, position: LogPosition) -> str:
        if self._last_token is None or self._last_token[0] is not call or self._last_token[1] != position:
            self._last_token = call, position, self._tokens.issue_token(call, position=position)
        return self._last_token[2]


def build_test_body(webhook: Webhook, *, event_id: EventId, watermark: LogPosition, now: datetime) -> bytes:
    """The body of a test delivery: an event of the webhook, without a call to resume."""
    data: dict[str, Any] = {
        "webhook_id": webhook.id,
        "client_session_id": webhook.client_session_id,
        "subscription_id": webhook.id,
    }
    if webhook.correlation_id is not None:
        data["webhook_correlation_id"] = webhook.correlation_id
    return _encode_occurrence(event_id, TEST_EVENT_NAME, now, data, watermark)


def _encode_event(event: Event, name: str, data: dict[str, Any], watermark: LogPosition) -> bytes:
    return _encode_occurrence(event.id, name, event.timestamp, data, watermark)


def _encode_occurrence(
    event_id: EventId, name: str, timestamp: datetime, data: dict[str, Any], watermark: LogPosition
) -> bytes:
    return jsontext.dumps(
        {
            "eventId": event_id,
            "name": name,
            "timestamp": format_iso(timestamp),
            "cursor": encode_log_position(watermark),
            "data": data,
        }
    )


# -- control envelopes: messages about deliveries, marked by a top-level `type` (mcp-events §8) --


def build_verification_body(challenge: str) -> bytes:
    """The receiver must respond with JSON that contains the same challenge."""
    return jsontext.dumps({"type": "verification", "challenge": challenge})


def build_gap_delivery(webhook: Webhook, *, position: LogPosition, delivery_id: DeliveryId, now: datetime) -> Delivery:
    """A gap: the receiver polls from `position`, which is just before the first event that was given up."""
    return new_delivery(
        webhook,
        delivery_id=delivery_id,
        kind=DeliveryKind.GAP,
        seq=position.seq + 1,
        body=jsontext.dumps({"type": "gap", "cursor": encode_log_position(position)}),
        now=now,
    )


def build_terminated_delivery(
    webhook: Webhook, error: Mapping[str, Any], *, delivery_id: DeliveryId, now: datetime
) -> Delivery:
    """The end of a subscription. `error` is the JSON-RPC error object that says why: code, message and data."""
    return new_delivery(
        webhook,
        delivery_id=delivery_id,
        kind=DeliveryKind.TERMINATED,
        seq=None,
        body=jsontext.dumps({"type": "terminated", "error": error}),
        now=now,
    )


# -- headers (Standard Webhooks, and the subscription id of mcp-events §8) --


def choose_message_id(delivery: Delivery, webhook: Webhook) -> str:
    """The `webhook-id` of the delivery: stable over attempts and replays.

    Of an event it is the eventId; an id of the event for this subscription if that asked for ids of messages, or if the
    eventId, which a client or an upstream chose, has a full stop and so cannot be signed.
    """
    if delivery.event_id is None:
        return delivery.message_id
    if webhook.message_ids is MessageIds.EVENT and standard_webhooks.is_message_id(delivery.event_id):
        return delivery.event_id
    return standard_webhooks.derive_message_id(webhook.id, delivery.event_id)


def build_callback_headers(
    *,
    webhook_id: str,
    message_id: str,
    body: bytes,
    secrets: Sequence[str],
    signing_keys: Sequence[SigningKey] = (),
    now: datetime,
) -> dict[str, str]:
    """Headers of one attempt: the message id of the delivery, the attempt's timestamp, a signature for each valid key."""
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
