r"""Checks arguments against the inputSchema of a tool, in bounded time.

The schema comes from an upstream: it may be invalid, have unresolvable references, or be recursive without end. Such a schema
rejects nothing, and the tool itself decides. A `$ref` never causes a request.

Steps are bounded, their cost is not yet: an error contains the text of the whole value, and `required` reports each
missing name in one step, so that megabytes of arguments or a long `required` below `anyOf` take seconds. The validators of
jsonschema are used, except for keywords whose number of steps is unbounded:

    every keyword    costs a step, and more steps for more comparisons; validation stops when the steps are used up
    pattern, patternProperties, additionalProperties
                     use RE2, which is linear in the text, where Python's `re` is exponential: `^(a+)+$` takes 2 s for 26
                     letters and twice as long for each further letter. A pattern that RE2 cannot compile (look-around,
                     backreferences) is not checked. RE2 also reads \d and $ as ECMA 262 and JSON Schema do; `re` does not
    unevaluated*     is not checked: its implementation walks the schema again without counting steps
"""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import islice
from typing import Any, Final, Protocol, cast

import attrs
import re2  # pyright: ignore[reportMissingTypeStubs] - it has none
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import (
    extend,  # pyright: ignore[reportUnknownVariableType] - its stub names no types
    validator_for,
)
from referencing import Registry

from ringback.domain import jsontext

log = logging.getLogger(__name__)

VALIDATION_STEPS_MAX: Final = 10_000
"""For one validation. A step takes 5 to 15 µs, so the limit is 0.1 s; the arguments of a tool take about ten steps."""
PATTERN_BYTES_MAX: Final = 256 * 1024
"""The memory limit of RE2 for one pattern; RE2 rejects a pattern that needs more."""
PATTERN_WORK_PER_STEP: Final = 1_000
"""Instructions times characters. RE2 takes at most 6 ns for each."""
COMPARISONS_PER_STEP: Final = 50
ERRORS_MAX: Final = 5
"""A caller can correct about this many at once."""
ERROR_LENGTH_MAX: Final = 200
VALUE_LENGTH_MAX: Final = 64
"""A longer value is not repeated in the error: it may be a document, and the caller has it."""

_RE2: Final[Any] = re2

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class StepLimitExceeded(Exception):
    """The validation has used all its steps."""


class _Pattern(Protocol):
    programsize: int

    def search(self, text: str) -> object: ...


class BoundedSchema:
    """A compiled schema with a limit on the steps of each validation."""

    def __init__(self, schema: Mapping[str, Any], *, dialect: type[Validator]) -> None:
        """Raises the errors of jsonschema for an invalid schema and `StepLimitExceeded` for one that is too large."""
        self._steps = VALIDATION_STEPS_MAX
        self._patterns: dict[str, _Pattern | None] = {}
        bounded = cast("Any", extend(cast("Any", dialect), self._bound_keywords(cast("Any", dialect).VALIDATORS)))
        # The original `evolve` switches to an unbounded class at a nested `$schema` and at a reference to the root.
        bounded.evolve = attrs.evolve
        for error in bounded(bounded.META_SCHEMA).iter_errors(schema):
            raise error
        # An empty registry resolves no reference outside the schema and sends no request.
        self._validator = bounded(schema, registry=cast("Any", Registry)())

    def iter_errors(self, instance: Any) -> Generator[ValidationError]:
        """Yield the errors of the value; raises `StepLimitExceeded` if the validation is incomplete."""
        self._steps = VALIDATION_STEPS_MAX
        yield from self._validator.iter_errors(instance)

    # -- steps --

    def _count_steps(self, steps: int) -> None:
        self._steps -= 1 + steps
        if self._steps < 0:
            raise StepLimitExceeded

    def _bound_keywords(self, base_keywords: Mapping[str, Keyword]) -> dict[str, Keyword]:
        bounded_keywords: dict[str, Keyword] = {
            **base_keywords,
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties(base_keywords["additionalProperties"]),
        }
        return {
            name: _skip_keyword if name.startswith("unevaluated") else self._count_keyword(name, keyword)
            for name, keyword in bounded_keywords.items()
        }

    def _count_keyword(self, name: str, keyword: Keyword) -> Keyword:
        def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
            self._count_steps(_count_comparisons(name, value, instance) // COMPARISONS_PER_STEP)
            return keyword(validator, value, instance, schema)

        return counted

    # -- patterns --

    def _matches(self, pattern: Any, text: str) -> bool | None:
        """None if RE2 cannot compile the pattern."""
        if pattern not in self._patterns:
            self._patterns[pattern] = _compile_pattern(pattern)
        compiled = self._patterns[pattern]
        if compiled is None:
            return None
        self._count_steps(compiled.programsize * len(text) // PATTERN_WORK_PER_STEP)
        return compiled.search(text) is not None

    def _pattern(self, validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "string") and self._matches(pattern, instance) is False:
            yield ValidationError(f"{instance!r} does not match {pattern!r}")

    def _pattern_properties(
        self, validator: Any, patterns: Any, instance: Any, _schema: Any
    ) -> Iterator[ValidationError]:
        if not validator.is_type(instance, "object"):
            return
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if self._matches(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)

    def _additional_properties(self, base_keywords: Keyword) -> Keyword:
        def validate(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
            patterns = schema.get("patternProperties")
            if not patterns or not validator.is_type(instance, "object"):
                return base_keywords(validator, value, instance, schema)
            # A pattern that cannot be compiled may match, so a property is additional only if no pattern can match it.
            additional = {
                name: each
                for name, each in instance.items()
                if all(self._matches(pattern, name) is False for pattern in patterns)
            }
            return base_keywords(validator, value, additional, {"properties": schema.get("properties", {})})

        return validate


def _compile_pattern(pattern: Any) -> _Pattern | None:
    options = _RE2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return cast("_Pattern", _RE2.compile(pattern, options))
    except _RE2.error:
        return None


def _count_comparisons(name: str, value: Any, instance: Any) -> int:
    """The maximal number of comparisons between two values."""
    if name == "enum" and isinstance(value, list):
        return len(cast("list[Any]", value))
    if name == "uniqueItems" and isinstance(instance, list):
        return len(cast("list[Any]", instance)) ** 2
    return 0


def _skip_keyword(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> Iterator[ValidationError]:
    return iter(())


class ArgumentValidator:
    """A compiled inputSchema. It is kept, because compiling costs far more than a validation."""

    def __init__(self, schema: Mapping[str, Any], *, upstream: str, tool: str) -> None:
        self._log_context = {"upstream": upstream, "tool": tool}
        self._schema: BoundedSchema | None = None
        try:
            self._schema = BoundedSchema(schema, dialect=validator_for(schema, default=Draft202012Validator))
        except Exception:  # noqa: BLE001 - the boundary to foreign schemas: jsonschema raises many kinds of errors for invalid ones
            self._disable()

    def find_errors(self, arguments: Mapping[str, Any]) -> list[dict[str, str]]:
        """At most `ERRORS_MAX` errors, each with a JSON pointer and a detail; empty if the arguments are valid."""
        if self._schema is None:
            return []
        found: list[dict[str, str]] = []
        try:
            for error in islice(self._schema.iter_errors(arguments), ERRORS_MAX):
                found.append(_format_error(error))  # noqa: PERF401 - errors found before the step limit are kept
        except StepLimitExceeded:
            log.info("tool.arguments_not_validated", extra=self._log_context)  # the errors found so far are valid
        except Exception:  # noqa: BLE001 - the same boundary: a `$ref` without a target, or a cycle
            self._disable()
            return []
        return found

    def _disable(self) -> None:
        self._schema = None
        log.warning("tool.schema_unusable", extra=self._log_context)


def _format_error(error: ValidationError) -> dict[str, str]:
    message = error.message
    value = repr(error.instance)
    if len(value) > VALUE_LENGTH_MAX:
        message = message.replace(value, "the value")
    return {
        "pointer": jsontext.format_pointer(["arguments", *error.absolute_path]),
        "detail": message[:ERROR_LENGTH_MAX],
    }
