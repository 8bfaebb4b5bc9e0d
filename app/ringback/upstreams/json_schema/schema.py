"""A compiled schema, and a cache of those that were used last."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from ringback.domain import jsontext
from ringback.upstreams.json_schema.document import SchemaDocument
from ringback.upstreams.json_schema.evaluation import Evaluation, SchemaError
from ringback.upstreams.json_schema.steps import SchemaUnusable, StepCounter, StepLimitExceeded

CACHED_BYTES_MAX: Final = 512 * 1024
"""Of the schemas as JSON. Compiled, a schema takes up to forty times as much memory, and most have about 500 bytes."""

T = TypeVar("T")


def describe_unusable(problem: Exception) -> str:
    """Why a schema cannot be used, in one bounded clause without secrets: `problem` came from the use of a `BoundedSchema`."""
    if isinstance(problem, SchemaUnusable):
        return str(problem)
    if isinstance(problem, StepLimitExceeded):
        return "the schema is too large"
    return f"its check failed ({type(problem).__name__})"


def find_schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Why values are not checked against this schema, all or some of them; None if all are. It reads all references."""
    try:
        compiled = BoundedSchema(schema)
        compiled.require_targets()
        compiled.find_errors({}, errors_max=1)  # for references that lead to themselves
    except Exception as problem:  # noqa: BLE001 - the boundary to foreign schemas
        return describe_unusable(problem)
    return None


class SchemaCache(Generic[T]):
    """Finds schemas by their content. Beyond its limit, those that were used longest ago are removed."""

    def __init__(self, compile_schema: Callable[[Mapping[str, Any]], T]) -> None:
        self._compile = compile_schema
        self._compiled: OrderedDict[bytes, T] = OrderedDict()
        self._bytes = 0

    def get(self, schema: Mapping[str, Any]) -> T:
        """The compiled schema. Raises what `compile_schema` raises."""
        key = jsontext.dumps_canonical(dict(schema))
        if key not in self._compiled:
            self._compiled[key] = self._compile(schema)
            self._bytes += len(key)
            self._remove_oldest()
        self._compiled.move_to_end(key)
        return self._compiled[key]

    def _remove_oldest(self) -> None:
        """Remove the oldest schemas, but never the one that was just added."""
        while self._bytes > CACHED_BYTES_MAX and len(self._compiled) > 1:
            removed, _ = self._compiled.popitem(last=False)
            self._bytes -= len(removed)


class BoundedSchema:
    """A compiled schema with a limit on the steps of each validation."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises `SchemaUnusable` for an invalid schema and `StepLimitExceeded` for one that is too large."""
        self._document = SchemaDocument(schema, StepCounter())

    def require_targets(self) -> None:
        """Raises `SchemaUnusable` for a reference without a target and `StepLimitExceeded` for too many references."""
        self._document.require_targets(StepCounter())

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
