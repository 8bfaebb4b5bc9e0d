"""Cursors: opaque to clients, versioned, and good for one list only.

A cursor is base64url of `1:<list>:<position>`. The list is part of it, so that a cursor of one list handed to another is an
error with a name instead of a silently wrong page.
"""

import base64
import binascii
from enum import StrEnum
from typing import Final

from ringback.domain.errors import InvalidCursor
from ringback.domain.ids import looks_like

CURSOR_LENGTH_MAX = 256
_VERSION = "1"
_SEQ_DIGITS_MAX = 18  # below 2**63, which is where both stores end


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


def encode_seq(seq: int) -> str:
    """A place in a principal's event log: everything at or before `seq` has been seen."""
    return encode(List.EVENTS, str(seq))


def decode_seq(cursor: str) -> int:
    position = decode(List.EVENTS, cursor)
    if not (position.isascii() and position.isdigit() and len(position) <= _SEQ_DIGITS_MAX):
        raise InvalidCursor("This cursor names no place in the event log. Start without one.")
    return int(position)


def _text(cursor: str) -> str:
    if len(cursor) > CURSOR_LENGTH_MAX:
        raise InvalidCursor("This cursor is longer than any of ours. Start without one.")
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise InvalidCursor("This is not a cursor of ours. Start without one.") from None
