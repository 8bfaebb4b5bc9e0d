"""Cursors are opaque to clients, versioned, and valid for one list only.

A cursor is base64url of `1:<list>:<position>`. It names its list, so that a cursor used with another list is an error instead
of a wrong page.

A position in the event log is `<seq>.<mark>`: a number, and 32 bits of the id of the event there. After an older backup is
restored, the numbers are assigned a second time, to other events. The mark shows that a position belongs to the lost log, whose
reader would otherwise miss events. Three kinds of positions have no mark and are checked by number alone: the beginning of a
log, the position of an event that retention removed, and positions in cursors of earlier releases.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ringback.domain.errors import InvalidCursor
from ringback.domain.ids import is_subscription_id, is_well_formed_id

CURSOR_LENGTH_MAX = 768
"""A place among the events of all principals has a principal's name, of up to 512 bytes. Other cursors are below 100."""
_VERSION = "1"
_POSITION_PATTERN: Final = re.compile(
    r"([0-9]{1,18})(?:\.([0-9a-f]{8}))?"
)  # below 2**63, which is where both stores end

_NUMBER_PATTERN: Final = re.compile(r"[0-9]{1,18}")
_MILLISECONDS_PATTERN: Final = re.compile(r"[0-9]{1,15}")
_MILLISECONDS_MAX: Final = 253_402_300_799_999
"""The end of the calendar: the last millisecond of the year 9999."""
_EVENT_TIME_PATTERN: Final = re.compile(
    r"([0-9]{1,15})\.([0-9]{1,18})\.([^\0]*)", re.DOTALL
)  # PostgreSQL stores no NUL


class CursorList(StrEnum):
    """The lists that cursors page through."""

    EVENTS = "events"
    LATEST_EVENTS = "latest-events"
    """The events of all principals, for an operator."""
    CALLS = "calls"
    WEBHOOKS = "webhooks"
    DELIVERIES = "deliveries"
    REDELIVERIES = "redeliveries"
    """The deliveries that one bulk redelivery sends again, over several requests."""
    KEYS = "keys"
    PORTAL_LINKS = "portal-links"
    AUDIT = "audit"
    SESSIONS = "sessions"
    """The client sessions of a principal. The position is the newest call of a session."""


_ID_PREFIX_BY_LIST: Final = {
    CursorList.CALLS: "call",
    CursorList.WEBHOOKS: "wh",
    CursorList.DELIVERIES: "dlv",
    CursorList.KEYS: "key",
    CursorList.PORTAL_LINKS: "link",
    CursorList.SESSIONS: "call",
}
"""Prefixes of the ids that are positions in these lists."""


def encode_cursor(cursor_list: CursorList, position: str) -> str:
    return base64.urlsafe_b64encode(f"{_VERSION}:{cursor_list}:{position}".encode()).decode().rstrip("=")


def encode_next_cursor(cursor_list: CursorList, page: "Page[Any, str]") -> str | None:
    """The cursor of the page after this one; None after the last one."""
    return None if page.next_position is None else encode_cursor(cursor_list, page.next_position)


def decode_cursor(cursor_list: CursorList, cursor: str) -> str:
    """The position inside the cursor. Raises `InvalidCursor` unless the cursor belongs to this list."""
    version, _, rest = _decode_base64url(cursor).partition(":")
    kind, separator, position = rest.partition(":")
    if version != _VERSION or not separator or kind not in set(CursorList):
        raise InvalidCursor("This is not a cursor of ours. Start without one.")
    if kind != cursor_list:
        raise InvalidCursor(f"This is a cursor of the list of {kind}, not of {cursor_list}. Start without one.")
    return position


def decode_id_cursor(cursor_list: CursorList, cursor: str | None) -> str | None:
    """The id after which the page begins, or None for the first page. Raises `InvalidCursor` for any other cursor."""
    if cursor is None:
        return None
    last_id = decode_cursor(cursor_list, cursor)
    is_subscription = cursor_list is CursorList.WEBHOOKS and is_subscription_id(last_id)
    if not is_subscription and not is_well_formed_id(_ID_PREFIX_BY_LIST[cursor_list], last_id):
        raise InvalidCursor("This is not a cursor of ours. Start without one.")
    return last_id


class LogPosition(NamedTuple):
    """A position in a principal's event log: the reader has seen everything at or before `seq`."""

    seq: int
    mark: str | None = None
    """The mark of the event at `seq`, if it is known."""


def event_mark(event_id: str) -> str:
    """32 bits of an event's id, in hexadecimal. Ids are random: two events share a mark with a probability of 2**-32."""
    return f"{zlib.crc32(event_id.encode()):08x}"


def encode_log_position(position: LogPosition) -> str:
    return encode_cursor(
        CursorList.EVENTS, str(position.seq) if position.mark is None else f"{position.seq}.{position.mark}"
    )


def decode_log_position(cursor: str) -> LogPosition:
    found = _POSITION_PATTERN.fullmatch(decode_cursor(CursorList.EVENTS, cursor))
    if found is None:
        raise InvalidCursor("This cursor names no place in the event log. Start without one.")
    return LogPosition(int(found[1]), found[2])


def decode_number_cursor(cursor_list: CursorList, cursor: str | None) -> int | None:
    """The number of the row after which the page begins, or None for the first page. Raises `InvalidCursor`."""
    if cursor is None:
        return None
    found = _NUMBER_PATTERN.fullmatch(decode_cursor(cursor_list, cursor))
    if found is None:
        raise InvalidCursor("This is not a cursor of ours. Start without one.")
    return int(found[0])


class EventTime(NamedTuple):
    """A place among the events of all principals: the time of an event, and its place among those of the same time."""

    milliseconds: int
    """Since 1970."""
    principal: str
    seq: int


def encode_event_time(position: EventTime) -> str:
    return encode_cursor(CursorList.LATEST_EVENTS, f"{position.milliseconds}.{position.seq}.{position.principal}")


def decode_event_time(cursor: str) -> EventTime:
    """The place. A cursor of earlier releases has an event's id: it leads back to the newest event of its millisecond."""
    position = decode_cursor(CursorList.LATEST_EVENTS, cursor)
    found = _EVENT_TIME_PATTERN.fullmatch(position)
    if found is None:
        milliseconds, _, event_id = position.partition(".")
        if _MILLISECONDS_PATTERN.fullmatch(milliseconds) and is_well_formed_id("evt", event_id):
            return EventTime(int(milliseconds) + 1, "", 0)
        raise InvalidCursor("This cursor names no place among the events of all principals. Start without one.")
    return EventTime(int(found[1]), found[3], int(found[2]))


class RedeliveryPosition(NamedTuple):
    """A place in a bulk redelivery: where its next request continues, and where the redelivery ends."""

    until_milliseconds: int
    """Since 1970: the time of the first request. Later requests send nothing again that this redelivery has inserted."""
    delivery_id: str
    """The last delivery that a request has visited."""


def encode_redelivery_position(position: RedeliveryPosition) -> str:
    return encode_cursor(CursorList.REDELIVERIES, f"{position.until_milliseconds}.{position.delivery_id}")


def decode_redelivery_position(cursor: str) -> RedeliveryPosition:
    milliseconds, _, delivery_id = decode_cursor(CursorList.REDELIVERIES, cursor).partition(".")
    is_time = _MILLISECONDS_PATTERN.fullmatch(milliseconds) is not None and int(milliseconds) <= _MILLISECONDS_MAX
    if not is_time or not is_well_formed_id("dlv", delivery_id):
        raise InvalidCursor("This cursor names no place in a bulk redelivery. Start without one.")
    return RedeliveryPosition(int(milliseconds), delivery_id)


def is_position_in_log(position: LogPosition, *, head: int, retention_floor: int, event_id: str | None) -> bool:
    """Whether the position is in the log that ends at `head` and begins after `retention_floor`.

    `event_id` is the id of the event at that number in this log; None if there is no such event.
    """
    if position.seq > head:
        return False
    if position.mark is None:
        return True
    return position.seq <= retention_floor if event_id is None else event_mark(event_id) == position.mark


def _decode_base64url(cursor: str) -> str:
    if len(cursor) > CURSOR_LENGTH_MAX:
        raise InvalidCursor("This cursor is longer than any of ours. Start without one.")
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise InvalidCursor("This is not a cursor of ours. Start without one.") from None


# Pages. A store reads a bounded number of rows for one page, however few of them match. A page may therefore be short or empty
# before the list ends; only `next_position` says whether it has ended.

T = TypeVar("T")
P = TypeVar("P")


class Page(list[T], Generic[T, P]):
    """A list of the rows of one page, with the position of the next page."""

    def __init__(self, rows: Iterable[T] = (), *, next_position: P | None) -> None:
        super().__init__(rows)
        self.next_position = next_position
        """The position of the next page; None at the end of the list."""
