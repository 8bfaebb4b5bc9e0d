"""Validates arguments of event types against their inputSchema, Ringback's own as well as foreign ones."""

from collections.abc import Mapping
from typing import Any

from ringback.upstreams.catalog.argument_validation import ArgumentValidator
from ringback.upstreams.json_schema.cache import SchemaCache


class ArgumentSchemas:
    """Keeps the compiled schemas that were used last."""

    def __init__(self) -> None:
        self._validators = SchemaCache(lambda schema: ArgumentValidator(schema, upstream="", tool=""))

    def find_error(self, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
        """The errors in one sentence; None if the arguments are valid."""
        errors = self._validators.get(schema).find_errors(arguments)
        return "; ".join(f"{error['pointer']}: {error['detail']}" for error in errors) or None
