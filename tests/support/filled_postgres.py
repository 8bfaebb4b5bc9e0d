"""The databases of `filled_database`, in PostgreSQL, and the work of a statement there.

A statement runs by the plan that the store's connections use: one for all parameters (`driver.SERVER_SETTINGS`).
"""

import json
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import asyncpg

from ringback.storage.postgres.driver import SERVER_SETTINGS
from ringback.storage.postgres.statements import Statement
from ringback.storage.queries import parse_statements
from tests.support.filled_database import FUTURE, LARGE_TABLES, PAST
from tests.support.statement_parameters import COMMON_PARAMETERS

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Plan = Mapping[str, Any]

_SQL: Final = parse_statements(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
_NUMBER: Final = re.compile(r"(?<![:\w]):(rows|past|future)\b")
_RELATIONS: Final = """
    SELECT array_agg(oid) FILTER (WHERE relkind = 'r'), array_agg(oid)
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')
"""
_FETCHED_ROWS: Final = """
    (SELECT sum(pg_stat_get_xact_tuples_returned(each)) FROM unnest('{tables}'::oid[]) AS each)
        + (SELECT sum(pg_stat_get_xact_tuples_fetched(each)) FROM unnest('{relations}'::oid[]) AS each)
"""
"""Of this session since PostgreSQL added its counts to those of all sessions, which it does between transactions only.

The sums of `seq_tup_read` and `idx_tup_fetch` of `pg_stat_xact_user_tables`, a view that takes longer than most statements."""
_COUNT_WORK: Final = """
    CREATE FUNCTION pg_temp.count_work(explained text, OUT plan json, OUT fetched_rows bigint) LANGUAGE plpgsql AS $body$
        DECLARE fetched_before bigint := {fetched_rows};
        BEGIN
            EXECUTE explained INTO plan;
            fetched_rows := {fetched_rows} - fetched_before;
        END
    $body$
"""
"""One statement instead of three: each is run two thousand times."""
_TYPES: Final = "SELECT name, parameter_types::text[] FROM pg_prepared_statements"
_REMOVED: Final = ("Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")


async def connect_as_store(url: str) -> Connection:
    return await asyncpg.connect(url, server_settings={**SERVER_SETTINGS, "statement_timeout": "0"})


async def fill_database(connection: Connection, *, rows: int) -> None:
    """This number of calls, events, deliveries and sessions, and a fifth of it of everything else."""
    await connection.execute("SET session_replication_role = replica")  # the filled rows are consistent: no triggers
    for name, statement in _SQL.items():
        numbers = {"rows": rows if name in LARGE_TABLES else rows // 5, "past": PAST, "future": FUTURE}
        await connection.execute(_NUMBER.sub(lambda found: f"{numbers[found[1]]}::bigint", statement))  # noqa: B023
    await connection.execute("SET session_replication_role = origin")


@dataclass(frozen=True, slots=True)
class Work:
    blocks: int
    """Pages that the statement looked at, found in memory or not."""
    rows: int
    """Rows that its steps returned or filtered out."""
    fetched_rows: int
    """Rows that tables and their indexes returned, also to triggers and checks of references, which are not in the plan."""
    whole_tables: frozenset[str]
    """Tables that it read from their beginning."""


class PreparedStatement:
    """A statement that one session has prepared, with its plan once it has been planned."""

    def __init__(self, connection: Connection, statement: Statement, *, name: str, types: Sequence[str]) -> None:
        self._connection = connection
        self._parameters = statement.parameters
        self._name = name
        self._types = types

    async def plan(self) -> Plan:
        """The plan, which the session keeps from then on."""
        explained = self._explain("FORMAT JSON", dict.fromkeys(self._parameters))
        return _parse_plan(await self._connection.fetchval(explained))

    async def count_work(self, over: Mapping[str, Any]) -> Work:
        """The work with the common parameters and these. Changes are rolled back."""
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            explained = self._explain("ANALYZE, BUFFERS, FORMAT JSON", {**COMMON_PARAMETERS, **over})
            ((text, fetched_rows),) = await self._connection.fetch("SELECT * FROM pg_temp.count_work($1)", explained)
        finally:
            await transaction.rollback()
        plan = _parse_plan(text)
        return Work(
            blocks=plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
            rows=sum(_visited_rows(node) for node in _nodes(plan)),
            fetched_rows=fetched_rows,
            whole_tables=frozenset(node["Relation Name"] for node in _nodes(plan) if node["Node Type"] == "Seq Scan"),
        )

    def _explain(self, options: str, values: Mapping[str, Any]) -> str:
        literals = [_literal(values[name], kind) for name, kind in zip(self._parameters, self._types, strict=True)]
        arguments = f"({', '.join(literals)})" if literals else ""
        return f"EXPLAIN ({options}) EXECUTE {self._name}{arguments}"


async def prepare_statements(
    connection: Connection, statements: Mapping[str, Statement]
) -> dict[str, PreparedStatement]:
    """Prepare the forms of the statements that units use which write, in the session of this connection."""
    # Before the first plan: PostgreSQL plans again after a session has made its first temporary object.
    ((tables, relations),) = await connection.fetch(_RELATIONS)
    fetched_rows = _FETCHED_ROWS.format(tables=_array(tables), relations=_array(relations))
    await connection.execute(_COUNT_WORK.format(fetched_rows=fetched_rows))
    for name, statement in statements.items():
        await connection.execute(f'PREPARE "{name}" AS {statement.writing.strip().rstrip(";")}')
    types: dict[str, list[str]] = {name: list(types) for name, types in await connection.fetch(_TYPES)}
    return {
        name: PreparedStatement(connection, statement, name=f'"{name}"', types=types[name])
        for name, statement in statements.items()
    }


def _array(numbers: Sequence[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def _parse_plan(text: str) -> Plan:
    return json.loads(text)[0]["Plan"]


def _nodes(plan: Plan) -> Generator[Plan]:
    yield plan
    for inner in cast("list[Plan]", plan.get("Plans", [])):
        yield from _nodes(inner)


def _visited_rows(node: Plan) -> int:
    return int((node["Actual Rows"] + sum(node.get(each, 0) for each in _REMOVED)) * node["Actual Loops"])


def _literal(value: Any, kind: str) -> str:
    """The value in SQL. Lists are JSON texts and booleans are numbers, as in the parameters for SQLite."""
    if value is None:
        return "NULL"
    if kind.endswith("[]"):
        return f"ARRAY[{', '.join(_literal(each, kind[:-2]) for each in json.loads(value))}]::{kind}"
    if kind == "boolean":
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
