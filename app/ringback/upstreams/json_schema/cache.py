"""Keeps what was compiled from the schemas that were used last."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from ringback.domain import jsontext

CACHED_BYTES_MAX: Final = 512 * 1024
"""Of the schemas as JSON. Compiled, a schema takes up to forty times as much memory, and most have about 500 bytes."""

T = TypeVar("T")


class SchemaCache(Generic[T]):
    """Finds schemas by their content. What is used least makes room."""

    def __init__(self, compile_schema: Callable[[Mapping[str, Any]], T]) -> None:
        self._compile = compile_schema
        self._compiled: OrderedDict[bytes, T] = OrderedDict()
        self._bytes = 0

    def get(self, schema: Mapping[str, Any]) -> T:
        """Raises as the function that compiles."""
        key = jsontext.dumps_canonical(dict(schema))
        if key not in self._compiled:
            self._compiled[key] = self._compile(schema)
            self._bytes += len(key)
            self._make_room()
        self._compiled.move_to_end(key)
        return self._compiled[key]

    def _make_room(self) -> None:
        """Remove the oldest schemas, but never the one that was just added."""
        while self._bytes > CACHED_BYTES_MAX and len(self._compiled) > 1:
            removed, _ = self._compiled.popitem(last=False)
            self._bytes -= len(removed)
