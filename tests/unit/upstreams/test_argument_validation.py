"""Arguments are checked against schemas of untrusted upstreams."""

from typing import Any

import pytest

from ringback.upstreams.catalog.argument_validation import ERROR_LENGTH_MAX, ERRORS_MAX, ArgumentValidator
from ringback.upstreams.json_schema.patterns import KEPT_MAX
from ringback.upstreams.json_schema.schema import BoundedSchema, find_schema_problem
from ringback.upstreams.json_schema.steps import StepCounter

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "maxLength": 3},
        "options": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def errors(schema: Any, arguments: dict[str, Any]) -> list[dict[str, str]]:
    return ArgumentValidator(schema, upstream="git", tool="log").find_errors(arguments)


def test_arguments_that_fit_have_no_errors() -> None:
    assert errors(SCHEMA, {"path": "a", "options": {"n": 1}}) == []


@pytest.mark.parametrize(
    ("arguments", "pointer", "detail"),
    [
        ({}, "#/arguments", "'path' is a required property"),
        ({"path": "a", "options": {"n": "x"}}, "#/arguments/options/n", "\"x\" is not of type 'integer'"),
        ({"path": "a", "repo": 1}, "#/arguments", "Additional properties are not allowed ('repo' was unexpected)"),
    ],
)
def test_an_error_points_at_the_place_and_names_the_rule(arguments: dict[str, Any], pointer: str, detail: str) -> None:
    assert errors(SCHEMA, arguments) == [{"pointer": pointer, "detail": detail}]


ITEM = {"type": "object", "properties": {"sku": {"type": "string"}, "qty": {"type": "integer"}}, "required": ["sku"]}
CAT = {"properties": {"lives": {"type": "integer"}, "kind": {"const": "cat"}}, "required": ["kind", "lives"]}
DOG = {"properties": {"kind": {"const": "dog"}, "name": {"type": "string"}}, "required": ["kind", "name"]}


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
@pytest.mark.parametrize(
    ("branches", "value", "pointer", "detail"),
    [
        ([ITEM, {"type": "null"}], {"qty": 2}, "", "'sku' is a required property"),
        ([{"type": "null"}, ITEM], {"sku": "a", "qty": "b"}, "/qty", '"b" is not of type \'integer\''),
        ([ITEM, {"type": "null"}], "sku", "", '"sku" is not of type \'object\', \'null\''),
        ([{"anyOf": [ITEM, {"type": "null"}]}, {"type": "integer"}], "s", "", '"s" is not of type \'object\', \'null\', \'integer\''),  # noqa: E501
        ([{"anyOf": [ITEM, {"type": "null"}]}, {"type": "integer"}], {}, "", "'sku' is a required property"),
        ([{"type": "string", "pattern": "^a"}, {"type": "null"}], "b", "", '"b" does not match \'^a\''),
        ([{"enum": ["a", "b"]}, {"type": "null"}], "c", "", '"c" is not one of ["a", "b"]'),
        ([CAT, DOG], {"kind": "dog", "lives": "many"}, "", "'name' is a required property"),
        ([CAT, DOG], {"kind": "cat", "lives": "many"}, "/lives", '"many" is not of type \'integer\''),
        ([CAT, DOG], {"kind": "cow"}, "/kind", 'one of ["cat", "dog"] was expected'),
        ([{"required": ["a"]}, {"required": ["b"]}], {}, "", "'a' is a required property, or 'b' is a required property"),
        ([False, {"type": "null"}], 1, "", "1 is not allowed"),
    ],
)  # fmt: skip
def test_a_value_that_fits_no_branch_gets_the_error_of_the_best_one(
    keyword: str, branches: list[Any], value: Any, pointer: str, detail: str
) -> None:
    found = errors(schema_of_path(items={keyword: branches}), {"path": [value, value]})

    assert found == [{"pointer": f"#/arguments/path/{index}{pointer}", "detail": detail} for index in range(2)]


def nest_branches(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"anyOf": [schema]}
    return schema


@pytest.mark.parametrize(
    "rule",
    [{"anyOf": [{"minLength": 3, "maximum": number} for number in range(1, 4_000)]}, nest_branches(140)],
    ids=["many", "deep"],
)
def test_a_value_that_fits_none_of_too_many_branches_is_refused_without_a_reason(rule: dict[str, Any]) -> None:
    found = errors(schema_of_path(**rule), {"path": 5_000})

    assert found[0]["pointer"] == "#/arguments/path"


def test_a_long_value_is_not_echoed() -> None:
    (error,) = errors(SCHEMA, {"path": "secret" * 100})

    assert error == {"pointer": "#/arguments/path", "detail": "the value has more characters than the maximum of 3"}


@pytest.mark.parametrize(
    ("rule", "value", "detail"),
    [
        ({"type": "string"}, True, "true is not of type 'string'"),
        ({"enum": [None, False, 1]}, "a", '"a" is not one of [null, false, 1]'),
        ({"const": {"a": [None, 1.5]}}, True, '{"a": [null, 1.5]} was expected'),
        ({"minLength": 1}, "", '"" must not be empty'),
        ({"minItems": 1}, [], "[] must not be empty"),
        ({"maxProperties": 0}, {"a": {}}, '{"a": {}} must be empty'),
        ({"uniqueItems": True}, [1, True, 1], "[1, true, 1] has an item more than once"),
        ({"minLength": 2}, "a", '"a" has fewer characters than the minimum of 2'),
        ({"maxItems": 2}, [1, 2, 3], "[1, 2, 3] has more items than the maximum of 2"),
        ({"minProperties": 2}, {"k": True}, '{"k": true} has fewer properties than the minimum of 2'),
        ({"contains": {"type": "string"}}, [1], 'No item of [1] matches {"type": "string"} (expected at least 1)'),
        ({"contains": {"enum": [0] * 99}}, [1], "No item of [1] matches the given schema (expected at least 1)"),
        ({"not": {"enum": [1, *range(99)]}}, 1, "1 should not be valid under the given schema"),
        ({"type": "null"}, "ä\u202e\ud800", "\"ä\\u202e\\ud800\" is not of type 'null'"),
    ],
)
def test_a_message_has_values_of_json_and_plain_words(rule: dict[str, Any], value: Any, detail: str) -> None:
    assert errors(schema_of_path(**rule), {"path": value}) == [{"pointer": "#/arguments/path", "detail": detail}]


def test_errors_are_few_and_short() -> None:
    schema = {"properties": {f"p{number}": {"enum": ["x" * 300]} for number in range(20)}}
    found = errors(schema, {f"p{number}": number for number in range(20)})

    assert len(found) == ERRORS_MAX
    assert max(len(error["detail"]) for error in found) <= ERROR_LENGTH_MAX


@pytest.mark.parametrize(
    ("divisor", "multiples", "others"),
    [
        (0.01, [number / 100 for number in range(2_000)], [19.995, 0.001, 5e-324]),
        (0.1, [0, 0.3, -0.7, 12, 1e308], [0.35]),
        (1e-308, [1e308, 3e-308, 2**70], [1.5e-308]),
        (1e308, [0.0, 1e308, 10**400], [1, 1e307]),
        (3, [-9, 9.0, 3e100, 3 * 10**400], [10**400, 1e308, 0.5]),
        (0.123456789, [0], [1e308]),
    ],
)
def test_a_multiple_is_one_of_the_decimals_that_were_written(
    divisor: float, multiples: list[float], others: list[float]
) -> None:
    schema = schema_of_path(items={"multipleOf": divisor})

    assert errors(schema, {"path": multiples}) == []
    assert [errors(schema, {"path": [each]})[0]["pointer"] for each in others] == ["#/arguments/path/0"] * len(others)


def test_a_schema_without_a_dialect_is_read_as_2020_12() -> None:
    schema = {"properties": {"pair": {"prefixItems": [{"type": "string"}]}}}

    assert errors(schema, {"pair": [1]}) != []


def test_a_dialect_that_is_named_is_honoured() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"pair": {"items": [{"type": "string"}]}},
    }

    assert errors(schema, {"pair": [1]}) != []


def test_a_value_at_which_a_schema_is_unusable_leaves_the_check_of_other_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schema = {"properties": {"path": {"$ref": "#/absent"}, "n": {"type": "integer"}}}
    checker = ArgumentValidator(schema, upstream="git", tool="log")

    assert [checker.find_errors({"path": "a"}), checker.find_errors({"path": "a"})] == [[], []]
    assert checker.find_errors({"n": "x"}) != []
    assert [record.getMessage() for record in caplog.records] == ["tool.schema_unusable"]


def test_a_value_that_uses_up_the_steps_where_a_reference_is_read_leaves_the_check_of_other_values() -> None:
    places = {f"p{number}": {"type": "string"} for number in range(200)}
    pointer = {"$ref": "#/outside"}
    checker = BoundedSchema({"outside": {"properties": places}, "properties": {"path": pointer}})
    few = StepCounter()
    few.left = 430

    assert checker.find_errors({"path": {"p0": 1}}, errors_max=5, steps=few) == ([], False)
    errors_of_other, is_complete = checker.find_errors({"path": {"p0": 1, "p199": 1}}, errors_max=5)
    assert [error.path for error in errors_of_other] == [("path", "p0"), ("path", "p199")]
    assert is_complete


NO_TARGET = "has no target in the schema"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "no-such-type"}, 'the keyword type has a wrong argument: "no-such-type"'),
        ({"properties": {"path": {"required": True}}}, "the keyword required has a wrong argument: true"),
        ({"properties": {"path": {"enum": "pa55word"}}}, "the keyword enum has a wrong argument"),
        ({"$schema": 3}, "the keyword $schema has a wrong argument: 3"),
        ({"properties": {f"p{number}": True for number in range(30_000)}}, "the schema is too large"),
        ({"$ref": "#/$defs/absent"}, f"the reference '#/$defs/absent' {NO_TARGET}"),
        (
            {"$ref": "http://u:pa55word@[::1]:9/a.json?key=pa55word#/x"},
            f"the reference 'http://::1/a.json' {NO_TARGET}",
        ),
        ({"properties": {"path": {"$ref": "http://["}}}, f"the reference that is not a URI {NO_TARGET}"),
        ({"allOf": [{"$ref": "#" + "x" * 999}]}, f"the reference '#{'x' * 63}…' {NO_TARGET}"),
        ({"$ref": "#"}, "a reference leads to itself"),
    ],
)
def test_a_broken_schema_refuses_nothing_and_is_logged_once_with_the_reason(
    schema: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    checker = ArgumentValidator(schema, upstream="git", tool="log")

    assert checker.find_errors({"path": "a"}) == []
    assert checker.find_errors({"path": "a"}) == []
    (record,) = caplog.records
    assert (record.getMessage(), vars(record)["problem"]) == ("tool.schema_unusable", problem)
    assert find_schema_problem(schema) == problem


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA,
        {"$defs": {"unused": {"$ref": "https://a.example/"}}},
        {"properties": {"minimum": {"minimum": 1, "exclusiveMinimum": True}, "more": {"$ref": "#"}}},
    ],
)
def test_a_schema_has_no_problem_if_no_value_can_reach_one(schema: Any) -> None:
    assert find_schema_problem(schema) is None


# -- schemas that would take for ever ----------------------------------------------------------------------------------------


def schema_of_path(**rule: Any) -> dict[str, Any]:
    return {"properties": {"path": rule}}


CATASTROPHIC_PATTERN = "^(a+)+$"
CATASTROPHIC_INPUT = "a" * 200 + "b"
"""Python's `re` would need longer than the universe is old."""


def test_a_catastrophic_pattern_is_judged_at_once() -> None:
    assert errors(schema_of_path(pattern=CATASTROPHIC_PATTERN), {"path": "aaa"}) == []
    assert errors(schema_of_path(pattern=CATASTROPHIC_PATTERN), {"path": CATASTROPHIC_INPUT}) != []


def test_a_catastrophic_pattern_for_names_is_judged_at_once() -> None:
    schema = {"patternProperties": {CATASTROPHIC_PATTERN: {"type": "integer"}}, "additionalProperties": False}

    assert errors(schema, {"aaa": 1}) == []
    assert "not of type" in errors(schema, {"aaa": "x"})[0]["detail"]
    assert "not allowed" in errors(schema, {CATASTROPHIC_INPUT: 1})[0]["detail"]
    assert (
        errors(
            {"patternProperties": {CATASTROPHIC_PATTERN: {}}, "unevaluatedProperties": False}, {CATASTROPHIC_INPUT: 1}
        )
        == []
    )


@pytest.mark.parametrize("pattern", ["(", "(?=.*[A-Z])x", r"(a)\1", "(?:a{1000}){1000}", r"\p{L}{200}"])
def test_a_pattern_that_cannot_be_judged_refuses_nothing_and_spares_the_other_rules(pattern: str) -> None:
    schema = schema_of_path(pattern=pattern, maxLength=3)

    assert errors(schema, {"path": "b"}) == []
    (error,) = errors(schema, {"path": "long"})
    assert error["detail"] == '"long" has more characters than the maximum of 3'
    names = {"patternProperties": {pattern: {"type": "integer"}}, "additionalProperties": False}
    assert errors(names, {"b": "x"}) == []


UNCHECKED: dict[str, Any] = {"pattern": "(?=x)x"}


@pytest.mark.parametrize(
    "rule",
    [
        {"oneOf": [UNCHECKED, {"type": "string"}]},
        {"not": UNCHECKED},
        {"not": {"not": {"not": UNCHECKED}}},
        {"if": UNCHECKED, "then": False, "else": False},
        {"oneOf": [{"unevaluatedProperties": False}, {"unevaluatedProperties": False}]},
    ],
)
def test_no_value_is_refused_because_of_a_rule_that_cannot_be_judged(rule: dict[str, Any]) -> None:
    assert errors(schema_of_path(**rule), {"path": "b"}) == []
    assert errors(schema_of_path(**rule, maxLength=0), {"path": "b"}) != [], "the other rules are judged"


def test_a_pattern_means_what_it_means_in_json_schema() -> None:
    assert errors(schema_of_path(pattern=r"^\d$"), {"path": "\u0663"}) != [], "an Arabic digit"
    assert errors(schema_of_path(pattern=r"^\p{L}+$"), {"path": "äöü"}) == []
    assert errors(schema_of_path(pattern="^a$"), {"path": "a\n"}) != []


def test_a_schema_with_many_patterns_keeps_few_of_them_and_checks_all() -> None:
    rules = {f"p{number}": {"pattern": f"^{number}$"} for number in range(2 * KEPT_MAX)}
    checker = ArgumentValidator({"properties": rules}, upstream="git", tool="log")

    for number in [*range(2 * KEPT_MAX), 0]:
        assert checker.find_errors({f"p{number}": str(number)}) == []
        assert checker.find_errors({f"p{number}": "x"}) != []


def make_doubling_schema(depth: int) -> dict[str, Any]:
    """Each definition holds the next one twice."""
    defs = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(depth)}
    return {"$defs": {**defs, f"d{depth}": {"type": "object"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (make_doubling_schema(64), {}),
        (schema_of_path(uniqueItems=True), {"path": [{"n": n} for n in range(20_000)]}),
        (schema_of_path(items={"enum": list(range(5_000))}), {"path": [-1] * 5_000}),
        (schema_of_path(pattern=r"(\w|x){500}y"), {"path": "a" * 1_000_000}),
        (schema_of_path(items={"type": "integer"}), {"path": [1] * 100_000}),
    ],
    ids=["references", "unique items", "choices", "a slow pattern", "many items"],
)
def test_arguments_that_take_too_long_to_validate_are_left_to_the_tool(
    schema: dict[str, Any], arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    checker = ArgumentValidator({**schema, "required": ["x"]}, upstream="git", tool="log")
    found = checker.find_errors(arguments)

    assert len(found) <= ERRORS_MAX
    assert [record.getMessage() for record in caplog.records] in ([], ["tool.arguments_not_validated"])
    assert checker.find_errors({"x": 1}) == []


DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def test_naming_the_dialect_leads_nowhere_out_of_the_bounds() -> None:
    within = schema_of_path(**DIALECT, pattern=CATASTROPHIC_PATTERN)
    around = {**DIALECT, "properties": {"path": {"pattern": CATASTROPHIC_PATTERN}, "more": {"$ref": "#"}}}

    assert errors(within, {"path": CATASTROPHIC_INPUT}) != []
    assert errors(around, {"more": {"path": CATASTROPHIC_INPUT}}) != []


def test_a_schema_that_is_too_large_to_be_read_refuses_nothing() -> None:
    huge = {"properties": {f"p{number}": {"type": "string"} for number in range(20_000)}}

    assert errors(huge, {"p1": 1}) == []


@pytest.mark.parametrize("dialect", [{}, {"$schema": "http://json-schema.org/draft-04/schema#"}])
@pytest.mark.parametrize("rule", [{"type": "string"}, {"enum": ["a"]}, {"type": "string", "enum": ["a"]}])
def test_null_is_accepted_where_a_schema_of_openapi_3_0_is_nullable(dialect: Any, rule: Any) -> None:
    def is_accepted(property_schema: Any, value: Any) -> bool:
        return errors({**dialect, "properties": {"unit": property_schema}}, {"unit": value}) == []

    assert is_accepted({**rule, "nullable": True}, None)
    assert is_accepted({"oneOf": [{**rule, "nullable": True}, {"type": "null"}]}, None)
    assert is_accepted({"not": {**rule, "nullable": True}}, None)
    assert not is_accepted({**rule, "nullable": True}, 5)
    assert not is_accepted({**rule, "nullable": False}, None)
    assert not is_accepted({**rule, "nullable": "true"}, None)


@pytest.mark.parametrize("dialect", [{}, {"$schema": "http://json-schema.org/draft-07/schema#"}])
@pytest.mark.parametrize(
    "rule",
    [
        {"$ref": "#/$defs/S"},
        {"allOf": [{"$ref": "#/$defs/S"}]},
        {"anyOf": [{"$ref": "#/$defs/S"}]},
        {"oneOf": [{"$ref": "#/$defs/S"}]},
        {"allOf": [{"$ref": "#/$defs/S"}], "type": "string", "enum": ["a"]},
    ],
)
def test_a_nullable_reference_or_union_accepts_null_and_checks_other_values(dialect: Any, rule: Any) -> None:
    schema = {**dialect, "$defs": {"S": {"type": "string"}}, "properties": {"unit": {**rule, "nullable": True}}}

    assert errors(schema, {"unit": None}) == []
    assert errors(schema, {"unit": "a"}) == []
    assert errors(schema, {"unit": 5}) != []


def test_a_nullable_constant_accepts_null_and_no_other_value() -> None:
    schema = {"properties": {"unit": {"const": "a", "nullable": True}}}

    assert errors(schema, {"unit": None}) == []
    assert errors(schema, {"unit": "b"}) == [{"pointer": "#/arguments/unit", "detail": '"a" was expected'}]
