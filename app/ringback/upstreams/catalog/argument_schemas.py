"""Validates arguments of event types against their inputSchema, Ringback's own as well as foreign ones."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from ringback.domain import jsontext
from ringback.upstreams.catalog.argument_validation import ArgumentValidator

COMPILED_SCHEMAS_MAX: Final = 512
"""Ringback's four event types at a hundred endpoints. A compiled schema takes some 20 KB."""


class ArgumentSchemas:
    """Keeps the compiled schemas that were used last."""

    def __init__(self) -> None:
        self._validators: OrderedDict[bytes, ArgumentValidator] = OrderedDict()

    def find_error(self, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
        """The errors in one sentence; None if the arguments are valid."""
        errors = self._get_validator(schema).find_errors(arguments)
        return "; ".join(f"{error['pointer']}: {error['detail']}" for error in errors) or None

    def _get_validator(self, schema: Mapping[str, Any]) -> ArgumentValidator:
        key = jsontext.dumps_canonical(dict(schema))
        if (validator := self._validators.get(key)) is None:
            validator = ArgumentValidator(schema, upstream="", tool="")
            self._validators[key] = validator
            if len(self._validators) > COMPILED_SCHEMAS_MAX:
                self._validators.popitem(last=False)
        self._validators.move_to_end(key)
        return validator
