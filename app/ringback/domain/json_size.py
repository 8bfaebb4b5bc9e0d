"""How much a JSON text contains, counted in its bytes before it is decoded.

A decoded value takes up to 1.5 µs and 200 bytes, however few bytes its text has: 4 MB can be two million numbers. The counts
take about 2 ns for each byte.
"""

from dataclasses import dataclass
from typing import Final

VALUES_MAX: Final = 250_000
"""Scalars, lists and objects of one request. A hundred embeddings of 1,536 numbers are 153,600."""
MEMBERS_MAX: Final = 100_000
"""Names in the objects of one request. A member takes four times as long as an item of a list."""
_VALUE_SIGNS: Final = b",[{"
"""A value stands after each of them, or none if the list or object is empty."""
_SIGN_BYTES: Final = 32
"""What the value after one of them takes beside its text, if it stands in no string; an empty object has two."""

ROW_DECODED_BYTES_MAX: Final = 256 * 1024
"""The memory that JSON in the row of a call may take, because each read of the call decodes it: six thousand values, in a
millisecond."""


@dataclass(frozen=True, slots=True)
class JsonSize:
    values: int
    members: int

    @property
    def is_excessive(self) -> bool:
        return self.values > VALUES_MAX or self.members > MEMBERS_MAX


def estimate_size(text: bytes) -> JsonSize:
    """At least the size: punctuation in strings counts, too."""
    return JsonSize(len(text) - len(text.translate(None, _VALUE_SIGNS)), text.count(b":"))


def estimate_decoded_bytes(text: bytes) -> int:
    """The memory that a text takes with its values: about right for objects, too much for numbers."""
    return len(text) + _SIGN_BYTES * estimate_size(_without_strings(text)).values


def fits_row(text: bytes, *, bytes_max: int) -> bool:
    """Whether the row of a call can hold a JSON text: it has at most `bytes_max` bytes, and not too many values."""
    return len(text) <= bytes_max and estimate_decoded_bytes(text) <= ROW_DECODED_BYTES_MAX


def is_excessive(text: bytes) -> bool:
    """Whether a JSON text has more values or members than a request may have."""
    if not estimate_size(text).is_excessive:
        return False
    if _without_escapes(text).count(b'"') > 2 * (VALUES_MAX + MEMBERS_MAX + 1):
        return True  # each string is a name, a value, or the whole text
    return estimate_size(_without_strings(text)).is_excessive


def _without_strings(text: bytes) -> bytes:
    return b"".join(_without_escapes(text).split(b'"')[::2])


def _without_escapes(text: bytes) -> bytes:
    """In JSON, backslashes are in strings only, and those that escape a quote are what is left when the pairs are removed."""
    return text.replace(rb"\\", b"").replace(rb"\"", b"")
