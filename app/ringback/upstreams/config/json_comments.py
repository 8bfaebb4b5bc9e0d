"""JSON with comments and trailing commas, as VS Code, Cursor and others write and read it."""

import re
from typing import Final

_STRING: Final = r'"(?:[^"\\]|\\.|\\\Z)*+(?:"|\Z)'
"""Also one that is not closed: it ends with the text, so that the time is linear however many quotes follow."""
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\n\r]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(rf"{_STRING}|,(?=[ \t\n\r]*[}}\]])", re.DOTALL)
_BYTE_ORDER_MARK: Final = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""Some editors of Windows begin a file with it."""


def strip_json_comments(text: str) -> str:
    """The text as JSON: comments and trailing commas become spaces, so that every other character keeps its line and column."""
    without_comments = _COMMENT.sub(_blank, text.removeprefix(_BYTE_ORDER_MARK))
    return _TRAILING_COMMA.sub(_blank, without_comments)


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return found if found.startswith('"') else re.sub(r"[^\n\r]", " ", found)
