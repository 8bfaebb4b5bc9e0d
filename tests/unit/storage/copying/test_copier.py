"""A copy has every row of the SQLite database, whenever it was interrupted and whatever changed meanwhile."""

import sqlite3
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from ringback.domain.clock import SystemClock, epoch_milliseconds
from ringback.domain.errors import StoreUnavailable
from ringback.storage.copying import source as copy_source
from ringback.storage.copying import target as copy_target
from ringback.storage.copying.copier import KEYS, LARGE, NOT_COPIED, CopyResult, TableProgress, copy_database
from ringback.storage.copying.source import CopiedTable, Key, Row
from ringback.storage.copying.target import CopyTarget
from ringback.storage.postgres.store import PostgresStore
from ringback.storage.schema import read_schema_state
from ringback.storage.sqlite.store import lock_for_database
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.databases import migrated_postgres
from tests.support.filled_database import fill_database
from tests.support.filled_postgres import Connection
from tests.support.postgres_databases import empty_database
from tests.support.stores import make_sealer

ROWS = 120
FEW_ROWS = 10
BATCH_ROWS = 25
"""So that each large table of `ROWS` has several batches, and a table with a fifth of the rows has two."""
VALUES: Final = {"TEXT": "[]", "INTEGER": 1, "REAL": 0.5, "BLOB": b"\x00\xff"}
"""A value of each type of a column."""

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
EXACT = timedelta(seconds=5)
"""How exact two clocks are compared: the time of a copy, on a machine with busy cores."""


class Interrupted(Exception):
    """The copying process was killed."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_source, "BATCH_ROWS_MAX", BATCH_ROWS)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with rows in every table, and with a value in every column."""
    return fill(tmp_path_factory.mktemp("filled") / "ringback.db", rows=ROWS)


@pytest.fixture(scope="module")
def filled_sparsely(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The same with a few rows, which are copied in a third of the time."""
    return fill(tmp_path_factory.mktemp("sparse") / "ringback.db", rows=FEW_ROWS)


def fill(path: Path, *, rows: int) -> bytes:
    with closing(fill_database(path, rows=rows)) as connection, connection:
        connection.execute("INSERT INTO catalog VALUES ('git', 'tools', '[]', 1)")
        connection.execute("INSERT INTO joined_names VALUES ('tools', 'a', 'git', 'b')")
        connection.execute("INSERT INTO scheduling_time VALUES (1, 1)")
        connection.execute(
            "INSERT INTO erasures VALUES ('era_1', 'alice', 'session', 's', 1, 'alice', 1, 7, 1, 0, NULL, NULL, 0, 1, 2, 3, 4)"
        )
        connection.execute("INSERT INTO webhook_rates VALUES ('wh_rare', 1)")
        connection.execute("INSERT INTO event_types VALUES ('alice', 'order.paid', 'd', '{}', 1, 1)")
        connection.execute("INSERT INTO event_demands VALUES ('alice', 'git/pushed', 't', '{}', 1, 7)")
        connection.execute("INSERT INTO event_followings VALUES ('git/pushed', 't', '7', 1)")
        connection.execute("INSERT INTO upstream_controls VALUES ('busy', 'paused', 1)")
        fill_empty_columns(connection)
    return path.read_bytes()


def fill_empty_columns(connection: sqlite3.Connection) -> None:
    """Give each column that is NULL in all rows a value in one row."""
    for table, key in KEYS.items():
        row = f"({', '.join(key)}) = (SELECT {', '.join(key)} FROM {table} LIMIT 1)"  # noqa: S608 - its own names
        for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
            (count,) = connection.execute(f'SELECT count("{column}") FROM {table}').fetchone()  # noqa: S608
            if count == 0:
                connection.execute(f'UPDATE {table} SET "{column}" = ? WHERE {row}', [VALUES[kind]])  # noqa: S608


@pytest.fixture
def path(tmp_path: Path, filled: bytes) -> Path:
    """A file of the test's own with this database."""
    path = tmp_path / "ringback.db"
    path.write_bytes(filled)
    return path


@pytest.fixture
def sparse_path(tmp_path: Path, filled_sparsely: bytes) -> Path:
    path = tmp_path / "sparse.db"
    path.write_bytes(filled_sparsely)
    return path


@pytest.fixture
def sqlite(path: Path) -> Generator[sqlite3.Connection]:
    with open_beside(path) as connection:
        yield connection


@contextmanager
def open_beside(path: Path) -> Generator[sqlite3.Connection]:
    """A connection that commits each statement."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def url() -> Generator[str]:
    """The URL of a database with empty tables, as `ringback migrate` leaves it."""
    with migrated_postgres() as url:
        yield url


@pytest.fixture
async def postgres(url: str) -> AsyncGenerator[Connection]:
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


def ignore_progress(_: TableProgress) -> None: ...


async def copy(path: Path, url: str) -> CopyResult:
    return await copy_database(path, url, report=ignore_progress)


async def require_equal_rows(sqlite: sqlite3.Connection, postgres: Connection) -> None:
    """Compares in another way than the copier does: all rows of a table at once, by the names of their columns."""
    for table in KEYS:
        columns = [name for _, name, *_ in sqlite.execute(f"PRAGMA table_info({table})")]
        names = ", ".join(f'"{name}"' for name in columns)
        there = {tuple(row) for row in await postgres.fetch(f"SELECT {names} FROM {table}")}  # noqa: S608 - its own names
        assert there == set(sqlite.execute(f"SELECT {names} FROM {table}")), table  # noqa: S608
        assert there, f"{table} has no rows to compare"


async def require_equal_bytes(sqlite: sqlite3.Connection, postgres: Connection) -> None:
    arguments = "SELECT principal, sum(argument_bytes) AS arguments FROM call_counts GROUP BY principal"
    others = "SELECT principal, sum(event_bytes), sum(delivery_bytes) FROM byte_counts GROUP BY principal"
    for counts in (arguments, others):
        here = {(each[0], *map(int, each[1:])) for each in sqlite.execute(counts)}
        assert {(each[0], *map(int, list(each)[1:])) for each in await postgres.fetch(counts)} == here
        assert all(sum(each[1:]) > 0 for each in here)


def test_every_table_of_sqlite_is_copied_or_has_a_reason_not_to_be(sqlite: sqlite3.Connection) -> None:
    tables = {name for (name,) in sqlite.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    assert {*KEYS, *NOT_COPIED} == {name for name in tables if not name.startswith("sqlite_")} | {"schema_migrations"}
    assert set(KEYS) > LARGE


async def test_a_copy_has_every_row_with_the_same_values(path: Path, sqlite: sqlite3.Connection) -> None:
    async with empty_database() as url:  # without tables, which the copy makes
        result = await copy(path, url)

        assert result.is_finished
        postgres = await asyncpg.connect(url)
        await require_equal_rows(sqlite, postgres)
        await postgres.close()
    assert {each.table: (each.compared, each.written, each.removed) for each in result.tables} == {
        table: (rows, rows, 0)
        for table in KEYS
        for (rows,) in sqlite.execute(f"SELECT count(*) FROM {table}")  # noqa: S608
    }


async def test_what_triggers_count_and_match_is_the_same_after_a_copy(
    path: Path, url: str, sqlite: sqlite3.Connection, postgres: Connection
) -> None:
    await copy(path, url)

    rows = await postgres.fetch("SELECT webhook_id, sum(held)::bigint FROM held_counts GROUP BY 1 HAVING sum(held) > 0")
    assert {tuple(row) for row in rows} == set(sqlite.execute("SELECT webhook_id, held FROM held_counts"))
    matches = "SELECT webhook_id, event_name, fields, ends_at FROM webhook_matches"
    assert sorted(map(tuple, await postgres.fetch(matches))) == sorted(sqlite.execute(matches))
    (calls,) = await postgres.fetch("SELECT sum(working + input_required)::bigint AS open FROM call_counts")
    (working,) = sqlite.execute("SELECT count(*) FROM calls WHERE status IN ('working', 'input_required')").fetchone()
    assert calls["open"] == working
    await require_equal_bytes(sqlite, postgres)
    ticket = await postgres.fetchval("SELECT nextval('turn_tickets')")
    assert ticket > sqlite.execute("SELECT max(ticket) FROM turns").fetchone()[0]


@pytest.mark.parametrize(("ahead", "continued"), [(HOUR, HOUR), (-HOUR, timedelta()), (9 * DAY, timedelta())])
async def test_the_first_node_continues_from_the_last_time_of_the_file_as_a_service_on_the_file_does(
    sparse_path: Path, url: str, postgres: Connection, ahead: timedelta, continued: timedelta
) -> None:
    began = await postgres.fetchval("SELECT clock_timestamp()")
    with open_beside(sparse_path) as sqlite:
        sqlite.execute("UPDATE scheduling_time SET instant = ?", (epoch_milliseconds(began + ahead),))
    await copy(sparse_path, url)

    clock = SystemClock()
    store = PostgresStore(url, clock=clock, sealer=make_sealer())
    await store.open()

    ended = await postgres.fetchval("SELECT clock_timestamp()")
    assert began + continued - EXACT < clock.now() < ended + continued + EXACT
    await store.close()


@pytest.mark.parametrize("table", ["calls", "mcp_sessions"])
async def test_a_copy_that_was_interrupted_is_refused_by_stores_and_continues_where_it_ended(
    path: Path, url: str, sqlite: sqlite3.Connection, postgres: Connection, table: str
) -> None:
    def interrupt(progress: TableProgress) -> None:
        if progress.table == table and progress.compared == BATCH_ROWS:
            raise Interrupted

    with pytest.raises(Interrupted):
        await copy_database(path, url, report=interrupt)
    with pytest.raises(StoreUnavailable, match="unfinished copy"):
        await PostgresStore(url, clock=FakeClock(), sealer=make_sealer()).open()
    with pytest.raises(StoreUnavailable, match="unfinished copy"):
        await read_schema_state(url)

    result = await copy(path, url)

    assert result.is_finished
    assert (await read_schema_state(url)).missing == []
    await require_equal_rows(sqlite, postgres)
    (continued,) = (each for each in result.tables if each.table == table)
    assert continued.written == continued.compared - BATCH_ROWS


async def test_while_a_service_runs_the_large_tables_are_copied_and_later_only_what_has_changed(
    path: Path, url: str, sqlite: sqlite3.Connection, postgres: Connection
) -> None:
    service = lock_for_database(path)
    service.acquire()
    early = await copy(path, url)
    sqlite.execute(
        "UPDATE calls SET status = 'cancelled', progress = '{}' WHERE id IN ('call_000000001', 'call_000000119')"
    )
    sqlite.execute("DELETE FROM deliveries WHERE id IN ('dlv_000000000', 'dlv_000000004')")
    sqlite.execute("DELETE FROM events WHERE seq > 115")
    sqlite.execute("INSERT INTO results (call_id, body) VALUES ('call_000000001', x'00ff')")
    service.release()

    finished = await copy(path, url)

    assert not early.is_finished
    assert {each.table for each in early.tables} == LARGE
    assert finished.is_finished
    assert {each.table: (each.written, each.removed) for each in finished.tables if each.table in LARGE} == {
        "calls": (2, 0),
        "inputs": (0, 0),
        "results": (1, 0),
        "tombstones": (0, 0),
        "events": (0, 5),
        "deliveries": (0, 2),
        "bodies": (0, 0),
        "attempts": (0, 0),
    }
    await require_equal_rows(sqlite, postgres)
    await require_equal_bytes(sqlite, postgres)


async def test_a_second_copy_reads_no_rows_that_the_source_has_removed_since_the_first(
    path: Path, url: str, sqlite: sqlite3.Connection, postgres: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows of a range were read at once: a day later, those of a day's expired calls, with their results."""
    monkeypatch.setattr(copy_target, "KEYS_READ_MAX", BATCH_ROWS)
    lock = lock_for_database(path)
    lock.acquire()
    await copy(path, url)
    lock.release()
    sqlite.execute("DELETE FROM events WHERE seq % 100 <> 0")
    read_range, read = CopyTarget.read_range, list[int]()

    async def note(self: CopyTarget, table: CopiedTable, after: Key | None, until: Key) -> Sequence[Row]:
        found = await read_range(self, table, after, until)
        read.append(len(found))
        return found

    monkeypatch.setattr(CopyTarget, "read_range", note)
    result = await copy(path, url)

    assert max(read) <= BATCH_ROWS
    assert next(each.removed for each in result.tables if each.table == "events") > 2 * BATCH_ROWS
    await require_equal_rows(sqlite, postgres)


async def test_a_database_that_is_not_empty_is_refused_and_stays_as_it_is(path: Path, url: str) -> None:
    store, call = PostgresStore(url, clock=FakeClock(), sealer=make_sealer()), make_call()
    await store.open()
    await store.write(lambda tx: tx.calls.insert(call))

    with pytest.raises(StoreUnavailable, match="not empty: the table 'calls' has rows"):
        await copy(path, url)

    assert await store.read(lambda tx: tx.calls.get(call.id)) == call
    await store.close()


async def test_a_finished_copy_is_not_copied_to_again(sparse_path: Path, url: str) -> None:
    await copy(sparse_path, url)

    with pytest.raises(StoreUnavailable, match="is already finished"):
        await copy(sparse_path, url)


async def test_an_unfinished_copy_of_another_database_is_refused(path: Path, url: str, tmp_path: Path) -> None:
    def interrupt(_: TableProgress) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        await copy_database(path, url, report=interrupt)
    other = tmp_path / "other.db"
    fill_database(other, rows=1).close()

    with pytest.raises(StoreUnavailable, match=f"unfinished copy of '{path}'"):
        await copy(other, url)


async def test_a_second_copy_at_the_same_time_is_refused(path: Path, url: str, postgres: Connection) -> None:
    await postgres.execute("SELECT pg_advisory_lock(2026112214)")
    with pytest.raises(StoreUnavailable, match="Another `ringback copy`"):
        await copy(path, url)


async def test_u_0000_becomes_the_replacement_character_and_is_counted(
    sparse_path: Path, url: str, postgres: Connection
) -> None:
    handle = '["task",{"task_id":"\\u0000"}]'
    with open_beside(sparse_path) as sqlite:
        sqlite.execute("UPDATE calls SET tool = 'a' || char(0) || 'b' WHERE id = 'call_000000007'")
        sqlite.execute("UPDATE calls SET handle = ? WHERE id = 'call_000000008'", [handle])

    result = await copy(sparse_path, url)

    assert result.replaced_characters == 1
    assert (
        await postgres.fetchval("SELECT tool FROM calls WHERE id = 'call_000000007'") == "a\N{REPLACEMENT CHARACTER}b"
    )
    assert await postgres.fetchval("SELECT handle FROM calls WHERE id = 'call_000000008'") == handle


async def test_a_database_of_an_earlier_version_is_to_be_migrated_first(
    path: Path, url: str, sqlite: sqlite3.Connection
) -> None:
    sqlite.execute("DELETE FROM schema_migrations WHERE number > 1")

    with pytest.raises(StoreUnavailable, match="Bring both to one version first: ringback migrate"):
        await copy(path, url)


async def test_a_database_that_has_lost_commits_is_refused(path: Path, url: str) -> None:
    service = lock_for_database(path)
    service.acquire()
    service.write_commit_count(7)
    service.release()

    with pytest.raises(StoreUnavailable, match="The last 7 commits of this database are missing"):
        await copy(path, url)


async def test_a_lock_file_that_cannot_be_written_is_not_taken_for_a_running_service(path: Path, url: str) -> None:
    lock_for_database(path).path.mkdir()

    with pytest.raises(StoreUnavailable, match=r"The lock file .* cannot be written"):
        await copy(path, url)


async def test_a_file_that_does_not_exist_is_not_made(tmp_path: Path, url: str) -> None:
    path = tmp_path / "nothing.db"

    with pytest.raises(StoreUnavailable, match="There is no database at"):
        await copy(path, url)

    assert not path.exists()
