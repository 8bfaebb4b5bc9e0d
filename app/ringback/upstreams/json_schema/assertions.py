"""The keywords that compare a value. Each counts its steps before it works."""

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, Final, cast

from ringback.upstreams.json_schema.evaluation import Evaluation, Keyword
from ringback.upstreams.json_schema.steps import StepCounter
from ringback.upstreams.json_schema.values import (
    TYPES,
    describe,
    describe_name,
    describe_names,
    describe_values,
    is_equal,
    is_number,
    make_unique_key,
)

Schema = Mapping[str, Any]

MULTIPLE_STEPS: Final = 15
"""Of two doubles. The exponents are at most 324, so the integers that are divided have at most about 650 digits."""
BIT_PAIRS_PER_STEP: Final = 2**19
"""A division of long integers works on pairs of their digits: about 1 µs."""


def check_type(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    types = [argument] if isinstance(argument, str) else cast("list[str]", argument)
    run.steps.count(len(types))
    if not any(TYPES[name](value) for name in types):
        _report_type(run, types, value)


def check_type_of_draft_4(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
    """1.0 is not an integer."""
    types = [argument] if isinstance(argument, str) else cast("list[str]", argument)
    if isinstance(value, float) and "integer" in types and "number" not in types:
        _report_type(run, types, value)
    else:
        check_type(run, argument, value, schema)


def _report_type(run: Evaluation, types: list[str], value: Any) -> None:
    run.report(lambda: f"{describe(value)} is not of type {describe_names(types)}", keyword="type", allowed=types)


def check_const(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if not is_equal(value, argument, run.steps):
        run.report(lambda: f"{describe(argument)} was expected", keyword="const", allowed=(argument,))


def check_enum(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    choices = cast("list[Any]", argument)
    if not any(is_equal(value, choice, run.steps) for choice in choices):
        run.report(
            lambda: f"{describe(value)} is not one of {describe_values(choices)}",
            keyword="enum",
            allowed=choices,
        )


@cache
def accept_null(check: Keyword) -> Keyword:
    """The keyword where the schema has `nullable: true` (OpenAPI 3.0), which JSON Schema ignores: it does not check null.

    The verdict on null is uncertain, so `not` and `oneOf` reject no value because of it.
    """

    def check_unless_null(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
        if value is None:
            run.mark_uncertain()
        else:
            check(run, argument, value, schema)

    return check_unless_null


# -- numbers --


def _limit_number(is_outside: Callable[[Any, Any], bool], words: str) -> Keyword:
    """A boolean limits nothing: it is that of draft 4, which belongs to the limit beside it."""

    def check(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
        if is_number(value) and is_number(argument) and is_outside(value, argument):
            run.report(lambda: f"{describe(value)} is {words} of {describe(argument)}")

    return check


_check_inclusive_minimum: Final = _limit_number(lambda value, limit: value < limit, "less than the minimum")
_check_inclusive_maximum: Final = _limit_number(lambda value, limit: value > limit, "greater than the maximum")
check_exclusive_minimum: Final = _limit_number(lambda value, limit: value <= limit, "less than or equal to the minimum")
check_exclusive_maximum: Final = _limit_number(
    lambda value, limit: value >= limit, "greater than or equal to the maximum"
)


def check_minimum(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
    """With the boolean of draft 4 in all drafts, because such schemas often name no dialect."""
    is_exclusive = schema.get("exclusiveMinimum") is True
    check = check_exclusive_minimum if is_exclusive else _check_inclusive_minimum
    check(run, argument, value, schema)


def check_maximum(run: Evaluation, argument: Any, value: Any, schema: Schema) -> None:
    """As `check_minimum`."""
    is_exclusive = schema.get("exclusiveMaximum") is True
    check = check_exclusive_maximum if is_exclusive else _check_inclusive_maximum
    check(run, argument, value, schema)


def check_multiple_of(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    run.steps.count(MULTIPLE_STEPS)
    if is_number(value) and not _is_multiple(value, argument, run.steps):
        run.report(lambda: f"{describe(value)} is not a multiple of {describe(argument)}")


def _is_multiple(value: float, divisor: float, steps: StepCounter) -> bool:
    """Whether the quotient of the decimals is an integer: 19.99 is a multiple of 0.01, though not as binary fractions."""
    if math.inf in (value, divisor) or value == -math.inf:
        return True  # beyond doubles, so the number that the sender wrote is not known
    numerator, denominator = _to_ratio(value)
    divisor_numerator, divisor_denominator = _to_ratio(divisor)
    bits = numerator.bit_length() + divisor_denominator.bit_length()
    divisor_bits = denominator.bit_length() + divisor_numerator.bit_length()
    steps.count(bits * divisor_bits // BIT_PAIRS_PER_STEP)
    return numerator * divisor_denominator % (denominator * divisor_numerator) == 0


def _to_ratio(number: float) -> tuple[int, int]:
    """The shortest decimal with this value, as a fraction. That of a double has at most 325 digits on either side."""
    return (number, 1) if isinstance(number, int) else Decimal(repr(number)).as_integer_ratio()


# -- lengths --


def _limit_length(kind: type[str | list[Any] | dict[str, Any]], unit: str, *, at_least: bool) -> Keyword:
    """`unit` is what the length counts, in the plural; an empty value or limit has words of its own."""
    special = 1 if at_least else 0
    special_words = "must not be empty" if at_least else "must be empty"
    words = f"has fewer {unit} than the minimum of" if at_least else f"has more {unit} than the maximum of"

    def check(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
        length = len(cast("list[Any]", value)) if isinstance(value, kind) else None
        if length is not None and (length < argument if at_least else length > argument):
            rule = special_words if argument == special else f"{words} {describe(argument, otherwise='its schema')}"
            run.report(lambda: f"{describe(value)} {rule}")

    return check


check_min_length: Final = _limit_length(str, "characters", at_least=True)
check_max_length: Final = _limit_length(str, "characters", at_least=False)
check_min_items: Final = _limit_length(list, "items", at_least=True)
check_max_items: Final = _limit_length(list, "items", at_least=False)
check_min_properties: Final = _limit_length(dict, "properties", at_least=True)
check_max_properties: Final = _limit_length(dict, "properties", at_least=False)


def check_pattern(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if isinstance(value, str) and run.matches(argument, value) is False:
        run.report(lambda: f"{describe(value)} does not match {describe_name(argument)}")


def check_unique_items(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if not argument or not isinstance(value, list):
        return None
    seen = set[str]()
    for item in cast("list[Any]", value):
        key = make_unique_key(item, run.steps)
        if key in seen:
            return run.report(lambda: f"{describe(value)} has an item more than once")
        seen.add(key)
    return None


# -- names --


def check_required(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if isinstance(value, dict):
        for name in cast("list[str]", argument):
            run.steps.count_text(len(name))
            if name not in value:
                run.report(lambda name=name: f"{describe_name(name)} is a required property")


def check_dependent_required(run: Evaluation, argument: Any, value: Any, _schema: Schema) -> None:
    if isinstance(value, dict):
        for name, dependencies in cast("dict[str, list[str]]", argument).items():
            run.steps.count_text(len(name))
            if name in value:
                check_names_beside(run, name, dependencies, value)


def check_names_beside(run: Evaluation, name: str, dependencies: list[str], value: Any) -> None:
    for each in dependencies:
        run.steps.count_text(len(each))
        if each not in value:
            run.report(lambda each=each: f"{describe_name(each)} is a dependency of {describe_name(name)}")
