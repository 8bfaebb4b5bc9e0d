"""Arguments judged against a tool's inputSchema, before anything is stored.

The schema comes from an upstream, so it may be broken, refer to what cannot be found, or go round in circles: then it refuses
nothing, and the tool itself decides. Nothing is ever fetched for a `$ref`, and judging never takes long (`bounded_schema`).
"""

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for

from ringback.domain import jsontext
from ringback.runner.bounded_schema import BoundedSchema, StepLimitExceeded

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
    return {"pointer": jsontext.format_pointer(["arguments", *error.absolute_path]), "detail": message[:ERROR_LENGTH_MAX]}
