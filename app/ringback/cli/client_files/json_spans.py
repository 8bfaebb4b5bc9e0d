"""Where the values of a JSON text stand: a parser that keeps spans, for files that are edited and not written anew.

Libraries for JSON with comments give values without places, or write the document anew in a style of their own.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ringback.cli.client_files.text_edits import BYTE_ORDER_MARK, UnreadableDocument

DEPTH_MAX: Final = 64
"""Levels of objects and arrays. Published files of clients have at most ten."""
_SPACE: Final = re.compile(r"[ \t\r\n]*+")
_SPACE_AND_COMMENTS: Final = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*.*?\*/)*+", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*+"')
_SCALAR: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")


@dataclass(frozen=True, slots=True)
class Member:
    """One `"key": value` of an object. `comma` is the place of the comma behind it; None if there is none."""

    key: str
    start: int
    value: "Node"
    comma: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its span. `members` are those of an object in the text's order, duplicates included."""

    start: int
    end: int
    value: Any
    members: tuple[Member, ...] = ()

    def find_member(self, key: str) -> Member | None:
        """The last member of that name: parsers of JSON ignore earlier ones."""
        return next((member for member in reversed(self.members) if member.key == key), None)

    def find_node(self, path: tuple[str, ...]) -> "Node | None":
        node = self
        for key in path:
            if (member := node.find_member(key)) is None:
                return None
            node = member.value
        return node


def parse_json(text: str, *, allows_comments: bool) -> Node:
    """Parse a document; with `allows_comments` also comments and trailing commas. Raises `UnreadableDocument`."""
    return _Parser(text, allows_comments=allows_comments).parse_document()


class _Parser:
    def __init__(self, text: str, *, allows_comments: bool) -> None:
        self._text = text
        self._allows_comments = allows_comments
        self._space = _SPACE_AND_COMMENTS if allows_comments else _SPACE
        self._position = len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0
        self._depth = 0

    def parse_document(self) -> Node:
        self._skip_space()
        node = self._parse_value()
        self._skip_space()
        if self._position != len(self._text):
            raise self._fail()
        return node

    def _parse_value(self) -> Node:
        start = self._position
        if self._text.startswith("{", start):
            return self._parse_nested(self._parse_object)
        if self._text.startswith("[", start):
            return self._parse_nested(self._parse_array)
        found = _STRING.match(self._text, start) or _SCALAR.match(self._text, start)
        value = self._read_token(found)
        return Node(start, self._position, value)

    def _parse_nested(self, parse: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise UnreadableDocument(f"nests more than {DEPTH_MAX} levels deep")
        node = parse()
        self._depth -= 1
        return node

    def _parse_object(self) -> Node:
        start, members = self._position, list[Member]()
        self._position += 1
        while self._continues("}", may_follow=not members or members[-1].comma is not None, is_empty=not members):
            key_start = self._position
            key = self._read_token(_STRING.match(self._text, key_start))
            self._skip_space()
            self._expect(":")
            self._skip_space()
            value = self._parse_value()
            members.append(Member(key, key_start, value, self._read_comma()))
        return Node(start, self._position, {each.key: each.value.value for each in members}, tuple(members))

    def _parse_array(self) -> Node:
        start, values, has_comma = self._position, list[Any](), True
        self._position += 1
        while self._continues("]", may_follow=has_comma, is_empty=not values):
            values.append(self._parse_value().value)
            has_comma = self._read_comma() is not None
        return Node(start, self._position, values)

    def _continues(self, end: str, *, may_follow: bool, is_empty: bool) -> bool:
        """Whether another item follows; else the end has been read."""
        self._skip_space()
        if not self._text.startswith(end, self._position):
            if not may_follow:
                raise self._fail()
            return True
        if may_follow and not is_empty and not self._allows_comments:
            raise self._fail()  # a trailing comma
        self._position += 1
        return False

    def _read_comma(self) -> int | None:
        self._skip_space()
        if not self._text.startswith(",", self._position):
            return None
        self._position += 1
        return self._position - 1

    def _read_token(self, found: re.Match[str] | None) -> Any:
        if found is None:
            raise self._fail()
        try:
            value = json.loads(found[0])
        except ValueError:  # an unknown escape, or a number with too many digits
            raise self._fail() from None
        self._position = found.end()
        return value

    def _expect(self, character: str) -> None:
        if not self._text.startswith(character, self._position):
            raise self._fail()
        self._position += 1

    def _skip_space(self) -> None:
        found = self._space.match(self._text, self._position)
        self._position = found.end() if found is not None else self._position

    def _fail(self) -> UnreadableDocument:
        line = self._text.count("\n", 0, self._position) + 1
        column = self._position - self._text.rfind("\n", 0, self._position)
        kind = "JSON with comments" if self._allows_comments else "JSON"
        return UnreadableDocument(f"is not valid {kind}: line {line}, column {column}")
