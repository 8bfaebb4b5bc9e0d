"""The work of a validation is bounded, whatever the schema and the value are. It is counted, not timed.

A line that Python runs costs one. The values count the characters and elements that are written, compared or hashed in C.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any, Final

import pytest

from ringback.upstreams.json_schema import steps
from ringback.upstreams.json_schema.dialects import FORMS
from ringback.upstreams.json_schema.patterns import Patterns, compile_pattern
from ringback.upstreams.json_schema.schema import BoundedSchema
from ringback.upstreams.json_schema.steps import SchemaUnusable, StepLimitExceeded

LIMIT: Final = 3_000
WORKS: Final = 3
"""The schema is read, and validates two values. Each has the limit."""
COST_MAX: Final = 15 * WORKS * LIMIT
SIZE: Final = 20_000
"""Of the hostile values: a single look at each element without a step would be above the limit of some keyword."""
NAMES: Final = [f"name{number}" for number in range(400)]


class Cost:
    """Counts while a function runs."""

    def __init__(self) -> None:
        self.total = 0

    def measure(self, work: Callable[[], object]) -> int:
        before = sys.gettrace()
        self.total = 0
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(before)
        return self.total

    def _trace(self, _frame: FrameType, _event: str, _argument: object) -> Any:
        self.total += 1
        return self._trace


COST: Final = Cost()


class CountedText(str):
    __slots__ = ()

    def __repr__(self) -> str:
        COST.total += len(self)
        return super().__repr__()

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        COST.total += len(self) // 100
        return super().__eq__(other)

    def __hash__(self) -> int:
        COST.total += len(self) // 100
        return super().__hash__()


class CountedList(list[Any]):
    def __repr__(self) -> str:
        COST.total += len(self)
        return super().__repr__()

    def __eq__(self, other: object) -> bool:
        COST.total += len(self)
        return super().__eq__(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as for each list


class CountedObject(dict[str, Any]):
    def __repr__(self) -> str:
        COST.total += len(self)
        return super().__repr__()

    def __eq__(self, other: object) -> bool:
        COST.total += len(self)
        return super().__eq__(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]


NUMBERS: Final = CountedList(range(SIZE))
OBJECTS: Final = CountedList([CountedObject(name0=1) for _ in range(SIZE)])
MEMBERS: Final = CountedObject({f"member{number}": number for number in range(SIZE)})
TEXTS: Final = CountedList([CountedText("x" * 1000) for _ in range(SIZE // 10)])
LONG: Final = CountedText("x" * 1_000_000)
DEEP: Final[Any] = CountedList()
for _ in range(200):
    DEEP[:] = [CountedList(DEEP)]

DEFS: Final[dict[str, Any]] = {
    **{f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(60)},
    "d60": False,
}
BASE: Final = "https://example.com/" + "a/" * 500
SCHEMAS: Final[Mapping[str, tuple[dict[str, Any], Any]]] = {
    "$dynamicRef": ({"$defs": {**DEFS, "end": {"$dynamicAnchor": "end"}}, "items": {"$dynamicRef": "#end"}}, NUMBERS),
    "$recursiveRef": ({"$recursiveAnchor": True, "anyOf": [{"items": {"$recursiveRef": "#"}}] * 9}, DEEP),
    "$ref": ({"$defs": DEFS, "items": {"$ref": "#/$defs/d0"}}, NUMBERS),
    "$ref to an id": (
        {"$defs": {"a": {"$id": BASE, "type": "string"}}, "items": {"not": {"$ref": BASE}}},
        NUMBERS,
    ),
    "additionalItems": ({"items": [{}], "additionalItems": {"type": "integer"}}, NUMBERS),
    "additionalProperties": ({"anyOf": [{"additionalProperties": False}] * 250}, MEMBERS),
    "additionalProperties and patterns": (
        {"patternProperties": {f"^{name}": {} for name in NAMES}, "additionalProperties": False},
        MEMBERS,
    ),
    "allOf": ({"items": {"allOf": [{}] * 400}}, NUMBERS),
    "anyOf": ({"anyOf": [{"type": "string"}] * 250}, NUMBERS),
    "const": ({"anyOf": [{"const": [*range(SIZE - 1), -1]}] * 250}, NUMBERS),
    "contains": ({"contains": {"const": -1}}, NUMBERS),
    "dependencies": ({"items": {"anyOf": [{"dependencies": {"name0": NAMES}}, {}]}}, OBJECTS),
    "dependentRequired": (
        {"items": {"dependentRequired": {"name0": NAMES}}},
        CountedList([dict.fromkeys(NAMES, 1)] * SIZE),
    ),
    "dependentSchemas": ({"items": {"dependentSchemas": {name: {"minProperties": 1} for name in NAMES}}}, OBJECTS),
    "enum": ({"items": {"enum": ["x" * 999 + "y"] * 100}}, TEXTS),
    "exclusiveMaximum": ({"items": {"not": {"exclusiveMaximum": 0}}}, NUMBERS),
    "exclusiveMinimum": ({"items": {"not": {"exclusiveMinimum": SIZE}}}, NUMBERS),
    "if": ({"items": {"if": {"required": NAMES}, "else": {"if": {"required": NAMES}}}}, OBJECTS),
    "items": ({"items": {"type": "integer"}}, NUMBERS),
    "maxItems": ({"anyOf": [{"maxItems": 1}] * 250}, NUMBERS),
    "maxLength": ({"anyOf": [{"maxLength": 1}] * 250}, LONG),
    "maxProperties": ({"anyOf": [{"maxProperties": 1}] * 250}, MEMBERS),
    "maximum": ({"items": {"not": {"maximum": 10**5000}}}, NUMBERS),
    "minItems": ({"anyOf": [{"minItems": 10**9}] * 250}, NUMBERS),
    "minLength": ({"anyOf": [{"minLength": 10**9}] * 250}, LONG),
    "minProperties": ({"anyOf": [{"minProperties": 10**9}] * 250}, MEMBERS),
    "minimum": ({"items": {"not": {"minimum": 10**5000}}}, NUMBERS),
    "multipleOf": ({"items": {"not": {"multipleOf": 1e-300}}}, CountedList([1.7e308] * SIZE)),
    "multipleOf a long integer": ({"items": {"multipleOf": 10**3000}}, CountedList([10**6000] * SIZE)),
    "not": ({"not": {"not": {"not": {"type": "string"}}}}, NUMBERS),
    "oneOf": ({"oneOf": [{"type": "string"}] * 250}, NUMBERS),
    "pattern": ({"items": {"not": {"pattern": r"(\w|x){300}y"}}}, TEXTS),
    "patternProperties": ({"patternProperties": {name: {"type": "string"} for name in NAMES}}, MEMBERS),
    "prefixItems": ({"prefixItems": [{"type": "integer"}] * 1_000}, NUMBERS),
    "properties": ({"items": {"properties": {name: {} for name in NAMES}}}, OBJECTS),
    "propertyNames": ({"propertyNames": {"not": {"const": "a"}}}, MEMBERS),
    "required": ({"items": {"required": NAMES}}, CountedList([dict.fromkeys(NAMES, 1)] * SIZE)),
    "required below anyOf": ({"items": {"anyOf": [{"required": NAMES}, {}]}}, OBJECTS),
    "type": ({"items": {"not": {"type": ["null", "string", "boolean"]}}}, NUMBERS),
    "uniqueItems": ({"uniqueItems": True}, TEXTS),
    "uniqueItems of pairs": ({"uniqueItems": True}, CountedList([[number, number] for number in range(SIZE)])),
}
OLDER: Final = {
    "additionalItems": "http://json-schema.org/draft-07/schema#",
    "dependencies": "http://json-schema.org/draft-07/schema#",
    "$recursiveRef": "https://json-schema.org/draft/2019-09/schema",
}
NOT_ALONE: Final = {"$defs", "$schema", "definitions", "else", "then", "maxContains", "minContains"}


@pytest.fixture(autouse=True)
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEPS_MAX", LIMIT)


def validate(schema: dict[str, Any], value: Any) -> None:
    """Read the schema, validate a value, and another one."""
    compiled = BoundedSchema(schema)
    compiled.find_errors(value, errors_max=5)
    compiled.find_errors({"name": value}, errors_max=5)


def try_validate(schema: dict[str, Any], value: Any) -> None:
    with suppress(SchemaUnusable, StepLimitExceeded):
        validate(schema, value)


def with_dialect(keyword: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": OLDER[keyword], **schema} if keyword in OLDER else schema


def test_every_keyword_has_a_hostile_schema_here() -> None:
    assert FORMS.keys() - NOT_ALONE <= SCHEMAS.keys()


@pytest.mark.parametrize("keyword", SCHEMAS)
def test_a_keyword_never_works_for_longer_than_its_steps(keyword: str) -> None:
    schema, value = SCHEMAS[keyword]

    assert COST.measure(lambda: validate(with_dialect(keyword, schema), value)) <= COST_MAX


def test_all_hostile_keywords_together_do_not_work_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [schema for keyword, (schema, _) in SCHEMAS.items() if keyword not in OLDER]
    monkeypatch.setattr(steps, "STEPS_MAX", 10 * LIMIT)
    compiled = BoundedSchema({"anyOf": [*parts, {"not": {"allOf": parts}}], "$defs": DEFS})
    monkeypatch.setattr(steps, "STEPS_MAX", LIMIT)

    for value in (NUMBERS, OBJECTS, MEMBERS, TEXTS, LONG, DEEP):
        assert COST.measure(lambda value=value: compiled.find_errors(value, errors_max=5)) <= COST_MAX


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"name{number}": {"type": "string"} for number in range(SIZE)}},
        {"required": NAMES * 100},
        {"dependentRequired": {f"name{number}": NAMES for number in range(100)}},
        {"$defs": {f"d{number}": {"$id": BASE + str(number)} for number in range(1_000)}},
        {"allOf": [{"$ref": "#" + "/x" * SIZE}]},
        {"items": {f"unknown{number}": number for number in range(SIZE)}},
    ],
    ids=["properties", "required", "dependencies", "ids", "a pointer", "unknown keywords"],
)
def test_a_schema_is_not_read_for_longer_than_its_steps(schema: dict[str, Any]) -> None:
    assert COST.measure(lambda: try_validate(schema, {"name": 1})) <= COST_MAX


@pytest.mark.parametrize("pattern", ["(a|b)*" * 900, "(a)(b)", "((a)|(b))+", "^(?:(a*))*$"])
def test_a_group_without_a_name_captures_nothing_because_a_search_copies_each_of_them(pattern: str) -> None:
    compiled = compile_pattern(pattern)

    assert compiled is not None
    assert compiled.groups == 0
    assert compiled.search(b"ab") is None if pattern.startswith("^") else compiled.search(b"ab") is not None


def count_search(pattern: str, text: str) -> int:
    """The steps of a search with a compiled pattern."""
    patterns, counter = Patterns(), steps.StepCounter()
    patterns.matches(pattern, "", counter)
    before = counter.left
    patterns.matches(pattern, text, counter)
    return before - counter.left


@pytest.mark.parametrize("text", ["é" * 400, "😀" * 200])
def test_a_search_counts_the_bytes_that_re2_reads(text: str) -> None:
    assert abs(count_search("(.*x){20}y", text) - count_search("(.*x){20}y", "x" * 800)) <= 1


def test_a_search_counts_each_group_that_captures() -> None:
    named = "".join(f"(?P<n{number}>.*x)" for number in range(9))

    assert count_search(named, "ab" * 50) >= 9 * count_search("(.*x)" * 9, "ab" * 50)
