"""The PostgreSQL of the tests: a database comes back as it was, whatever a test did to it; a server starts after a crash."""

import asyncio
import signal
import tempfile
from pathlib import Path

import asyncpg
import pytest

from tests.support.engine import wait_until
from tests.support.postgres import running_postgres, shared_postgres, start_server, use_folder
from tests.support.postgres_databases import DatabasePool, empty_database
from tests.support.postgres_instance import FAST

TABLES = """
    CREATE TABLE notes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea, text text);
    CREATE TABLE counters (name text PRIMARY KEY, value bigint NOT NULL);
    INSERT INTO notes (body, text) VALUES ('\\x00ff', 'it''s here; "always"');
    INSERT INTO counters VALUES ('notes', 1);
    CREATE FUNCTION count_note() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN UPDATE counters SET value = value + 1; RETURN NULL; END $$;
    CREATE TRIGGER counting AFTER INSERT OR DELETE ON notes FOR EACH ROW EXECUTE FUNCTION count_note();
"""
ROWS = (
    "SELECT (SELECT array_agg((id, body, text)) FROM notes) AS notes, (SELECT array_agg((name, value)) FROM counters)"
)


async def create_tables(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(TABLES)
    await connection.close()


@pytest.fixture(scope="module")
def pool() -> DatabasePool:
    return DatabasePool(shared_postgres(), create_tables)


async def run(url: str, *statements: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return [row for statement in statements for row in await connection.fetch(statement)]
    finally:
        await connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("INSERT INTO notes (text) VALUES ('another')", id="rows"),
        pytest.param("DELETE FROM notes", id="no rows"),
        pytest.param("UPDATE notes SET body = NULL", id="changed rows"),
        pytest.param("CREATE TABLE notes_of_today (id bigint)", id="a further table"),
        pytest.param("INSERT INTO notes (text) SELECT repeat('x', 1000) FROM generate_series(1, 5000)", id="many rows"),
    ],
)
async def test_a_database_comes_back_as_it_was(pool: DatabasePool, statement: str) -> None:
    name = pool.take()
    before = await run(pool.address.url(name), ROWS)
    await run(pool.address.url(name), statement)
    pool.give_back(name)

    again = pool.take()
    after = await run(pool.address.url(again), ROWS)
    (added,) = await run(pool.address.url(again), "INSERT INTO notes (text) VALUES ('x') RETURNING id")
    tables = await run(pool.address.url(again), "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    pool.give_back(again)

    assert after == before
    assert added["id"] == 2
    assert {row["tablename"] for row in tables} == {"notes", "counters"}


async def test_a_session_that_a_test_left_open_holds_nothing(pool: DatabasePool) -> None:
    name = pool.take()
    left = await asyncpg.connect(pool.address.url(name))
    await left.execute("BEGIN; LOCK TABLE notes")

    pool.give_back(name)

    again = pool.take()
    assert await run(pool.address.url(again), "SELECT count(*) FROM notes")
    pool.give_back(again)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await left.execute("SELECT 1")


async def test_an_empty_database_has_no_tables() -> None:
    async with empty_database() as url:
        (row,) = await run(url, "SELECT count(*) AS tables FROM pg_tables WHERE schemaname = 'public'")

    assert row["tables"] == 0


async def test_a_server_that_was_killed_starts_again_with_what_was_committed() -> None:
    async with running_postgres() as server:
        await create_tables(server.address.url("postgres"))
        await asyncio.to_thread(server.restart, signal.SIGQUIT)
        (row,) = await run(server.address.tcp_url("postgres"), "SELECT text FROM notes")

    assert row["text"] == 'it\'s here; "always"'


async def test_a_server_whose_test_run_was_killed_is_stopped_and_its_folder_removed() -> None:
    folder = Path(tempfile.mkdtemp(prefix="ringback-postgres-"))
    with use_folder(folder):  # closed without a stop, as the operating system closes the files of a killed process
        server = await asyncio.to_thread(start_server, folder, FAST)

    await wait_until(lambda: asyncio.to_thread(lambda: not folder.exists()))
    await wait_until(lambda: asyncio.to_thread(server.has_ended))  # it removes its status file before its process ends
