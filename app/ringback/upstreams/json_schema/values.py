"""Types, equality and excerpts of JSON values."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from ringback.upstreams.json_schema.steps import StepCounter

EXCERPT_LENGTH_MAX: Final = 64
"""A longer value is not repeated in an error: it may be a document, and the caller has it."""
LIST_LENGTH_MAX: Final = 160
_INTEGER_BITS_MAX: Final = 128
"""The text of a longer integer takes quadratic time."""


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Also 1.0, as drafts since 6 have it."""
    return is_plain_integer(value) or (isinstance(value, float) and value.is_integer())


def is_plain_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": is_integer,
    "null": lambda value: value is None,
    "number": is_number,
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}


def is_equal(one: Any, other: Any, steps: StepCounter) -> bool:
    """Equality of JSON: 1 equals 1.0, and true does not equal 1. A step for each pair of scalars and each 1,000 characters."""
    steps.count(1)
    if isinstance(one, str) or isinstance(other, str):
        if not (isinstance(one, str) and isinstance(other, str)) or len(one) != len(other):
            return False
        steps.count_text(len(one))
        return one == other
    if isinstance(one, list) and isinstance(other, list):
        ours, theirs = cast("list[Any]", one), cast("list[Any]", other)
        return len(ours) == len(theirs) and all(is_equal(ours[n], theirs[n], steps) for n in range(len(ours)))
    if isinstance(one, dict) and isinstance(other, dict):
        return _are_objects_equal(cast("dict[str, Any]", one), cast("dict[str, Any]", other), steps)
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _are_objects_equal(one: dict[str, Any], other: dict[str, Any], steps: StepCounter) -> bool:
    if len(one) != len(other):
        return False
    for name, value in one.items():
        steps.count_text(len(name))
        if name not in other or not is_equal(value, other[name], steps):
            return False
    return True


def make_unique_key(value: Any, steps: StepCounter) -> str:
    """Equal texts for equal values.

    A text, because Python's hash of texts has a random seed. Its hashes of numbers and tuples have none, so a client could
    choose values whose comparisons take quadratic time.
    """
    parts: list[str] = []
    _write_key(value, parts, steps)
    return "".join(parts)


def _write_key(value: Any, parts: list[str], steps: StepCounter) -> None:
    steps.count(2)
    if isinstance(value, str):
        steps.count_text(len(value))
        parts.append(f"s{len(value)}:{value}")
    elif isinstance(value, list):
        parts.append(f"l{len(cast('list[Any]', value))}:")
        for each in cast("list[Any]", value):
            _write_key(each, parts, steps)
    elif isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        steps.count(2 * len(members))
        parts.append(f"o{len(members)}:")
        for name in sorted(members):
            _write_key(name, parts, steps)
            _write_key(members[name], parts, steps)
    else:
        parts.append(_write_scalar(value))


def _write_scalar(value: Any) -> str:
    """An integer in hexadecimal, because its decimal text takes quadratic time."""
    return f"n{int(value):x};" if is_integer(value) else f"v{value!r};"


# -- excerpts --


def describe(value: Any, *, otherwise: str = "the value") -> str:
    """The value as JSON if that is short, else `otherwise`."""
    if _subtract_length(value, EXCERPT_LENGTH_MAX) < 0:
        return otherwise
    text = _write(value)
    return text if len(text) <= EXCERPT_LENGTH_MAX else otherwise


def _write(value: Any) -> str:
    """JSON on one line. Characters that a terminal does not print are escaped, as are halves of a surrogate pair."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(character: str) -> str:
    return character if character.isprintable() else json.dumps(character)[1:-1]


def describe_name(name: str) -> str:
    """A name with its first characters at least."""
    return repr(_cut(name))


def _cut(text: str) -> str:
    return text if len(text) <= EXCERPT_LENGTH_MAX else text[:EXCERPT_LENGTH_MAX] + "…"


def describe_names(names: Iterable[str]) -> str:
    """The first names, as `describe_values` has values."""
    return _join_first(map(describe_name, names))


def describe_values(values: Iterable[Any]) -> str:
    """The first values as a list of JSON. It reads no further than `LIST_LENGTH_MAX` characters; a long text is cut."""
    return f"[{_join_first(_write(_cut(each)) if isinstance(each, str) else describe(each) for each in values)}]"


def _join_first(described: Iterable[str]) -> str:
    texts: list[str] = []
    length = 0
    for text in described:
        length += len(text) + 2
        texts.append(text if length <= LIST_LENGTH_MAX else "…")
        if length > LIST_LENGTH_MAX:
            break
    return ", ".join(texts)


def _subtract_length(value: Any, remaining: int) -> int:
    """The characters that remain after the shortest text of the value; negative, and no longer exact, if none do."""
    if isinstance(value, str):
        return remaining - len(value)
    if isinstance(value, int) and value.bit_length() > _INTEGER_BITS_MAX:
        return -1
    remaining -= 1
    if isinstance(value, list):
        for each in cast("list[Any]", value):
            if remaining < 0:
                break
            remaining = _subtract_length(each, remaining)
    elif isinstance(value, dict):
        for name, each in cast("dict[str, Any]", value).items():
            if remaining < 0:
                break
            remaining = _subtract_length(each, remaining - len(name))
    return remaining
