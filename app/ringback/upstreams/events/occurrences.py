"""Reads what an upstream sends about its events. All of it may be hostile, so every member is checked first."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from ringback.domain import jsontext
from ringback.domain.event import ExternalEvent
from ringback.domain.event_types import DATA_LEVELS_MAX, arguments_topic, qualified_name, upstream_event_id
from ringback.protocol.errors import InvalidUpstreamResponse

EVENT_DATA_BYTES_MAX: Final = 192 * 1024
"""The largest `data` that is stored: with the other members it fits into a callback of 256 KiB."""
EVENT_ID_LENGTH_MAX: Final = 4096
"""Longer ids than that are no ids."""
CURSOR_LENGTH_MAX: Final = 16 * 1024
"""An upstream's cursor is stored with each page."""
POLL_SECONDS_MIN: Final = 1.0
"""Between two polls, whatever the upstream asks for: the floor of the specification for clients."""
POLL_SECONDS_DEFAULT: Final = 5.0
POLL_SECONDS_MAX: Final = 60.0
"""Between two polls, however long the upstream asks to wait: subscribers expect an event within a minute."""
EVENTS_PER_PAGE: Final = 100
"""Events that are asked for at once, and that are read and stored without a pause for others, however many arrive."""


@dataclass(frozen=True, slots=True)
class FollowedEvents:
    """What is asked of an upstream: the events of one type, for arguments."""

    upstream: str
    own_name: str
    canonical_arguments: str

    @property
    def event_name(self) -> str:
        """The name in the log."""
        return qualified_name(self.upstream, self.own_name)

    @property
    def topic(self) -> str | None:
        return arguments_topic(self.canonical_arguments)

    def build_params(self, cursor: str | None) -> dict[str, Any]:
        arguments = jsontext.loads(self.canonical_arguments)
        return {"name": self.own_name, "arguments": arguments, "cursor": cursor}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamEventPage:
    """Events in the order of the upstream, and the place after them."""

    events: Sequence[ExternalEvent] = ()
    cursor: str | None = None
    is_truncated: bool = False
    """Whether the upstream has lost events before these."""
    dropped: int = 0
    """Events that were left out, because they are malformed or too large."""
    has_more: bool = False
    next_poll_seconds: float = POLL_SECONDS_DEFAULT


def split_poll_result(result: Mapping[str, Any], *, cursor: str | None) -> Iterator[Mapping[str, Any]]:
    """The result in parts of `EVENTS_PER_PAGE` events at most: an upstream may ignore `maxEvents`.

    Each part but the last has `cursor`, the place before the result. So a part that is lost is asked for again.
    """
    listed = result.get("events")
    if not isinstance(listed, list) or len(cast("list[Any]", listed)) <= EVENTS_PER_PAGE:
        yield result
        return
    events = cast("list[Any]", listed)
    for start in range(0, len(events), EVENTS_PER_PAGE):
        end = start + EVENTS_PER_PAGE
        yield {
            **result,
            "events": events[start:end],
            "cursor": cursor if end < len(events) else result.get("cursor"),
            "truncated": start == 0 and result.get("truncated"),
        }


def read_poll_result(followed: FollowedEvents, result: Mapping[str, Any]) -> UpstreamEventPage:
    """Raises `InvalidUpstreamResponse` for a result without a list of events."""
    listed = result.get("events")
    if not isinstance(listed, list):
        raise InvalidUpstreamResponse("The upstream's result of events/poll has no list of events.")
    page = cast("list[Any]", listed)
    events = [read_occurrence(followed, each) for each in page]
    return UpstreamEventPage(
        events=[each for each in events if each is not None],
        cursor=read_cursor(result),
        is_truncated=result.get("truncated") is True,
        dropped=events.count(None),
        has_more=result.get("hasMore") is True,
        next_poll_seconds=_read_interval(result.get("nextPollMs")),
    )


def read_cursor(values: Mapping[str, Any]) -> str | None:
    """None for a cursor that is absent or cannot be stored."""
    cursor = values.get("cursor")
    return cursor if isinstance(cursor, str) and len(cursor) <= CURSOR_LENGTH_MAX and "\0" not in cursor else None


def read_occurrence(followed: FollowedEvents, occurrence: Any) -> ExternalEvent | None:
    """The event; None if it is malformed, of another type, too large or too deep."""
    if not isinstance(occurrence, dict):
        return None
    known = cast("dict[str, Any]", occurrence)
    own_id, data = known.get("eventId"), known.get("data")
    if known.get("name") != followed.own_name or not isinstance(own_id, str) or not isinstance(data, dict):
        return None
    values = cast("dict[str, Any]", data)
    if not 0 < len(own_id) <= EVENT_ID_LENGTH_MAX or not _is_storable(values):
        return None
    return ExternalEvent(
        name=followed.event_name,
        id=upstream_event_id(followed.upstream, own_id),
        data=values,
        occurred_at=_read_instant(known.get("timestamp")),
        topic=followed.topic,
        upstream=followed.upstream,
    )


def _is_storable(data: Mapping[str, Any]) -> bool:
    try:
        return len(jsontext.dumps(data)) <= EVENT_DATA_BYTES_MAX and not jsontext.nests_deeper(data, DATA_LEVELS_MAX)
    except TypeError:
        return False


def _read_instant(value: Any) -> datetime | None:
    """None for what is no time with an offset: the event then happened when it arrived."""
    if not isinstance(value, str):
        return None
    try:
        instant = datetime.fromisoformat(value)
        return None if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _read_interval(milliseconds: Any) -> float:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or not math.isfinite(milliseconds):
        return POLL_SECONDS_DEFAULT
    return min(max(milliseconds / 1000, POLL_SECONDS_MIN), POLL_SECONDS_MAX)
