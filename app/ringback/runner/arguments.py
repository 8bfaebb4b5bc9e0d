"""Arguments judged against a tool's inputSchema, before anything is stored.

The schema comes from an upstream, so it may be broken, refer to what cannot be found, or go round in circles: then it refuses
nothing, and the tool itself decides. Nothing is ever fetched for a `$ref`.
"""

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, Protocol, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import validator_for
from referencing import Registry

from ringback.domain import jsontext

log = logging.getLogger(__name__)

ERRORS_MAX: Final = 5
"""As many as somebody mends at once."""
ERROR_LENGTH_MAX: Final = 200
VALUE_LENGTH_MAX: Final = 64
"""A longer value is not echoed: it may be a document, and it is the caller's own anyway."""


class _Validator(Protocol):
    def iter_errors(self, instance: Any) -> Any: ...


class ArgumentChecker:
    """A compiled inputSchema. Compiling costs far more than judging, so this is kept."""

    def __init__(self, schema: Mapping[str, Any], *, upstream: str, tool: str) -> None:
        self._about = {"upstream": upstream, "tool": tool}
        self._validator: _Validator | None = None
        try:
            kind = validator_for(schema, default=Draft202012Validator)
            kind.check_schema(dict(schema))
            # An empty registry finds nothing outside the schema itself, and asks nobody.
            self._validator = cast("_Validator", kind(schema, registry=Registry()))
        except Exception:  # noqa: BLE001 - the boundary to foreign schemas: jsonschema raises many things for what is none
            self._give_up()

    def errors(self, arguments: Mapping[str, Any]) -> list[dict[str, str]]:
        """At most `ERRORS_MAX` times the place, as a pointer, and the rule that it breaks; empty when the arguments fit."""
        if self._validator is None:
            return []
        try:
            return [_told(error) for error in islice(self._validator.iter_errors(arguments), ERRORS_MAX)]
        except Exception:  # noqa: BLE001 - the same boundary: a `$ref` without a target, a circle, a pattern that is none
            self._give_up()
            return []

    def _give_up(self) -> None:
        self._validator = None
        log.warning("tool.schema_unusable", extra=self._about)


def _told(error: ValidationError) -> dict[str, str]:
    message = error.message
    value = repr(error.instance)
    if len(value) > VALUE_LENGTH_MAX:
        message = message.replace(value, "the value")
    return {"pointer": jsontext.pointer(["arguments", *error.absolute_path]), "detail": message[:ERROR_LENGTH_MAX]}
