"""Arguments judged against a tool's inputSchema, before anything is stored.

The schema comes from an upstream, so it may be broken, refer to what cannot be found, or go round in circles: then it refuses
nothing, and the tool itself decides. Nothing is ever fetched for a `$ref`, and judging never takes long (`bounded_schema`).
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

# r"""JSON Schema that comes from anywhere, judged in bounded time: no schema and no value can keep the event loop for long.
#
# jsonschema's validators are used as they are, but for what may take for ever:
#
#     every keyword          costs a step, and what it does more of than others costs more; without steps left nothing is judged
#     pattern, patternProperties, additionalProperties
#                            by RE2, which is linear in the text where Python's `re` is exponential: `^(a+)+$` takes 2 s for 26
#                            letters and twice as long for each further one. What RE2 cannot compile (look-around, backreferences)
#                            is not judged. It also means by \d and $ what ECMA 262 means, and so JSON Schema, and `re` does not
#     unevaluated*           not judged: they look through the schema again, past the steps

VALIDATION_STEPS_MAX: Final = 10_000
"""Of one judgement. A step takes 5 to 15 µs, so this is a tenth of a second; the arguments of a tool take some ten steps."""
PATTERN_BYTES_MAX: Final = 256 * 1024
"""What RE2 may use for one pattern; it refuses what takes more."""
PATTERN_WORK_PER_STEP: Final = 1_000
"""Instructions times characters: RE2 at its slowest takes 6 ns for each."""
COMPARISONS_PER_STEP: Final = 50

_RE2: Final[Any] = re2

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class StepLimitExceeded(Exception):
    """Judging this takes too long."""


class _Pattern(Protocol):
    programsize: int

    def search(self, text: str) -> object: ...


class BoundedSchema:
    """A schema of a dialect of jsonschema's, and the steps that are left of judging by it."""

    def __init__(self, schema: Mapping[str, Any], *, dialect: type[Validator]) -> None:
        """Raises what jsonschema raises for a schema that is none, and `Exhausted` for one that is too large."""
        self._steps = VALIDATION_STEPS_MAX
        self._patterns: dict[str, _Pattern | None] = {}
        bounded = cast("Any", extend(cast("Any", dialect), self._bound_keywords(cast("Any", dialect).VALIDATORS)))
        # Theirs would leave these bounds at a `$schema` in the middle of a schema, or at a reference to its root.
        bounded.evolve = attrs.evolve
        for error in bounded(bounded.META_SCHEMA).iter_errors(schema):
            raise error
        # An empty registry finds nothing outside the schema itself, and asks nobody.
        self._validator = bounded(schema, registry=cast("Any", Registry)())

    def iter_errors(self, instance: Any) -> Generator[ValidationError]:
        """What is wrong with it, as far as it was judged; raises `Exhausted` when that was not all of it."""
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
        """None when this cannot be judged."""
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
        def judge(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
            patterns = schema.get("patternProperties")
            if not patterns or not validator.is_type(instance, "object"):
                return base_keywords(validator, value, instance, schema)
            # One that cannot be judged may match: what it may match is not additional for certain.
            left = {
                name: each
                for name, each in instance.items()
                if all(self._matches(pattern, name) is False for pattern in patterns)
            }
            return base_keywords(validator, value, left, {"properties": schema.get("properties", {})})

        return judge


def _compile_pattern(pattern: Any) -> _Pattern | None:
    options = _RE2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return cast("_Pattern", _RE2.compile(pattern, options))
    except _RE2.error:
        return None


def _count_comparisons(name: str, value: Any, instance: Any) -> int:
    """How often two values are compared at most."""
    if name == "enum" and isinstance(value, list):
        return len(cast("list[Any]", value))
    if name == "uniqueItems" and isinstance(instance, list):
        return len(cast("list[Any]", instance)) ** 2
    return 0


def _skip_keyword(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> Iterator[ValidationError]:
    return iter(())


log = logging.getLogger(__name__)

ERRORS_MAX: Final = 5
"""As many as somebody mends at once."""
ERROR_LENGTH_MAX: Final = 200
VALUE_LENGTH_MAX: Final = 64
"""A longer value is not echoed: it may be a document, and it is the caller's own anyway."""


class ArgumentValidator:
    """A compiled inputSchema. Compiling costs far more than judging, so this is kept."""

    def __init__(self, schema: Mapping[str, Any], *, upstream: str, tool: str) -> None:
        self._log_context = {"upstream": upstream, "tool": tool}
        self._schema: BoundedSchema | None = None
        try:
            self._schema = BoundedSchema(schema, dialect=validator_for(schema, default=Draft202012Validator))
        except Exception:  # noqa: BLE001 - the boundary to foreign schemas: jsonschema raises many things for what is none
            self._disable()

    def find_errors(self, arguments: Mapping[str, Any]) -> list[dict[str, str]]:
        """At most `ERRORS_MAX` times the place, as a pointer, and the rule that it breaks; empty when the arguments fit."""
        if self._schema is None:
            return []
        found: list[dict[str, str]] = []
        try:
            for error in islice(self._schema.iter_errors(arguments), ERRORS_MAX):
                found.append(_format_error(error))  # noqa: PERF401 - what was found before it took too long is kept
        except StepLimitExceeded:
            log.info("tool.arguments_not_judged", extra=self._log_context)  # but what was found is true
        except Exception:  # noqa: BLE001 - the same boundary: a `$ref` without a target, or a circle
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
