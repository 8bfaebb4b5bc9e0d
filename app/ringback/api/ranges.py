"""A part of a representation: the Range header of RFC 9110 §14, for one range of bytes."""

import re
from typing import Final

from ringback.api.problems import RangeNotSatisfiable

_RANGE_PATTERN: Final = re.compile(r"bytes=[ \t]*(?P<first>[0-9]{0,18})-(?P<last>[0-9]{0,18})[ \t]*", re.IGNORECASE)
"""A unit that is not bytes, several ranges, and what is malformed are passed over, and the whole is sent: §14.2 allows it."""


def parse_range(header: str | None, *, size: int) -> range | None:
    """The places of the bytes that are asked for; None for the whole. Raises `RangeNotSatisfiable` when there are none."""
    match = _RANGE_PATTERN.fullmatch(header or "")
    if match is None or not (match["first"] or match["last"]):
        return None
    if not match["first"]:
        selected = range(max(0, size - int(match["last"])), size)
    elif match["last"] and int(match["last"]) < int(match["first"]):
        return None  # §14.1.1: such a range is malformed
    else:
        selected = range(int(match["first"]), min(int(match["last"] or size), size - 1) + 1)
    if not selected:
        raise RangeNotSatisfiable(f"There are {size} bytes, and none of them is in this range.", bytes=size)
    return selected


def if_range_matches(if_range: str | None, etag: str) -> bool:
    """Whether a range may be sent: If-Range names what the client has a part of, by a strong tag (§13.1.5)."""
    return if_range is None or if_range.strip() == etag
