"""Callbacks as the notifier sends them, posted to a receiver in this process."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from ringback.signing.standard_webhooks import build_signed_headers

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW: Final = datetime(2026, 11, 20, 17, tzinfo=UTC)


def make_event_body(event_id: str = "evt_1", *, name: str = "call.finished", **data: Any) -> dict[str, Any]:
    known = {"call_id": "call_1", "correlation_id": "c1", "resume_token": "the.token"}
    return {
        "eventId": event_id,
        "name": name,
        "timestamp": "2026-11-20T17:00:00.000Z",
        "cursor": "place-7",
        "data": known | data,
    }


async def post_signed(
    app: Any,
    envelope: bytes | Mapping[str, Any],
    *,
    message_id: str | None = None,
    secret: str = SECRET,
    subscription_id: str | None = "wh_1",
    at: datetime = NOW,
    changed: Mapping[str, str] | None = None,
    url: str = "/",
) -> httpx.Response:
    """Sign and send as the notifier does; the message's id is the event's. `changed` replaces headers after signing."""
    if message_id is None:
        message_id = "msg_1" if isinstance(envelope, bytes) else str(envelope.get("eventId", "msg_1"))
    body = envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode()
    headers = build_signed_headers([secret], message_id=message_id, timestamp=int(at.timestamp()), body=body)
    if subscription_id is not None:
        headers["X-MCP-Subscription-Id"] = subscription_id
    async with make_client(app) as client:
        return await client.post(url, content=body, headers={**headers, **(changed or {})})


def make_client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://receiver")
