"""JSON as bytes: one way to write it, one canonical form to hash."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import orjson

POINTER_LENGTH_MAX: Final = 256
"""A pointer contains names that a client or upstream chose."""
REPEATED_NAME_LENGTH_MAX: Final = 100
"""Characters of a name that an error repeats: the client chose the name."""


class RepeatedName(Exception):
    """An object has two members of one name: RFC 8259 §4 leaves open which of them counts."""

    def __init__(self, name: str) -> None:
        super().__init__(name[:REPEATED_NAME_LENGTH_MAX])
        self.advice = (
            f"The body has an object with two members named '{name[:REPEATED_NAME_LENGTH_MAX]}'. Send each name once."
        )


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON in the order given.

    Raises TypeError for what JSON text can hold and we do not write: more than 254 levels, integers beyond 64 bits, and
    lone surrogates. The code that accepts values from outside rejects these before it stores anything.
    """
    return orjson.dumps(value)


def loads(text: bytes | str) -> Any:
    return orjson.loads(text)


def loads_unique(text: bytes) -> Any:
    """Parse JSON with Python's parser: orjson would round integers beyond 64 bits and keep the last member of a name.

    Raises `RepeatedName`, ValueError (also for a number of thousands of digits) and RecursionError.
    """
    return _UNIQUE_DECODER.decode(text.decode())


def _build_unique_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(members)
    if len(built) < len(members):
        counts = Counter(name for name, _ in members)
        raise RepeatedName(next(name for name in counts if counts[name] > 1))
    return built


_UNIQUE_DECODER: Final = json.JSONDecoder(object_pairs_hook=_build_unique_object)


def dumps_canonical(value: Any) -> bytes:
    """The same bytes for equal values, whatever the order of their keys.

    Keys are sorted and nothing is indented, in the spirit of RFC 8785 (JCS); numbers are written as Python reads them, so
    `1` and `1.0` stay two values. Only ever hashed, never sent.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def format_pointer(path: Iterable[object]) -> str:
    """A place in a JSON text as a pointer in a fragment (RFC 6901 §6), `#/arguments/max_count`, cut where it gets too long."""
    steps = (str(step)[:POINTER_LENGTH_MAX].replace("~", "~0").replace("/", "~1") for step in path)
    return ("#" + "".join(f"/{step}" for step in steps))[:POINTER_LENGTH_MAX]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
