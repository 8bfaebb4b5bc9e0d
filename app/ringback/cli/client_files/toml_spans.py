"""Where the statements of a TOML text stand: headers of tables, and `key = value`.

`tomllib` reads the values and rejects what is not TOML; this module only finds the places, and `documents` compares the values
before and after an edit. A library that keeps comments would be one more dependency, and writes the document anew.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from ringback.cli.client_files.text_edits import BYTE_ORDER_MARK, UnreadableDocument

_BARE: Final = r"[A-Za-z0-9_-]+"
_BASIC: Final = r'"(?:[^"\\\n]|\\.)*+"'
_LITERAL: Final = r"'[^'\n]*+'"
_KEY: Final = rf"(?:{_BARE}|{_BASIC}|{_LITERAL})"
_DOTTED_KEY: Final = re.compile(rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*+")
_KEY_PART: Final = re.compile(_KEY)
_SPACES: Final = re.compile(r"[ \t]*+")
_BLANK: Final = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_STRING: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+"{3,5}' + rf"|'''(?:[^']|'(?!''))*+'{{3,5}}|{_BASIC}|{_LITERAL}", re.DOTALL
)
_PLAIN: Final = re.compile(r"[^\s\"'\[\]{},#]++(?: [0-9]{2}:[^\s,\]}#]++)?")
"""A number, a boolean, or a date, whose time may follow after a space."""


@dataclass(frozen=True, slots=True)
class TomlStatement:
    """A header or a `key = value`. The span has no comment and no line break."""

    path: tuple[str, ...]
    """The full path: a key's begins with that of its table."""
    start: int
    value_start: int
    end: int
    is_header: bool
    is_array_item: bool = False


def parse_toml(text: str) -> tuple[Mapping[str, Any], tuple[TomlStatement, ...]]:
    """The values and the statements. Raises `UnreadableDocument`."""
    try:
        text = text.replace(BYTE_ORDER_MARK, " ", 1) if text.startswith(BYTE_ORDER_MARK) else text
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        place = re.search(r"\(at (line \d+, column \d+)\)", str(error))
        raise UnreadableDocument(f"is not valid TOML{f': {place[1]}' if place else ''}") from None
    return values, tuple(_find_statements(text))


def _find_statements(text: str) -> list[TomlStatement]:
    statements, table = list[TomlStatement](), ()
    position = _skip(_BLANK, text, 0)
    while position < len(text):
        if text.startswith("[", position):
            statement = _read_header(text, position)
            table = statement.path
        else:
            statement = _read_key_value(text, position, table)
        statements.append(statement)
        position = _skip(_BLANK, text, statement.end)
    return statements


def _read_header(text: str, start: int) -> TomlStatement:
    is_array_item = text.startswith("[[", start)
    key_start = _skip_spaces(text, start + 1 + is_array_item)
    path, end = _read_path(text, key_start)
    end = text.index("]", end) + 1 + is_array_item
    return TomlStatement(path, start, end, end, is_header=True, is_array_item=is_array_item)


def _read_key_value(text: str, start: int, table: tuple[str, ...]) -> TomlStatement:
    path, end = _read_path(text, start)
    value_start = _skip_spaces(text, text.index("=", end) + 1)
    return TomlStatement((*table, *path), start, value_start, _find_value_end(text, value_start), is_header=False)


def _read_path(text: str, start: int) -> tuple[tuple[str, ...], int]:
    found = _DOTTED_KEY.match(text, start)
    if found is None:
        raise UnreadableDocument(f"has an unknown statement in line {text.count(chr(10), 0, start) + 1}")
    return tuple(_read_key(part) for part in _KEY_PART.findall(found[0])), found.end()


def _read_key(part: str) -> str:
    (key,) = tomllib.loads(f"{part} = 0")
    return key


def _find_value_end(text: str, start: int) -> int:
    """The end of a value that `tomllib` has found valid: a scalar, or brackets over several lines."""
    depth, position, end = 0, start, start
    while position < len(text):
        if text[position] in "[{":
            depth, position = depth + 1, position + 1
        elif text[position] in "]}":
            depth, position = depth - 1, position + 1
        elif depth and text[position] in ", \t\r\n#=":
            position = max(position + 1 if text[position] in ",=" else 0, _skip(_BLANK, text, position))
            continue
        elif found := _STRING.match(text, position) or _PLAIN.match(text, position):
            position = found.end()
        else:
            break
        end = position
        if depth == 0:
            break
    return end


def _skip(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return position if found is None else found.end()


def _skip_spaces(text: str, position: int) -> int:
    return _skip(_SPACES, text, position)


def format_toml_value(value: Any) -> str:
    """A string, number, boolean, list or object as an inline value. None and other types have no TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float():
            return repr(value)
        case list():
            return f"[{', '.join(format_toml_value(each) for each in cast('list[Any]', value))}]"
        case dict():
            pairs = (
                f"{format_toml_key(key)} = {format_toml_value(each)}"
                for key, each in cast("dict[str, Any]", value).items()
            )
            return f"{{ {', '.join(pairs)} }}" if value else "{}"
        case _:
            raise UnreadableDocument(f"holds a value that cannot be written: {type(value).__name__}")


def format_toml_key(key: str) -> str:
    return key if re.fullmatch(_BARE, key) else format_toml_value(key)
