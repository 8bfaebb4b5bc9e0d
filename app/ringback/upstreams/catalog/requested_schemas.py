"""Validates the content of answers to elicitations against the requestedSchema of their questions.

An upstream writes the schema. One that cannot be used rejects nothing, as an inputSchema.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ringback.services.calls.input_answers import AnswerContent
from ringback.upstreams.catalog.argument_validation import ERRORS_MAX, format_error
from ringback.upstreams.json_schema.evaluation import SchemaError
from ringback.upstreams.json_schema.schema import BoundedSchema, SchemaCache
from ringback.upstreams.json_schema.steps import StepCounter


class RequestedSchemas:
    """Implements `services.calls.input_answers.AnswerSchemas`. The answers of one request share the steps of one validation."""

    def __init__(self) -> None:
        self._schemas = SchemaCache(BoundedSchema)

    def find_errors(self, contents: Sequence[AnswerContent]) -> Sequence[Mapping[str, str]]:
        steps = StepCounter()
        found = [
            format_error(error, "responses", content.key, "content")
            for content in contents
            for error in self._find_errors(content.schema, content.content, steps)
        ]
        return found[:ERRORS_MAX]

    def _find_errors(self, schema: Mapping[str, Any], content: Any, steps: StepCounter) -> Sequence[SchemaError]:
        if steps.left < 0:
            return []
        try:
            errors, _ = self._schemas.get(schema).find_errors(content, errors_max=ERRORS_MAX, steps=steps)
        except Exception:  # noqa: BLE001 - the boundary to foreign schemas
            return []
        return errors
