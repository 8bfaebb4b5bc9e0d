"""The body of a callback from an event of the log.

It has the members of a callback that the service sends, except `answered_inline`, which belongs to a delivery. As in every
callback, everything at or before `cursor` was handled or given up when the body was made.
"""

import json
from datetime import UTC
from typing import Any

from ringback.client import Event


def order_key(event: Event) -> str:
    """Events with the same key are handled one at a time: the events of a session, of a call without one, or of neither."""
    for name in ("client_session_id", "call_id"):
        if value := event.data.get(name):
            return f"{name}:{value}"
    return ""


def build_callback_body(event: Event, *, service_url: str, resume_token: str | None, cursor: str | None) -> bytes:
    """The body for this event. The URLs are those at which this listener reaches the service."""
    data = dict(event.data)
    call_id = data.get("call_id")
    if call_id is not None:
        data["resource_uri"] = f"ringback://calls/{call_id}"
        data["mcp_url"] = f"{service_url}/mcp"
    if resume_token is not None:
        data["resume_token"] = resume_token
        data["resume_url"] = f"{service_url}/v1/resume"
    envelope: dict[str, Any] = {
        "eventId": event.event_id,
        "name": event.name,
        "timestamp": event.timestamp.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": data,
    }
    if cursor is not None:
        envelope["cursor"] = cursor
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()
