"""What a new schema of events changes for those who know the older one.

A change is by addition if the new schema has all that the older one has, and more properties. Anything else is reported, also
where it happens to be harmless: only the publisher knows what subscribers rely on.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from ringback.domain import jsontext

_ANNOTATIONS: Final = frozenset(
    {"$comment", "$id", "$schema", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}
)
_SCHEMAS_BY_NAME: Final = ("properties", "$defs", "definitions")
"""Keywords whose members are schemas, to which new ones may be added."""
_Place = tuple[str, ...]


def find_incompatible_change(older: Any, newer: Any) -> str | None:
    """The first change that is no addition, such as "#/properties/amount: 'type' changes"; None if there is none."""
    waiting: list[tuple[_Place, Any, Any]] = [((), older, newer)]
    while waiting:
        place, before, after = waiting.pop()
        if not isinstance(before, dict) or not isinstance(after, dict):
            if before != after:
                return _describe(place, "the schema changes")
            continue
        known, changed = cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", after)
        if (what := _find_own_change(known, changed)) is not None:
            return _describe(place, what)
        waiting.extend(_list_inner(place, known, changed))
    return None


def _find_own_change(older: Mapping[str, Any], newer: Mapping[str, Any]) -> str | None:
    """A change of this schema itself, without those in it."""
    for keyword in _SCHEMAS_BY_NAME:
        for name in _members(older, keyword):
            if name not in _members(newer, keyword):
                return f"'{_shorten(name)}' is no longer there"
    before, after = _required(older), _required(newer)
    for name in sorted(before ^ after):
        return f"'{_shorten(name)}' is {'now' if name in after else 'no longer'} required"
    keywords = (older.keys() | newer.keys()) - _ANNOTATIONS - {*_SCHEMAS_BY_NAME, "required", "items"}
    for keyword in sorted(keywords):
        if jsontext.dumps_canonical(older.get(keyword)) != jsontext.dumps_canonical(newer.get(keyword)):
            return f"'{_shorten(keyword)}' changes"
    return "'items' changes" if ("items" in older) != ("items" in newer) else None


def _list_inner(place: _Place, older: Mapping[str, Any], newer: Mapping[str, Any]) -> Iterator[tuple[_Place, Any, Any]]:
    for keyword in _SCHEMAS_BY_NAME:
        members = _members(newer, keyword)
        for name, schema in _members(older, keyword).items():
            yield (*place, keyword, name), schema, members[name]
    if "items" in older:
        yield (*place, "items"), older["items"], newer["items"]


def _members(schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    members = schema.get(keyword)
    return cast("Mapping[str, Any]", members) if isinstance(members, dict) else {}


def _required(schema: Mapping[str, Any]) -> frozenset[str]:
    names = schema.get("required")
    return frozenset(str(name) for name in cast("list[Any]", names)) if isinstance(names, list) else frozenset()


def _describe(place: _Place, what: str) -> str:
    return f"{'/'.join(('#', *place))[: jsontext.POINTER_LENGTH_MAX]}: {what}"


def _shorten(name: str) -> str:
    return name[: jsontext.REPEATED_NAME_LENGTH_MAX]
