"""JSON as bytes: one way to write it, one canonical form to hash."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import orjson

POINTER_LENGTH_MAX: Final = 256
"""A pointer contains names that a client or upstream chose."""
REPEATED_NAME_LENGTH_MAX: Final = 100
"""Characters of a name that an error repeats: the client chose the name."""
INTEGER_DIGITS_MAX: Final = 300
"""Such an integer is in the range of doubles (309 digits), so that each parser reads it, if not exactly."""
_INTEGER_END: Final = 10**INTEGER_DIGITS_MAX
_INTEGER_64_END: Final = 2**64
_INTEGER_64_MIN: Final = -(2**63)
LEVELS_MAX: Final = 254
"""Levels that orjson writes, if the innermost one is empty; otherwise one more."""
_REFUSED_VALUES: Final = (
    ("number is infinity", "a number beyond the range of doubles", "Send it as a string."),
    ("surrogate in string", "an unpaired surrogate", "Send whole characters."),
    ("depth limit", "too many levels", "Send at most 250."),
)
"""JSON (RFC 8259) that orjson refuses: a part of its message, the value in words, and what to do."""
_CONTAINERS: Final = frozenset({dict, list, tuple})
_LONG_RUN: Final = b"0" * 19
"""2**63 has 19 digits. orjson reads an integer beyond 64 bits as a double."""
_DIGITS_AS_ZEROS: Final = bytes(ord("0" if byte in b"0123456789" else " ") for byte in range(256))


class RepeatedName(Exception):
    """An object has two members of one name: RFC 8259 §4 leaves open which of them counts."""

    def __init__(self, name: str) -> None:
        super().__init__(name[:REPEATED_NAME_LENGTH_MAX])
        self.fault = f"has an object with two members named '{name[:REPEATED_NAME_LENGTH_MAX]}'. Send each name once."
        """What is wrong with the text, after its name: `The body has …`."""


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON in the order given.

    Raises TypeError for what JSON text can hold and we do not write: more than 254 levels, integers of more than 300 digits,
    and lone surrogates. The code that accepts values from outside rejects these before it stores anything.
    """
    return _dump(value, 0)


def dumps_indented(value: Any) -> bytes:
    """The same for people."""
    return _dump(value, orjson.OPT_INDENT_2)


def loads(text: bytes | str) -> Any:
    """Parse JSON; integers are exact. Raises `json.JSONDecodeError`, also for NaN, numbers beyond doubles, lone surrogates."""
    value = orjson.loads(text)
    if not _has_long_run(text):
        return value
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("too many levels", "", 0) from None


def _has_long_run(text: bytes | str) -> bool:
    """Whether the text may have an integer beyond 64 bits; 1 ns for each byte, a tenth of what a regular expression takes."""
    if len(text) < len(_LONG_RUN):
        return False
    data = text.encode() if isinstance(text, str) else text
    return _LONG_RUN in data.translate(_DIGITS_AS_ZEROS)


def _dump(value: Any, options: int) -> bytes:
    try:
        return orjson.dumps(value, option=options)
    except TypeError:
        return orjson.dumps(_with_written_integers(value, LEVELS_MAX), option=options)


def _with_written_integers(value: Any, levels: int) -> Any:
    """The value with each integer beyond 64 bits as its text; with what orjson refuses for another reason left as it is."""
    if type(value) is int:
        return value if _INTEGER_64_MIN <= value < _INTEGER_64_END else _write_integer(value)
    if levels == 0 or not isinstance(value, dict | list | tuple):
        return value
    if isinstance(value, dict):
        written: dict[Any, Any] = {}
        for name, member in cast("dict[Any, Any]", value).items():
            written[name] = _with_written_integers(member, levels - 1)
        return written
    return _with_written_items(cast("list[Any]", value), levels)


def _with_written_items(value: Sequence[Any], levels: int) -> Sequence[Any]:
    """Write the items of a list. A list may have millions of numbers, so a number costs no function call."""
    if set(map(type, value)).isdisjoint(_CONTAINERS):
        return [
            item if type(item) is not int or _INTEGER_64_MIN <= item < _INTEGER_64_END else _write_integer(item)
            for item in value
        ]
    items: list[Any] = []  # a comprehension would take a second frame for each level
    for item in value:
        items.append(_with_written_integers(item, levels - 1))  # noqa: PERF401 - see above
    return items


def _write_integer(value: int) -> Any:
    return orjson.Fragment(str(value)) if -_INTEGER_END < value < _INTEGER_END else value


def loads_unique(text: bytes) -> Any:
    """Parse JSON with Python's parser: orjson would round integers beyond 64 bits and keep the last member of a name.

    An integer of thousands of digits becomes one that `dumps` refuses: the rest of the text, such as the id of a request, is
    read all the same. Raises `RepeatedName`, ValueError and RecursionError.
    """
    decoded = text.decode()
    try:
        return _UNIQUE_DECODER.decode(decoded)
    except json.JSONDecodeError:
        raise
    except ValueError:  # Python converts no integer of so many digits
        return _ANY_DIGITS_DECODER.decode(decoded)


def describe_refusal(problem: json.JSONDecodeError, *, subject: str = "The body") -> str:
    """What is wrong with a text that `loads` refuses, where, and what to do. It may be JSON with a value that is not kept."""
    place = f"at line {problem.lineno}, column {problem.colno}"
    for part, value, advice in _REFUSED_VALUES:
        if part in problem.msg:
            return f"{subject} has {value}, {place}. {advice}"
    return f"{subject} is not JSON: {problem.msg}, {place}."


def _build_unique_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(members)
    if len(built) < len(members):
        counts = Counter(name for name, _ in members)
        raise RepeatedName(next(name for name in counts if counts[name] > 1))
    return built


def _read_integer(digits: str) -> int:
    return int(digits) if len(digits) <= INTEGER_DIGITS_MAX else _INTEGER_END


_UNIQUE_DECODER: Final = json.JSONDecoder(object_pairs_hook=_build_unique_object)
_ANY_DIGITS_DECODER: Final = json.JSONDecoder(object_pairs_hook=_build_unique_object, parse_int=_read_integer)


def dumps_canonical(value: Any) -> bytes:
    """The same bytes for equal values, whatever the order of their keys.

    Keys are sorted and nothing is indented, in the spirit of RFC 8785 (JCS); numbers are written as Python reads them, so
    `1` and `1.0` stay two values. Only ever hashed, never sent.
    """
    return _dump(value, orjson.OPT_SORT_KEYS)


def nests_deeper(value: Mapping[str, Any], levels: int) -> bool:
    """Whether an object has more levels of objects and lists than this."""
    containers: list[Mapping[str, Any] | list[Any]] = [value]
    for _ in range(levels):
        inner: list[Any] = []
        for each in containers:
            inner += each if isinstance(each, list) else each.values()
        containers = [each for each in inner if isinstance(each, dict | list)]
    return bool(containers)


def format_pointer(path: Iterable[object]) -> str:
    """A place in a JSON text as a pointer in a fragment (RFC 6901 §6), `#/arguments/max_count`, cut where it gets too long."""
    steps = (str(step)[:POINTER_LENGTH_MAX].replace("~", "~0").replace("/", "~1") for step in path)
    return ("#" + "".join(f"/{step}" for step in steps))[:POINTER_LENGTH_MAX]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
