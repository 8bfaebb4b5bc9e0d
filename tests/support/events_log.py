"""The event types and the log of `tests.support.events_server`."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ringback.domain.clock import SystemClock

Json = dict[str, Any]

INPUT_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {"topic": {"type": "string"}, "author": {"type": "string"}},
    "additionalProperties": False,
}
PAYLOAD_SCHEMA: Final[Json] = {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "note.added": ("webhook", "push", "poll"),
    "note.archived": ("webhook",),
    "note.counted": ("poll",),
}
PAGE_SIZE: Final = 2
OTHER_CODES: Final = {-32011: -32023, -32014: -32026, -32015: -32027}


class RpcError(Exception):
    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_json(self, fault: str) -> Json:
        code, message, data = self.code, self.message, self.data
        if self.message.startswith("NotFound: event"):
            changed = {"error-not-found": -32000, "removal-poll-not-found": -32602, "stream-error-before-open": -32000}
            code = changed.get(fault, code)
            code = -31999 if fault == "error-server-range" else code
            message = "No" if fault == "error-name-in-message" else message
            data = {} if fault == "error-not-found-kind" else data
            code = OTHER_CODES[code] if fault == "error-one-allocation" and "stream" in message else code
        if self.message.startswith("Unsupported") and fault == "error-one-allocation":
            code = OTHER_CODES[code]
        return {"code": code, "message": message, **({"data": data} if data is not None else {})}


def find_type(name: object, fault: str) -> Json:
    if not isinstance(name, str) or name not in TYPES:
        if fault == "subscribe-unknown-event":
            return describe_type("note.added")
        raise RpcError(-32011, f"NotFound: event {name}", {"kind": "event"})
    return describe_type(name)


def describe_type(name: str) -> Json:
    return {
        "name": name,
        "description": f"When a {name}",
        "delivery": list(TYPES[name]),
        "inputSchema": INPUT_SCHEMA,
        "payloadSchema": PAYLOAD_SCHEMA,
        "_meta": {},
    }


def list_types(params: Json, fault: str) -> Json:
    cursor = params.get("cursor", "0")
    if cursor not in {"0", str(PAGE_SIZE)}:
        if fault != "list-unknown-cursor":
            raise RpcError(-32602, "InvalidParams: cursor")
        cursor = "0"
    start = int(cursor)
    page: Json = {"events": [describe_type(name) for name in list(TYPES)[start : start + PAGE_SIZE]]}
    if start == 0 or fault == "list-pagination":
        page["nextCursor"] = str(PAGE_SIZE)
    return page


def check_arguments(arguments: Json) -> None:
    for name, value in arguments.items():
        if name not in INPUT_SCHEMA["properties"] or not isinstance(value, str):
            raise RpcError(-32602, f"InvalidParams: {name}")


class EventsLog:
    """One log for all event types; its events are of the type `note.added`."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.events: list[Json] = []
        self.times: list[datetime] = []
        self.served = 0
        self._clock = SystemClock()
        self._grown = asyncio.Event()

    def append_event(self) -> None:
        now = self._clock.now()
        event: Json = {
            "eventId": f"note-{len(self.events) + 1}",
            "name": "note.added",
            "timestamp": now.isoformat().replace("+00:00", "Z"),
            "data": {"topic": "tests"},
        }
        if self.fault == "occurrence-event-id-from-upstream":
            event["eventId"] = "note"
        self.events.append(event)
        self.times.append(now)
        self._grown.set()

    async def wait_for_growth(self, position: int, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self.events) <= position:
                    self._grown.clear()
                    await self._grown.wait()
        return len(self.events) > position

    def cursor(self, position: int) -> str:
        return f"c{position}"

    def parse_cursor(self, cursor: object) -> tuple[int, bool]:
        """The position, and whether events were skipped."""
        if cursor is None:
            replays = self.fault == "cursor-null-starts-from-now"
            return (0 if replays else len(self.events)), False
        text = str(cursor)
        if text.startswith("c") and text[1:].isdecimal() and int(text[1:]) <= len(self.events):
            return int(text[1:]), False
        if self.fault == "truncated-poll-never-an-error":
            raise RpcError(-32602, "InvalidParams: cursor")
        return len(self.events), True

    def poll(self, params: Json) -> Json:
        cursor = params.get("cursor")
        position, truncated = self.parse_cursor(cursor)
        if self.fault == "poll-stateless-request" and cursor is not None:
            raise RpcError(-32602, "InvalidParams: poll from the beginning")
        if "maxAgeMs" in params:
            position, truncated = self._limit_age(position, truncated, cursor, params["maxAgeMs"])
        if self.fault == "cursor-resumes":
            position = max(position, self.served)
        limit = params.get("maxEvents", 100) if self.fault != "poll-max-events-cap" else 100
        end = min(len(self.events), position + limit)
        self.served = max(self.served, end)
        return self._build_page(cursor, position, end, truncated=truncated)

    def _build_page(self, cursor: object, position: int, end: int, *, truncated: bool) -> Json:
        events = [
            {**event, "cursor": self.cursor(at)} for at, event in enumerate(self.events[position:end], position + 1)
        ]
        has_more = end < len(self.events)
        if self.fault == "poll-has-more-completes" and has_more:
            end += 1
        if self.fault == "poll-next-poll-ms-ignored-when-has-more" and has_more and self.served > end:
            events = []
        if self.fault == "cursor-moves-past":
            end = position
        page: Json = {"events": events, "cursor": self.cursor(end), "nextPollMs": 1000, "hasMore": has_more}
        page["truncated"] = truncated
        if self.fault == "cursor-consistency" and cursor is not None:
            page["cursor"] = None
        if self.fault == "cursor-advances-when-quiet" and cursor is not None and not events:
            del page["cursor"]
        if self.fault == "truncated-returns-fresh-cursor" and truncated:
            page["cursor"] = None
        return page

    def _limit_age(self, position: int, truncated: bool, cursor: object, max_age_ms: int) -> tuple[int, bool]:  # noqa: FBT001
        if self.fault == "max-age-ms-floor":
            raise RpcError(-32602, "InvalidParams: maxAgeMs")
        oldest = self._clock.now() - timedelta(milliseconds=max_age_ms)
        if cursor is None:
            replays = self.fault == "max-age-ms-ignored-when-cursor-null"
            return (0 if replays else position), truncated
        floor = sum(time.astimezone(UTC) < oldest for time in self.times)
        skips = floor > position and self.fault != "max-age-ms-sets-truncated"
        return max(position, floor), truncated or skips
