"""The named statements of PostgreSQL's dialect, and how they run within one unit of work.

:name          $1, $2, … in the order of their first appearance
{lock}         FOR NO KEY UPDATE in a unit that writes: the rows that it reads by id are its own until it ends
{lock calls}   the same with OF calls, for a statement that joins
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ringback.storage.codec import RowCodec
from ringback.storage.postgres.driver import Connection
from ringback.storage.queries import load_statements, replace_parameters
from ringback.storage.rows.columns import RECORDS
from ringback.storage.rows.statements import Row

T = TypeVar("T")

_LOCK: Final = re.compile(r"\{lock(?: (?P<table>(?!skip)\w+))?(?P<skip> skip locked)?\}")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement in the form that PostgreSQL takes."""

    writing: str
    """The text in a unit that writes: with its locks."""
    reading: str
    parameters: tuple[str, ...]
    """The names of $1, $2, … in their order."""


def compile_statement(text: str) -> Statement:
    numbers: dict[str, int] = {}
    text = replace_parameters(text, lambda name: f"${numbers.setdefault(name, len(numbers) + 1)}")
    return Statement(writing=_LOCK.sub(_lock_clause, text), reading=_LOCK.sub("", text), parameters=tuple(numbers))


def _lock_clause(found: re.Match[str]) -> str:
    # NO KEY: rows that refer to the locked one can be inserted meanwhile.
    table = "" if found["table"] is None else f" OF {found['table']}"
    return f"FOR NO KEY UPDATE{table}{' SKIP LOCKED' if found['skip'] else ''}"


@cache
def load_sql(noun: str) -> Mapping[str, Statement]:
    texts = load_statements("ringback.storage.postgres", f"sql/{noun}.sql", RECORDS.by_name())
    return MappingProxyType({name: compile_statement(text) for name, text in texts.items()})


class UnitConnection:
    """The connection of one unit of work. It knows whether the unit waits for it, because a unit may wait for nothing else."""

    __slots__ = ("_connection", "is_waiting", "takes_locks")

    def __init__(self, connection: Connection, *, takes_locks: bool) -> None:
        self._connection = connection
        self.takes_locks = takes_locks
        self.is_waiting = False

    async def fetch(self, query: str, values: Sequence[Any]) -> Sequence[Row]:
        self.is_waiting = True
        try:
            return await self._connection.fetch(query, *values)
        finally:
            self.is_waiting = False

    async def execute(self, query: str, values: Sequence[Any]) -> int:
        """The number of rows."""
        self.is_waiting = True
        try:
            status = await self._connection.execute(query, *values)
        finally:
            self.is_waiting = False
        return int(status.rpartition(" ")[2])

    async def execute_many(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        self.is_waiting = True
        try:
            await self._connection.executemany(query, rows)
        finally:
            self.is_waiting = False


class PostgresStatements:
    """Implements `rows.statements.Statements`."""

    __slots__ = ("_connection", "_statements", "_takes_locks")

    def __init__(self, connection: UnitConnection, statements: Mapping[str, Statement], *, takes_locks: bool) -> None:
        self._connection = connection
        self._statements = statements
        self._takes_locks = takes_locks

    async def fetch_all(self, name: str, /, **parameters: Any) -> Sequence[Row]:
        return await self._connection.fetch(*self._query(name, parameters))

    async def fetch_one(self, name: str, /, **parameters: Any) -> Row | None:
        rows = await self._connection.fetch(*self._query(name, parameters))
        return rows[0] if rows else None

    async def fetch_records(self, name: str, codec: RowCodec[T], /, **parameters: Any) -> list[T]:
        return [codec.decode(row) for row in await self._connection.fetch(*self._query(name, parameters))]

    async def fetch_record(self, name: str, codec: RowCodec[T], /, **parameters: Any) -> T | None:
        rows = await self._connection.fetch(*self._query(name, parameters))
        return codec.decode(rows[0]) if rows else None

    async def execute(self, name: str, /, **parameters: Any) -> int:
        return await self._connection.execute(*self._query(name, parameters))

    async def execute_many(self, name: str, /, rows: Iterable[Mapping[str, Any]]) -> None:
        statement = self._statements[name]
        values = [[row[name] for name in statement.parameters] for row in rows]
        if values:
            await self._connection.execute_many(statement.writing, values)

    def without_locks(self) -> "PostgresStatements":
        return PostgresStatements(self._connection, self._statements, takes_locks=False)

    def array(self, values: Collection[Any], /) -> list[Any]:
        return list(values)

    def parameters(self, name: str, /) -> frozenset[str]:
        return _parameter_set(self._statements[name])

    def _query(self, name: str, parameters: Mapping[str, Any]) -> tuple[str, Sequence[Any]]:
        statement = self._statements[name]
        text = statement.writing if self._takes_locks else statement.reading
        return text, [parameters[each] for each in statement.parameters]


@cache
def _parameter_set(statement: Statement) -> frozenset[str]:
    return frozenset(statement.parameters)


def open_statements(connection: UnitConnection, noun: str) -> PostgresStatements:
    return PostgresStatements(connection, load_sql(noun), takes_locks=connection.takes_locks)
