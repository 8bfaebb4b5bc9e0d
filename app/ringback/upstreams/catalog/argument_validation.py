"""Checks arguments against the inputSchema of a tool or an event type, in bounded time.

The schema comes from an upstream: it may be invalid, have unresolvable references, or be recursive without end. Such a schema
rejects nothing, and the tool itself decides. So it does about arguments that take more steps than a validation may have, or
that lead to a reference without a target.
A `$ref` never causes a request. The limits are those of `ringback.upstreams.json_schema`.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from ringback.domain import jsontext
from ringback.upstreams.json_schema.evaluation import SchemaError
from ringback.upstreams.json_schema.schema import BoundedSchema, SchemaCache, describe_unusable
from ringback.upstreams.json_schema.steps import StepCounter

log = logging.getLogger(__name__)

ERRORS_MAX: Final = 5
"""A caller can correct about this many at once."""
ERROR_LENGTH_MAX: Final = 200


class ArgumentSchemas:
    """Keeps the compiled schemas that were used last."""

    def __init__(self) -> None:
        self._validators = SchemaCache(lambda schema: ArgumentValidator(schema, upstream="", tool=""))

    def find_error(self, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
        """The errors in one sentence; None if the arguments are valid."""
        errors = self._validators.get(schema).find_errors(arguments)
        return "; ".join(f"{error['pointer']}: {error['detail']}" for error in errors) or None


class ArgumentValidator:
    """A compiled inputSchema. It is kept, because compiling costs far more than a validation."""

    def __init__(self, schema: Mapping[str, Any], *, upstream: str, tool: str) -> None:
        self._log_context = {"upstream": upstream, "tool": tool}
        self._schema: BoundedSchema | None = None
        self._is_logged = False
        try:
            self._schema = BoundedSchema(schema)
        except Exception as problem:  # noqa: BLE001 - the boundary to foreign schemas
            self._log_unusable(problem)

    def find_errors(self, arguments: Mapping[str, Any], steps: StepCounter | None = None) -> list[dict[str, str]]:
        """At most `ERRORS_MAX` errors, each with a JSON pointer and a detail; empty if the arguments are valid.

        Several checks can share their steps.
        """
        if self._schema is None:
            return []
        try:
            errors, is_complete = self._schema.find_errors(arguments, errors_max=ERRORS_MAX, steps=steps)
        except Exception as problem:  # noqa: BLE001 - the same boundary: a `$ref` without a target, or a cycle
            self._log_unusable(problem)  # and check other arguments: those of one principal decide nothing for another
            return []
        if not is_complete:
            log.info("tool.arguments_not_validated", extra=self._log_context)  # the errors found so far are valid
        return [format_error(error, "arguments") for error in errors]

    def _log_unusable(self, problem: Exception) -> None:
        if not self._is_logged:
            self._is_logged = True
            log.warning("tool.schema_unusable", extra={**self._log_context, "problem": describe_unusable(problem)})


def format_error(error: SchemaError, *place: str | int) -> dict[str, str]:
    """A JSON pointer from the whole request, in which the value is at this place, and a detail."""
    return {"pointer": jsontext.format_pointer([*place, *error.path]), "detail": error.detail[:ERROR_LENGTH_MAX]}
