"""One event as poll, push and webhook send it (mcp-events §3). It has no top-level `type`: that marks a control envelope."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOccurrence:
    event_id: str
    """Stable, and the same in all delivery modes."""
    name: str
    timestamp: datetime
    """With a time zone: the AI SDK rejects an occurrence without one."""
    data: Mapping[str, Any] = field(repr=False)
    cursor: str | None = None
    """The position after this event. A stream sends it with the event; a poll sends only the cursor of its page."""
    meta: Mapping[str, Any] | None = None

    def to_wire(self, *, with_cursor: bool) -> dict[str, Any]:
        cursor = {"cursor": self.cursor} if with_cursor and self.cursor is not None else {}
        meta = {} if self.meta is None else {"_meta": dict(self.meta)}
        return {
            "eventId": self.event_id,
            "name": self.name,
            "timestamp": format_timestamp(self.timestamp),
            **cursor,
            "data": dict(self.data),
            **meta,
        }


def format_timestamp(instant: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and `Z`. Raises `ValueError` for an instant without a time zone."""
    if instant.tzinfo is None:
        raise ValueError("A timestamp needs a time zone.")
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
