"""Cursors: opaque to clients, versioned, and good for one list only.

A cursor is base64url of `1:<list>:<position>`. The list is part of it, so that a cursor of one list handed to another is an
error with a name instead of a silently wrong page.

A place in the event log is `<seq>.<mark>`: a number, and 32 bits of the id of the event that stands there. After an older
backup was restored the numbers are given out a second time, to other events. A reader who comes with a number of the lost log
would otherwise miss events without a sign; the mark shows that its place is in another log. Three places have no mark and are
judged by their number alone: the beginning of a log, a place whose event retention has removed, and those of cursors that an
earlier release gave out.
"""

import base64
import binascii
import re
import zlib
from enum import StrEnum
from typing import Final, NamedTuple

from ringback.domain.errors import InvalidCursor
from ringback.domain.ids import looks_like

CURSOR_LENGTH_MAX = 256
_VERSION = "1"
_PLACE: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9a-f]{8}))?")  # below 2**63, which is where both stores end


class List(StrEnum):
    """The lists that cursors page through."""

    EVENTS = "events"
    CALLS = "calls"
    WEBHOOKS = "webhooks"
    DELIVERIES = "deliveries"


_PREFIX_OF: Final = {List.CALLS: "call", List.WEBHOOKS: "wh", List.DELIVERIES: "dlv"}
"""Of the ids that are positions of these lists."""


def encode(listing: List, position: str) -> str:
    return base64.urlsafe_b64encode(f"{_VERSION}:{listing}:{position}".encode()).decode().rstrip("=")


def decode(listing: List, cursor: str) -> str:
    """The position inside the cursor; raises `InvalidCursor` unless it is one of this list."""
    version, _, rest = _text(cursor).partition(":")
    kind, separator, position = rest.partition(":")
    if version != _VERSION or not separator or kind not in set(List):
        raise InvalidCursor("This is not a cursor of ours. Start without one.")
    if kind != listing:
        raise InvalidCursor(f"This is a cursor of the list of {kind}, not of {listing}. Start without one.")
    return position


def decode_id(listing: List, cursor: str | None) -> str | None:
    """The id after which a page begins, None for the first one; raises `InvalidCursor` unless it is one of this list."""
    if cursor is None:
        return None
    before = decode(listing, cursor)
    if not looks_like(_PREFIX_OF[listing], before):
        raise InvalidCursor("This is not a cursor of ours. Start without one.")
    return before


class Place(NamedTuple):
    """A place in a principal's event log: everything at or before `seq` has been seen."""

    seq: int
    mark: str | None = None
    """Of the event at `seq`, where one is known."""


def mark_of(event_id: str) -> str:
    """32 bits of an event's id, in hexadecimal. Ids are random, so two events share them once in four billion times."""
    return f"{zlib.crc32(event_id.encode()):08x}"


def encode_place(place: Place) -> str:
    return encode(List.EVENTS, str(place.seq) if place.mark is None else f"{place.seq}.{place.mark}")


def decode_place(cursor: str) -> Place:
    found = _PLACE.fullmatch(decode(List.EVENTS, cursor))
    if found is None:
        raise InvalidCursor("This cursor names no place in the event log. Start without one.")
    return Place(int(found[1]), found[2])


def is_in_log(place: Place, *, head: int, horizon: int, event_id: str | None) -> bool:
    """Whether a place is in the log that ends at `head` and of which retention has removed all up to `horizon`.

    `event_id` is the event at that number in this log; None when there is none.
    """
    if place.seq > head:
        return False
    if place.mark is None:
        return True
    return place.seq <= horizon if event_id is None else mark_of(event_id) == place.mark


def _text(cursor: str) -> str:
    if len(cursor) > CURSOR_LENGTH_MAX:
        raise InvalidCursor("This cursor is longer than any of ours. Start without one.")
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise InvalidCursor("This is not a cursor of ours. Start without one.") from None
