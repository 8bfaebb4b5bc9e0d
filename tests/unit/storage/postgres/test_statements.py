"""PostgreSQL's dialect has SQLite's statements: the same names and parameters, and each is one that PostgreSQL accepts."""

import re
from collections.abc import AsyncGenerator
from importlib import resources

import asyncpg
import pytest

from ringback.storage.postgres.statements import compile_statement, load_sql
from ringback.storage.queries import parameters
from ringback.storage.sqlite.statements import load_sql as load_sqlite_sql
from tests.support.databases import database_pool
from tests.support.filled_postgres import Connection

ONLY_IN_SQLITE = {
    "session",  # settings of a connection are part of its start in PostgreSQL
    "commit_count",  # a file can be restored or lose its log unnoticed
    "migrator",  # each dialect has its own way to keep others out meanwhile
}
ONLY_IN_SQLITE_STATEMENTS = {
    ("write_probe", "file"),  # PostgreSQL keeps its disk to itself
    *(("calls", name) for name in ("insert", "insert_input")),
    *(("call_queue", name) for name in ("queued", "lease", "take_turns", "free_turn", "leased_by_ids")),
    ("deliveries", "insert_body"),
    *(("delivery_queue", name) for name in ("lease", "apply_updates")),
    *(("webhooks", name) for name in ("fields_in_use", "matching", "of_calls")),
}
ONLY_IN_POSTGRES_STATEMENTS = {  # each takes the place of those of SQLite, which cost no round trips
    ("calls", "insert_whole"),
    ("call_queue", "lease_queued"),
    ("call_queue", "take_turn"),
    ("deliveries", "insert_bodies"),
    ("delivery_queue", "lease_whole"),
    ("delivery_queue", "record_attempts"),
    ("webhooks", "candidates"),
    ("write_probe", "use_sequence"),  # SQLite has none
}
ONLY_IN_POSTGRES = {
    "log_appends",  # the same
}


def nouns(dialect: str) -> set[str]:
    folder = resources.files(f"ringback.storage.{dialect}") / "sql"
    return {file.name.removesuffix(".sql") for file in folder.iterdir() if file.name.endswith(".sql")}


NOUNS = sorted(nouns("sqlite") - ONLY_IN_SQLITE)


@pytest.fixture(scope="module")
def database_name() -> str:
    return database_pool().take()


@pytest.fixture
async def connection(database_name: str) -> AsyncGenerator[Connection]:
    connection = await asyncpg.connect(database_pool().address.url(database_name))
    yield connection
    await connection.close()


def test_both_dialects_have_the_same_files() -> None:
    assert nouns("postgres") - ONLY_IN_SQLITE - ONLY_IN_POSTGRES == set(NOUNS)


@pytest.mark.parametrize("noun", NOUNS)
def test_both_dialects_have_the_same_statements_with_the_same_parameters(noun: str) -> None:
    sqlite = {
        name: parameters(text)
        for name, text in load_sqlite_sql(noun).items()
        if (noun, name) not in ONLY_IN_SQLITE_STATEMENTS
    }

    assert {
        name: frozenset(each.parameters)
        for name, each in load_sql(noun).items()
        if (noun, name) not in ONLY_IN_POSTGRES_STATEMENTS
    } == sqlite


@pytest.mark.parametrize("noun", [*NOUNS, *sorted(ONLY_IN_POSTGRES)])
async def test_postgres_accepts_every_statement_with_its_locks_and_without(connection: Connection, noun: str) -> None:
    for statement in load_sql(noun).values():
        for text in {statement.writing, statement.reading}:
            await connection.prepare(text)


def test_a_statement_without_its_locks_says_nothing_of_them() -> None:
    statement = compile_statement("SELECT 1 FROM calls\n{lock calls skip locked};")

    assert statement.writing == "SELECT 1 FROM calls\nFOR NO KEY UPDATE OF calls SKIP LOCKED;"
    assert statement.reading == "SELECT 1 FROM calls\n;"


async def test_every_text_column_sorts_by_its_bytes(connection: Connection) -> None:
    """Ids, positions of pages and '~', which sorts after every id, rely on it."""
    rows = await connection.fetch(
        "SELECT table_name || '.' || column_name AS place FROM information_schema.columns"
        " WHERE table_schema = 'public' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'"
    )

    assert [
        row["place"] for row in rows if not re.match("schema_migrations|whole_|webhook_match_keys", row["place"])
    ] == []
