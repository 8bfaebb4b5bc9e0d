"""The work of a statement in PostgreSQL does not grow with the rows that it does not find (compare ../test_statement_work.py).

The tests count the pages that a statement looks at, the rows that its steps visit, and those that its triggers read, in a
database with few rows and in one with many, after ANALYZE. A third session has planned its statements while its database was
empty, as after an installation, and runs them by these plans when the database is full: until autovacuum comes by, there are no
others.
"""

import asyncio
from collections.abc import Generator
from importlib import resources
from typing import Any, Final, NamedTuple

import pytest

from ringback.storage.postgres.statements import load_sql
from tests.support.databases import database_pool
from tests.support.filled_postgres import (
    Connection,
    PreparedStatement,
    connect_as_store,
    fill_database,
    prepare_statement,
)
from tests.support.statement_parameters import (
    FEW_ROWS,
    FULL_SCAN_STATEMENTS,
    MANY_ROWS,
    PARAMETERS,
    POSTGRES_PARAMETERS,
)

MANY_ROWS_BY_DEFAULT: Final = 10_000
"""Ten times as many as few are enough to see growth; a deep run has a hundred times as many."""
ADDITIONAL_BLOCKS_MAX: Final = 200
"""Pages: deeper indexes, for the at most one hundred entries of `scan` that a statement steps along."""
ADDITIONAL_ROWS_MAX: Final = 60
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


class Sessions(NamedTuple):
    few: dict[str, PreparedStatement]
    many: dict[str, PreparedStatement]
    planned_empty: dict[str, PreparedStatement]


@pytest.fixture(scope="module")
def loop() -> Generator[asyncio.AbstractEventLoop]:
    """One for the sessions, which all tests of this module use."""
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture(scope="module")
def sessions(loop: asyncio.AbstractEventLoop, request: pytest.FixtureRequest) -> Generator[Sessions]:
    rows = MANY_ROWS if request.getfixturevalue("deep") else MANY_ROWS_BY_DEFAULT
    names = [database_pool().take() for _ in range(3)]
    connections = [loop.run_until_complete(connect_as_store(database_pool().address.url(name))) for name in names]
    few, many, planned_empty = connections
    for connection, count in ((few, FEW_ROWS), (many, rows)):
        loop.run_until_complete(fill_database(connection, rows=count))
        loop.run_until_complete(connection.execute("ANALYZE"))
    # Last, because a session that misses too many messages about catalogs, as an ANALYZE sends them, plans again.
    prepared = loop.run_until_complete(prepare_all(planned_empty))
    for statement in prepared.values():
        loop.run_until_complete(statement.plan())
    filling = loop.run_until_complete(connect_as_store(database_pool().address.url(names[-1])))
    loop.run_until_complete(fill_database(filling, rows=rows))  # forgets the plans of its own session
    loop.run_until_complete(filling.close())
    yield Sessions(
        few=loop.run_until_complete(prepare_all(few)),
        many=loop.run_until_complete(prepare_all(many)),
        planned_empty=prepared,
    )
    for connection in connections:
        loop.run_until_complete(connection.close())
    for name in names:
        database_pool().give_back(name)


async def prepare_all(connection: Connection) -> dict[str, PreparedStatement]:
    prepared: dict[str, PreparedStatement] = {}
    for number, place in enumerate(STATEMENTS):
        noun, _, name = place.partition(".")
        prepared[place] = await prepare_statement(connection, load_sql(noun)[name], name=f"statement_{number}")
    return prepared


def parameters(statement: str) -> list[dict[str, Any]]:
    noun, _, name = statement.partition(".")
    return ALL_PARAMETERS[noun][name]


@pytest.mark.parametrize("noun", [noun for noun in ALL_PARAMETERS if noun not in ONLY_IN_SQLITE])
def test_a_statement_visits_as_many_rows_beside_many_others_as_beside_few(
    loop: asyncio.AbstractEventLoop, sessions: Sessions, noun: str
) -> None:
    for statement in (each for each in STATEMENTS if each.startswith(f"{noun}.") and each not in FULL_SCAN_STATEMENTS):
        for over in parameters(statement):
            few = loop.run_until_complete(sessions.few[statement].count_work(over))
            for session in (sessions.many, sessions.planned_empty):
                many = loop.run_until_complete(session[statement].count_work(over))
                # An insert into a full page of an index first looks for dead rows there, once for each page.
                if many.blocks > 2 * few.blocks + ADDITIONAL_BLOCKS_MAX:
                    many = loop.run_until_complete(session[statement].count_work(over))
                assert many.blocks <= 2 * few.blocks + ADDITIONAL_BLOCKS_MAX, (statement, over)
                assert many.rows <= 2 * few.rows + ADDITIONAL_ROWS_MAX, (statement, over)
                assert many.fetched_rows <= 2 * few.fetched_rows + ADDITIONAL_ROWS_MAX, (statement, over)
                assert not many.whole_tables, (statement, over)


def test_a_lease_visits_rows_in_proportion_to_the_principals_that_wait(loop: asyncio.AbstractEventLoop) -> None:
    """Ten thousand waiting principals took longer than a statement may: each candidate was compared with each row."""
    rows: list[int] = []
    for principals in (200, 1_000):
        name = database_pool().take()
        connection = loop.run_until_complete(connect_as_store(database_pool().address.url(name)))
        try:
            rows.append(loop.run_until_complete(count_rows_of_lease(connection, principals)))
        finally:
            loop.run_until_complete(connection.close())
            database_pool().give_back(name)

    few, many = rows
    assert many <= 6 * few


async def count_rows_of_lease(connection: Connection, principals: int) -> int:
    statement = await prepare_statement(connection, load_sql("call_queue")["lease_queued"], name="lease")
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
