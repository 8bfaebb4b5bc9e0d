"""Edits of tables in a TOML text: statements are replaced and removed, and the rest of the text stays as it is."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ringback.cli.client_files.text_edits import (
    Edit,
    UnreadableDocument,
    find_indentation,
    find_newline,
    is_end_of_line,
)
from ringback.cli.client_files.toml_spans import TomlStatement, format_toml_key, format_toml_value


def replace_keys(
    text: str,
    statements: Sequence[TomlStatement],
    path: tuple[str, ...],
    table: Mapping[str, Any],
    *,
    remove: Collection[str],
    add: Mapping[str, Any],
) -> list[Edit]:
    """Put the keys of `add` in the place of the first removed one of the table at `path`, whose values `table` has.

    Raises `UnreadableDocument` for a table that is written in a way that cannot be edited.
    """
    if inline := next((each for each in statements if each.path == path and not each.is_header), None):
        kept = {key: value for key, value in table.items() if key not in remove}
        return [Edit(inline.value_start, inline.end, format_toml_value({**add, **kept}))]
    depth = len(path)
    removed = [
        each
        for each in statements
        if each.path[:depth] == path and each.path[depth : depth + 1] and each.path[depth] in remove
    ]
    first = next((each for each in removed if not each.is_header and len(each.path) == depth + 1), None)
    if first is None:
        raise UnreadableDocument(f"writes '{path[-1]}' in a way that cannot be edited")
    edits = [_replace_statement(text, first, add)]
    return edits + [_remove_statement(text, each) for each in removed if each is not first]


def _replace_statement(text: str, statement: TomlStatement, add: Mapping[str, Any]) -> Edit:
    written_key = text[statement.start : statement.value_start].rstrip(" \t=")
    last = format_toml_key(statement.path[-1])
    prefix = written_key[: len(written_key) - len(last)] if written_key.endswith(last) else _cut_quoted(written_key)
    separator = find_newline(text) + (find_indentation(text, statement.start) or "")
    lines = (f"{prefix}{format_toml_key(key)} = {format_toml_value(value)}" for key, value in add.items())
    return Edit(statement.start, statement.end, separator.join(lines))


def _cut_quoted(written_key: str) -> str:
    """The dotted key without its last part, which is quoted without need: `"command" = …`."""
    return written_key[: written_key[:-1].rindex(written_key[-1])]


def _remove_statement(text: str, statement: TomlStatement) -> Edit:
    """The statement with its line, and a header with one blank line before it. A comment beside it stays."""
    if find_indentation(text, statement.start) is None or not is_end_of_line(text, statement.end):
        return Edit(statement.start, statement.end, "")
    start = text.rfind("\n", 0, statement.start) + 1
    line_end = text.find("\n", statement.end)
    end = line_end + 1 if line_end >= 0 else len(text)
    if statement.is_header and (before := text[:start].rstrip(" \t")).endswith(("\n\n", "\n\r\n")):
        start = before.rindex("\n", 0, len(before) - 1) + 1
    return Edit(start, end, "")
