"""The port between the row classes and a database: the named statements of one .sql file, on one connection.

A statement has the same name, the same `:parameters` and the same columns in every dialect. Parameters are values as columns
store them (`columns.py`), lists of scalars in the form of `Statements.array`, and lists of rows as one JSON text.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, overload

from ringback.storage.codec import RowCodec

T = TypeVar("T")


class Row(Protocol):
    """One row of a result: its values by column name, or in the order of the columns."""

    @overload
    def __getitem__(self, key: str, /) -> Any: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[Any, ...]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Queries(Protocol):
    """Statements that return rows. Every method runs one of them to its end."""

    async def fetch_all(self, name: str, /, **parameters: Any) -> Sequence[Row]: ...

    async def fetch_one(self, name: str, /, **parameters: Any) -> Row | None:
        """The first row; None if there is none."""
        ...

    async def fetch_records(self, name: str, codec: RowCodec[T], /, **parameters: Any) -> list[T]: ...

    async def fetch_record(self, name: str, codec: RowCodec[T], /, **parameters: Any) -> T | None: ...


class Statements(Queries, Protocol):
    """The statements of one .sql file. `execute` and `execute_many` run one to its end."""

    async def execute(self, name: str, /, **parameters: Any) -> int:
        """The number of changed rows."""
        ...

    async def execute_many(self, name: str, /, rows: Iterable[Mapping[str, Any]]) -> None:
        """Run the statement once for each row of parameters."""
        ...

    def without_locks(self) -> Queries:
        """The same statements. In a unit that writes, they leave the rows that they read to other units."""
        ...

    def array(self, values: Collection[Any], /) -> Any:
        """A list of scalars, as this dialect's statements take it."""
        ...

    def parameters(self, name: str, /) -> frozenset[str]:
        """The names of the statement's parameters."""
        ...
