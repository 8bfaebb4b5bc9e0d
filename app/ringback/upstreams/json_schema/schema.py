"""A compiled schema."""

from collections.abc import Mapping
from typing import Any

from ringback.upstreams.json_schema.document import SchemaDocument
from ringback.upstreams.json_schema.evaluation import Evaluation, SchemaError
from ringback.upstreams.json_schema.steps import StepCounter, StepLimitExceeded


class BoundedSchema:
    """A compiled schema with a limit on the steps of each validation."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises `SchemaUnusable` for an invalid schema and `StepLimitExceeded` for one that is too large."""
        self._document = SchemaDocument(schema, StepCounter())

    def find_errors(
        self, value: Any, *, errors_max: int, steps: StepCounter | None = None
    ) -> tuple[list[SchemaError], bool]:
        """The first errors of the value, and whether the validation is complete. Several values can share their steps.

        Raises `SchemaUnusable` for a reference that has no target or leads to itself.
        """
        evaluation = Evaluation(self._document, errors_max=errors_max, steps=steps or StepCounter())
        try:
            evaluation.collect_errors(value)
        except (StepLimitExceeded, RecursionError):
            return evaluation.errors, False
        return evaluation.errors, True
