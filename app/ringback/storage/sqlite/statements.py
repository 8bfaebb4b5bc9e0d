"""The named statements of SQLite's dialect, and how they run on one connection."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import Any, Self, TypeVar

from ringback.storage.codec import RowCodec
from ringback.storage.queries import load_statements, parameters
from ringback.storage.rows.columns import RECORDS, json_to_column
from ringback.storage.sqlite.inserts import ROWS_IN_STATEMENT, parse_triggering_insert

T = TypeVar("T")


@cache
def load_sql(noun: str) -> Mapping[str, str]:
    return load_statements("ringback.storage.sqlite", f"sql/{noun}.sql", RECORDS.by_name())


class SqliteStatements:
    """Implements `rows.statements.Statements`. SQLite runs a statement on the caller's thread, so no method ever waits."""

    __slots__ = ("_connection", "_statements")

    def __init__(self, connection: sqlite3.Connection, statements: Mapping[str, str]) -> None:
        self._connection = connection
        self._statements = statements

    async def fetch_all(self, name: str, /, **parameters: Any) -> list[sqlite3.Row]:
        return self._connection.execute(self._statements[name], parameters).fetchall()

    async def fetch_one(self, name: str, /, **parameters: Any) -> sqlite3.Row | None:
        # `fetchone` would leave the statement unfinished.
        rows = self._connection.execute(self._statements[name], parameters).fetchall()
        return rows[0] if rows else None

    async def fetch_records(self, name: str, codec: RowCodec[T], /, **parameters: Any) -> list[T]:
        rows = self._connection.execute(self._statements[name], parameters).fetchall()
        return [codec.decode(row) for row in rows]

    async def fetch_record(self, name: str, codec: RowCodec[T], /, **parameters: Any) -> T | None:
        rows = self._connection.execute(self._statements[name], parameters).fetchall()
        return codec.decode(rows[0]) if rows else None

    async def execute(self, name: str, /, **parameters: Any) -> int:
        return self._connection.execute(self._statements[name], parameters).rowcount

    async def execute_many(self, name: str, /, rows: Iterable[Mapping[str, Any]]) -> None:
        left, statement = list(rows), self._statements[name]
        if (inserting := parse_triggering_insert(statement)) is not None:
            for count in ROWS_IN_STATEMENT:
                while len(left) >= count:
                    taken, left = left[:count], left[count:]
                    self._connection.execute(inserting.statement_of(count), inserting.list_values(taken))
        self._connection.executemany(statement, left)

    def without_locks(self) -> Self:
        return self  # the only writer has locked every row

    def array(self, values: Collection[Any], /) -> str:
        return json_to_column(values)

    def parameters(self, name: str, /) -> frozenset[str]:
        return _parameters(self._statements[name])


_parameters = cache(parameters)


def statements_on(connection: sqlite3.Connection) -> Callable[[str], SqliteStatements]:
    """Opens the statements of `sql/<noun>.sql` on this connection: each noun's once, because every unit of work opens some."""

    def open_statements(noun: str) -> SqliteStatements:
        return SqliteStatements(connection, load_sql(noun))

    return cache(open_statements)
