"""Edits of objects in a JSON text: members are replaced, added and removed, and the rest of the text stays as it is."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from ringback.cli.client_files.json_spans import Member, Node
from ringback.cli.client_files.text_edits import Edit, find_indentation, find_newline, is_end_of_line

INDENTATION_DEFAULT: Final = "  "
LIST_WIDTH_MAX: Final = 80
"""Characters of a list on one line, about as formatters of JSON have it."""


def replace_members(text: str, node: Node, remove: Collection[str], add: Mapping[str, Any]) -> list[Edit]:
    """Put the members of `add` in the place of the first removed one. Comments beside the removed ones stay."""
    removed = [member for member in node.members if member.key in remove]
    if not removed:
        return add_members(text, node, add)
    first, *others = removed
    edits = [Edit(first.start, first.value.end, _format_members(text, node, first, add))]
    edits += [_remove_member(text, member) for member in others]
    kept = [member for member in node.members if member is first or member not in removed]
    if kept[-1] is not node.members[-1] and node.members[-1].comma is None:
        edits += _remove_comma(text, node, kept[-1])
    return edits


def add_members(text: str, node: Node, add: Mapping[str, Any]) -> list[Edit]:
    """Add members at the end of the object."""
    if not add:
        return []
    if not node.members:
        return [_fill_object(text, node, add)]
    last = node.members[-1]
    indentation = find_indentation(text, last.start)
    separator = " " if indentation is None else find_newline(text) + indentation
    formatted = _format_members(text, node, last, add)
    if last.comma is None:
        return [Edit(last.value.end, last.value.end, f",{separator}{formatted}")]
    return [Edit(last.comma + 1, last.comma + 1, f"{separator}{formatted},")]


def remove_members(text: str, node: Node, keys: Collection[str]) -> list[Edit]:
    """Remove members with their lines."""
    removed = [member for member in node.members if member.key in keys]
    edits = [_remove_member(text, member) for member in removed]
    kept = [member for member in node.members if member not in removed]
    if removed and kept and kept[-1] is not node.members[-1] and node.members[-1].comma is None:
        edits += _remove_comma(text, node, kept[-1])
    return edits


def _remove_comma(text: str, node: Node, member: Member) -> list[Edit]:
    """The comma behind the member that is now the last one, with the space before a removed member on its line."""
    if member.comma is None:
        return []
    end = member.comma + 1 + len(text[member.comma + 1 :]) - len(text[member.comma + 1 :].lstrip(" \t"))
    is_member_next = any(each.start == end for each in node.members)
    return [Edit(member.comma, end if is_member_next else member.comma + 1, "")]


def _remove_member(text: str, member: Member) -> Edit:
    """The member with its comma, and the line break before it if nothing else stands on its line."""
    start, end = member.start, member.value.end if member.comma is None else member.comma + 1
    if find_indentation(text, start) is not None and is_end_of_line(text, end):
        return Edit(len(text[:start].rstrip(" \t\r\n")), end, "")
    if member.comma is None:
        return Edit(len(text[:start].rstrip(" \t")), end, "")
    return Edit(start, end + len(text[end:]) - len(text[end:].lstrip(" \t")), "")


def _format_members(text: str, node: Node, place: Member, add: Mapping[str, Any]) -> str:
    """The members as text, in the style of the object: one a line, or all on one line."""
    indentation = find_indentation(text, place.start)
    if indentation is None:
        return ", ".join(f"{_dump(key)}: {_dump(value)}" for key, value in add.items())
    unit = _find_unit(text, node, indentation)
    newline = find_newline(text) + indentation
    return f",{newline}".join(f"{_dump(key)}: {_dump(value, unit, newline)}" for key, value in add.items())


def _fill_object(text: str, node: Node, add: Mapping[str, Any]) -> Edit:
    """The edit that adds members to an empty object, each on a line of its own."""
    line_start = text.rfind("\n", 0, node.start) + 1
    line = text[line_start : node.start]
    outer = line[: len(line) - len(line.lstrip(" \t"))]
    unit = outer if outer.strip(" ") else INDENTATION_DEFAULT
    newline = find_newline(text)
    inner = newline + outer + unit
    members = f",{inner}".join(f"{_dump(key)}: {_dump(value, unit, inner)}" for key, value in add.items())
    has_content = bool(text[node.start + 1 : node.end - 1].strip())  # a comment
    start = node.end - 1 if has_content else node.start + 1
    return Edit(start, node.end - 1, f"{inner}{members}{newline}{outer}")


def _find_unit(text: str, node: Node, inner: str) -> str:
    """One level of indentation: what the members have more than the line on which their object begins."""
    line_start = text.rfind("\n", 0, node.start) + 1
    line = text[line_start : node.start]
    outer = line[: len(line) - len(line.lstrip(" \t"))]
    return inner.removeprefix(outer) or INDENTATION_DEFAULT


def _dump(value: Any, unit: str = "", newline: str = "") -> str:
    """The value as JSON; with a line break, objects get a line for each member. Short lists stay on one line."""
    if isinstance(value, dict) and value and newline:
        inner = newline + unit
        members = (f"{_dump(key)}: {_dump(each, unit, inner)}" for key, each in cast("dict[str, Any]", value).items())
        return f"{{{inner}{f',{inner}'.join(members)}{newline}}}"
    text = _encode_json(value)
    if isinstance(value, list) and newline and len(text) > LIST_WIDTH_MAX:
        inner = newline + unit
        return f"[{inner}{f',{inner}'.join(_dump(each, unit, inner) for each in cast('list[Any]', value))}{newline}]"
    return text


def _encode_json(value: Any) -> str:
    """The value as JSON. Half a character (a lone surrogate) stays an escape: a file of UTF-8 cannot have it otherwise."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text
