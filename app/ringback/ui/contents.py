"""Arguments and results on pages: pretty JSON, and at most so much of it that a browser shows it at once."""

from dataclasses import dataclass
from typing import Any, Final

from ringback.domain import jsontext

CONTENT_CHARACTERS_MAX: Final = 64 * 1024
"""The REST API has all of it."""
PRETTY_BYTES_MAX: Final = 256 * 1024
"""Longer JSON is shown as it is: to read and write it again takes the event loop a millisecond for each 256 KiB."""
READ_BYTES_MAX: Final = 1024 * 1024
"""A longer result is not read for a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownContent:
    text: str
    size: int
    """Bytes of the stored JSON."""
    is_cut: bool


def show_value(value: Any) -> ShownContent:
    return show_json(jsontext.dumps(value))


def show_json(
    content: bytes, *, characters_max: int = CONTENT_CHARACTERS_MAX, pretty_bytes_max: int = PRETTY_BYTES_MAX
) -> ShownContent:
    """The JSON indented, unless it is longer than `pretty_bytes_max`."""
    shown = content
    if len(content) <= pretty_bytes_max:
        shown = jsontext.dumps_indented(jsontext.loads(content))
    text = shown[: 4 * characters_max].decode("utf-8", errors="replace")[:characters_max]
    return ShownContent(text=text, size=len(content), is_cut=len(text.encode()) < len(shown))
