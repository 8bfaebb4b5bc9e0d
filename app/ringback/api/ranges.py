"""A part of a representation: the Range header of RFC 9110 §14, for one range of bytes."""

import re
from typing import Final

from ringback.api.problems import RangeNotSatisfiable

_ONE_RANGE: Final = re.compile(r"bytes=[ \t]*(?P<first>[0-9]{0,18})-(?P<last>[0-9]{0,18})[ \t]*", re.IGNORECASE)
"""A unit that is not bytes, several ranges, and what is malformed are passed over, and the whole is sent: §14.2 allows it."""


def range_of(header: str | None, *, size: int) -> range | None:
    """The places of the bytes that are asked for; None for the whole. Raises `RangeNotSatisfiable` when there are none."""
    parts = _ONE_RANGE.fullmatch(header or "")
    if parts is None or not (parts["first"] or parts["last"]):
        return None
    if not parts["first"]:
        wanted = range(max(0, size - int(parts["last"])), size)
    elif parts["last"] and int(parts["last"]) < int(parts["first"]):
        return None  # §14.1.1: such a range is malformed
    else:
        wanted = range(int(parts["first"]), min(int(parts["last"] or size), size - 1) + 1)
    if not wanted:
        raise RangeNotSatisfiable(f"There are {size} bytes, and none of them is in this range.", bytes=size)
    return wanted


def still_current(if_range: str | None, etag: str) -> bool:
    """Whether a range may be sent: If-Range names what the client has a part of, by a strong tag (§13.1.5)."""
    return if_range is None or if_range.strip() == etag
