"""The work of a statement does not grow with the rows that it does not find.

The tests count steps of SQLite's virtual machine, with a thousand and with many rows of the principal and of another one.
`PARAMETERS` (tests/support/statement_parameters) has the parameters of every statement in sql/; a statement without a line
there fails. SQLite plans here as in production, where ANALYZE never runs.
"""

import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from importlib import resources
from typing import Any, Final

import pytest

from ringback.storage.sqlite.statements import load_sql
from tests.support.filled_database import fill_database
from tests.support.statement_parameters import (
    COMMON_PARAMETERS,
    FEW_ROWS,
    FULL_SCAN_STATEMENTS,
    MANY_ROWS,
    MANY_ROWS_DEEP,
    PARAMETERS,
)

STEPS_A_COUNT: Final = 10
"""SQLite calls its progress handler once in so many steps."""
ADDITIONAL_STEPS_MAX: Final = 400
"""Steps: what a deeper tree or a log that is halved a few times more often costs."""
FILES_WITHOUT_STATEMENTS: Final = {"session", "migrator"}
"""Files whose statements read no rows of a principal."""

STATEMENTS: Final = [f"{noun}.{name}" for noun, statements in PARAMETERS.items() for name in statements]


@pytest.fixture(scope="module")
def stores(
    tmp_path_factory: pytest.TempPathFactory, *, deep: bool
) -> Generator[tuple[sqlite3.Connection, sqlite3.Connection]]:
    folder = tmp_path_factory.mktemp("filled")
    with ExitStack() as stack:
        few, many = (
            stack.enter_context(closing(fill_database(folder / f"{rows}.db", rows=rows)))
            for rows in (FEW_ROWS, MANY_ROWS_DEEP if deep else MANY_ROWS)
        )
        yield few, many


@contextmanager
def rolled_back(connection: sqlite3.Connection) -> Generator[None]:
    connection.execute("SAVEPOINT before")
    try:
        yield
    finally:
        connection.execute("ROLLBACK TO before")
        connection.execute("RELEASE before")


def steps(connection: sqlite3.Connection, noun: str, name: str, over: dict[str, Any]) -> int:
    """The steps that SQLite takes for the statement, rounded to ten. Its changes are rolled back."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += STEPS_A_COUNT
        return 0

    statement = load_sql(noun)[name]
    with rolled_back(connection):
        connection.set_progress_handler(count, STEPS_A_COUNT)
        try:
            connection.execute(statement, COMMON_PARAMETERS | over).fetchall()
        finally:
            connection.set_progress_handler(None, 0)
    return counted


def test_every_statement_has_parameters_here() -> None:
    folder = resources.files("ringback.storage.sqlite") / "sql"
    nouns = {file.name.removesuffix(".sql") for file in folder.iterdir()} - FILES_WITHOUT_STATEMENTS

    assert {noun: set(load_sql(noun)) for noun in nouns} == {
        noun: set(statements) for noun, statements in PARAMETERS.items()
    }
    assert set(STATEMENTS) >= FULL_SCAN_STATEMENTS.keys()


def test_the_databases_have_no_statistics_as_in_production(
    stores: tuple[sqlite3.Connection, sqlite3.Connection],
) -> None:
    for connection in stores:
        assert connection.execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'sqlite_stat%'").fetchall() == []


@pytest.mark.parametrize("noun", PARAMETERS)
def test_a_statement_takes_as_many_steps_beside_many_other_rows_as_beside_a_thousand(
    stores: tuple[sqlite3.Connection, sqlite3.Connection], noun: str
) -> None:
    for name in (name for name in PARAMETERS[noun] if f"{noun}.{name}" not in FULL_SCAN_STATEMENTS):
        for over in PARAMETERS[noun][name]:
            few, many = (steps(connection, noun, name, over) for connection in stores)
            assert many <= 2 * few + ADDITIONAL_STEPS_MAX, (name, over)
