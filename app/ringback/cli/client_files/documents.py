"""A client's file as a document: its servers, and the text after their replacement.

Both formats have one interface. After an edit, the text is parsed again and compared: the replaced servers have the new
settings, and everything else has the same values. An edit that fails the comparison is refused.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from ringback.cli.client_files import json_edits, toml_edits
from ringback.cli.client_files.json_spans import parse_json
from ringback.cli.client_files.text_edits import Edit, UnreadableDocument, apply_edits
from ringback.cli.client_files.toml_spans import parse_toml

ANY_KEY: Final = "*"
"""In a path: every key of the object, as in the projects of `~/.claude.json`."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """New members of the object at `path`. They replace those in `remove`; other members stay."""

    path: Path
    remove: Collection[str]
    add: Mapping[str, Any]


class Document(ABC):
    """The text of a file, parsed."""

    text: str
    value: Mapping[str, Any]

    def find_containers(self, patterns: Sequence[Path]) -> list[Path]:
        """The paths of the objects that map names to servers."""
        return [path for pattern in patterns for path in _expand_pattern(self.value, pattern)]

    def get(self, path: Path) -> Any:
        found: Any = self.value
        for key in path:
            found = cast("Mapping[str, Any]", found).get(key) if isinstance(found, Mapping) else None
        return found

    def replace(self, replacements: Sequence[Replacement]) -> str:
        """The text after the replacements. Raises `UnreadableDocument` if it would change anything else."""
        edits = [edit for each in replacements for edit in self._edit(each)]
        text = apply_edits(self.text, edits)
        expected = cast("dict[str, Any]", copy.deepcopy(self.value))
        for each in replacements:
            _replace_value(expected, each)
        if self._parse(text).value != expected:
            raise UnreadableDocument("is written in a way that cannot be edited safely")
        return text

    @abstractmethod
    def _edit(self, replacement: Replacement) -> list[Edit]: ...

    @abstractmethod
    def _parse(self, text: str) -> "Document": ...


class JsonDocument(Document):
    def __init__(self, text: str, *, allows_comments: bool) -> None:
        self.text = text
        self._allows_comments = allows_comments
        self.root = parse_json(text, allows_comments=allows_comments)
        value = self.root.value
        if not isinstance(value, dict):
            raise UnreadableDocument("has no object at its top")
        self.value = cast("dict[str, Any]", value)

    def _edit(self, replacement: Replacement) -> list[Edit]:
        node = self.root.find_node(replacement.path)
        if node is None or not isinstance(node.value, dict):
            raise UnreadableDocument(f"has no object '{'.'.join(replacement.path)}'")
        return json_edits.replace_members(self.text, node, replacement.remove, replacement.add)

    def _parse(self, text: str) -> "JsonDocument":
        return JsonDocument(text, allows_comments=self._allows_comments)


class TomlDocument(Document):
    def __init__(self, text: str) -> None:
        self.text = text
        self.value, self._statements = parse_toml(text)

    def _edit(self, replacement: Replacement) -> list[Edit]:
        table = self.get(replacement.path)
        if not isinstance(table, Mapping):
            raise UnreadableDocument(f"has no table '{'.'.join(replacement.path)}'")
        return toml_edits.replace_keys(
            self.text,
            self._statements,
            replacement.path,
            cast("Mapping[str, Any]", table),
            remove=replacement.remove,
            add=replacement.add,
        )

    def _parse(self, text: str) -> "TomlDocument":
        return TomlDocument(text)


def _expand_pattern(value: Any, pattern: Path) -> list[Path]:
    if not pattern:
        return [()]
    if not isinstance(value, Mapping):
        return []
    members = cast("Mapping[str, Any]", value)
    first, *rest = pattern
    keys = list(members) if first == ANY_KEY else [first] if first in members else []
    return [(key, *path) for key in keys for path in _expand_pattern(members[key], tuple(rest))]


def _replace_value(value: dict[str, Any], replacement: Replacement) -> None:
    for key in replacement.path:
        value = value[key]
    for key in replacement.remove:
        value.pop(key, None)
    value.update(replacement.add)
