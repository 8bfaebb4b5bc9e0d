"""The work of a statement in PostgreSQL does not grow with the rows that it does not find (compare ../test_statement_work.py).

The tests count the pages that a statement looks at, the rows that its steps visit, and those that its triggers read, in a
database with few rows and in one with many, after ANALYZE. Before that, another session has planned its statements while the
second database was empty, as after an installation, and runs them by these plans once it is full: until autovacuum comes by,
there are no others.
"""

import asyncio
from importlib import resources
from typing import Any, Final, NamedTuple

import pytest

from ringback.storage.postgres.statements import Statement, load_sql
from tests.support.databases import database_pool
from tests.support.filled_postgres import (
    Connection,
    PreparedStatement,
    Work,
    connect_as_store,
    fill_database,
    prepare_statements,
)
from tests.support.statement_parameters import (
    FEW_ROWS,
    FULL_SCAN_STATEMENTS,
    MANY_ROWS,
    PARAMETERS,
    POSTGRES_PARAMETERS,
)

MANY_ROWS_BY_DEFAULT: Final = 10_000
"""Ten times as many as few are enough to see growth; a deep run has a hundred times as many. PostgreSQL plans for fewer rows
in other ways."""
ADDITIONAL_BLOCKS_MAX: Final = 200
"""Pages: deeper indexes, for the at most one hundred entries of `scan` that a statement steps along."""
ADDITIONAL_ROWS_MAX: Final = 20
"""Rows: what a log that is halved a few times more often costs."""
ONLY_IN_SQLITE: Final = {"commit_count"}
FILES_WITHOUT_STATEMENTS: Final = {"session", "migrator"}
"""Files whose statements read no rows of a principal."""
ALL_PARAMETERS: Final = PARAMETERS | {
    noun: PARAMETERS.get(noun, {}) | statements for noun, statements in POSTGRES_PARAMETERS.items()
}
STATEMENTS: Final = [
    f"{noun}.{name}"
    for noun, statements in ALL_PARAMETERS.items()
    if noun not in ONLY_IN_SQLITE
    for name in statements
    if name in load_sql(noun)
]


class WorkOfStatement(NamedTuple):
    over: dict[str, Any]
    few: Work
    many: Work
    planned_empty: Work


@pytest.fixture(scope="module")
def work(*, deep: bool) -> dict[str, list[WorkOfStatement]]:
    """The work of each statement, with each of its parameter sets."""
    names = [database_pool().take_new() for _ in range(2)]  # what a database was used for changes its plans
    try:
        return asyncio.run(count_all(*names, rows=MANY_ROWS if deep else MANY_ROWS_BY_DEFAULT))
    finally:
        for name in names:
            database_pool().give_back(name)


async def count_all(few_name: str, many_name: str, *, rows: int) -> dict[str, list[WorkOfStatement]]:
    few, many, early = [
        await connect_as_store(database_pool().address.url(name)) for name in (few_name, many_name, many_name)
    ]
    await fill_database(few, rows=FEW_ROWS)
    await few.execute("ANALYZE")
    work_beside_few = await count_work(await prepare_all(few))
    planned_empty = await prepare_all(early)
    for statement in planned_empty.values():
        await statement.plan()
    await fill_database(many, rows=rows)
    work_planned_empty = await count_work(planned_empty, beside_few=work_beside_few)
    await many.execute("ANALYZE")  # from now on, other sessions plan again
    work_beside_many = await count_work(await prepare_all(many), beside_few=work_beside_few)
    for connection in (few, many, early):
        await connection.close()
    return {
        place: list(
            map(
                WorkOfStatement,
                parameters(place),
                *(work[place] for work in (work_beside_few, work_beside_many, work_planned_empty)),
            )
        )
        for place in STATEMENTS
    }


async def count_work(
    prepared: dict[str, PreparedStatement], *, beside_few: dict[str, list[Work]] | None = None
) -> dict[str, list[Work]]:
    work: dict[str, list[Work]] = {}
    for place, statement in prepared.items():
        work[place] = []
        for number, over in enumerate(parameters(place)):
            counted = await statement.count_work(over)
            # An insert into a full page of an index first looks for dead rows there, once for each page.
            if beside_few is not None and counted.blocks > blocks_max(beside_few[place][number]):
                counted = await statement.count_work(over)
            work[place].append(counted)
    return work


def blocks_max(few: Work) -> int:
    return 2 * few.blocks + ADDITIONAL_BLOCKS_MAX


async def prepare_all(connection: Connection) -> dict[str, PreparedStatement]:
    return await prepare_statements(connection, {place: find_statement(place) for place in STATEMENTS})


def find_statement(place: str) -> Statement:
    noun, _, name = place.partition(".")
    return load_sql(noun)[name]


def parameters(statement: str) -> list[dict[str, Any]]:
    noun, _, name = statement.partition(".")
    return ALL_PARAMETERS[noun][name]


@pytest.mark.parametrize("noun", [noun for noun in ALL_PARAMETERS if noun not in ONLY_IN_SQLITE])
def test_a_statement_visits_as_many_rows_beside_many_others_as_beside_few(
    work: dict[str, list[WorkOfStatement]], noun: str
) -> None:
    for statement in (each for each in STATEMENTS if each.startswith(f"{noun}.") and each not in FULL_SCAN_STATEMENTS):
        for over, few, *beside_many in work[statement]:
            for many in beside_many:
                assert many.blocks <= blocks_max(few), (statement, over)
                assert many.rows <= 2 * few.rows + ADDITIONAL_ROWS_MAX, (statement, over)
                assert many.fetched_rows <= 2 * few.fetched_rows + ADDITIONAL_ROWS_MAX, (statement, over)
                assert not many.whole_tables, (statement, over)


async def test_a_lease_visits_rows_in_proportion_to_the_principals_that_wait() -> None:
    """Ten thousand waiting principals took longer than a statement may: each candidate was compared with each row."""
    rows: list[int] = []
    for principals in (200, 1_000):
        name = database_pool().take_new()
        connection = await connect_as_store(database_pool().address.url(name))
        try:
            rows.append(await count_rows_of_lease(connection, principals))
        finally:
            await connection.close()
            database_pool().give_back(name)

    few, many = rows
    assert many <= 6 * few


async def count_rows_of_lease(connection: Connection, principals: int) -> int:
    prepared = await prepare_statements(connection, {"lease": load_sql("call_queue")["lease_queued"]})
    statement = prepared["lease"]
    await statement.plan()
    await fill_database(connection, rows=10)
    columns = await connection.fetchval(
        "SELECT string_agg(column_name, ',') FROM information_schema.columns WHERE table_name = 'calls'"
    )
    others = {
        "id": "'call_many' || number",
        "principal": "'many' || number",
        "idempotency_key": "NULL",
        "upstream": "'many'",
    }
    values = ", ".join(others.get(column, column) for column in str(columns).split(","))
    await connection.execute(
        f"INSERT INTO calls ({columns}) SELECT {values} FROM generate_series(1, {principals}) AS number, "  # noqa: S608 - its names
        "(SELECT * FROM calls WHERE phase = 'queued' LIMIT 1) AS queued"
    )
    (over, *_) = ALL_PARAMETERS["call_queue"]["lease_queued"]
    return (await statement.count_work({**over, "upstream": "many"})).rows


def test_every_statement_has_parameters_here() -> None:
    nouns = set(ALL_PARAMETERS) - ONLY_IN_SQLITE
    folder = resources.files("ringback.storage.postgres") / "sql"

    assert {file.name.removesuffix(".sql") for file in folder.iterdir()} == nouns | FILES_WITHOUT_STATEMENTS
    assert set(STATEMENTS) == {f"{noun}.{name}" for noun in nouns for name in load_sql(noun)}
