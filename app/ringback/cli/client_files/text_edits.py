"""Edits of a text by spans. Everything between the spans stays byte for byte as the user wrote it."""

from collections.abc import Iterable
from typing import NamedTuple

BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""Some editors of Windows begin a file with it."""


class UnreadableDocument(ValueError):
    """The text is not what its client would read. The message continues a sentence that begins with the file's name."""


class Edit(NamedTuple):
    start: int
    end: int
    replacement: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Deletions may overlap. Raises `ValueError` if other edits do."""
    parts: list[str] = []
    position = 0
    for edit in sorted(edits):
        if edit.start < position and edit.replacement:
            raise ValueError("edits overlap")
        parts += (text[position : edit.start], edit.replacement)
        position = max(position, edit.end)
    return "".join((*parts, text[position:]))


def find_newline(text: str) -> str:
    """The line ending of the text: that of its first line."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def find_indentation(text: str, position: int) -> str | None:
    """The white space before `position` on its line; None if something else stands there."""
    start = text.rfind("\n", 0, position) + 1
    before = text[start:position].removeprefix(BYTE_ORDER_MARK)
    return before if not before.strip(" \t") else None


def is_end_of_line(text: str, position: int) -> bool:
    """Whether only white space follows on the line."""
    end = text.find("\n", position)
    return not text[position : end if end >= 0 else len(text)].strip()
