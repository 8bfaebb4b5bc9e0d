"""Migrations of PostgreSQL: each is applied once, also if nodes start together; and an older node runs on a newer schema."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import asyncpg
import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.service_database import keyless_store
from ringback.settings import Settings
from ringback.storage import schema
from ringback.storage.copying.target import open_target
from ringback.storage.migrations import Migration
from ringback.storage.open import open_store
from ringback.storage.postgres import migrator as migrator_module
from ringback.storage.postgres.driver import TRANSACTION_TIMEOUT_VERSION, connect
from ringback.storage.postgres.migrator import (
    find_other_installations,
    load_migrations,
    migrate_database,
    read_schema_state,
)
from ringback.storage.postgres.store import PostgresStore
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.filled_postgres import Connection
from tests.support.stores import make_sealer

NODES = 8
ONE = Migration(1, "CREATE TABLE one (text text DEFAULT 'a;b'); INSERT INTO one DEFAULT VALUES;")
TWO = Migration(2, "ALTER TABLE one ADD COLUMN more text;")
BROKEN = Migration(2, "CREATE TABLE two (id bigint); CREATE TABLE one (id bigint);")


async def columns(connection: Connection, table: str) -> list[str]:
    rows = await connection.fetch("SELECT column_name FROM information_schema.columns WHERE table_name = $1", table)
    return [row["column_name"] for row in rows]


async def test_each_migration_is_applied_once_and_in_order(url: str, connection: Connection) -> None:
    for migrations in ([ONE], [ONE, TWO], [ONE, TWO]):
        await migrate_database(url, migrations)

    assert await columns(connection, "one") == ["text", "more"]
    recorded = await connection.fetch("SELECT number, sha256, oldest_code FROM schema_migrations ORDER BY number")
    assert [tuple(row) for row in recorded] == [(each.number, each.sha256, each.number) for each in (ONE, TWO)]


async def test_nodes_that_start_together_on_an_empty_database_apply_each_migration_once(
    url: str, connection: Connection
) -> None:
    await asyncio.gather(*(migrate_database(url, [ONE, TWO]) for _ in range(NODES)))

    assert await connection.fetchval("SELECT count(*) FROM one") == 1
    assert (await migrate_database(url, [ONE, TWO])).missing == []


async def test_stores_that_open_together_on_an_empty_database_all_work(url: str) -> None:
    stores = [PostgresStore(url, clock=FakeClock(), sealer=make_sealer()) for _ in range(2)]
    await asyncio.gather(*(store.open() for store in stores))
    call = make_call()

    await stores[0].write(lambda tx: tx.calls.insert(call))

    assert await stores[1].read(lambda tx: tx.calls.get(call.id)) == call
    for store in stores:
        await store.close()


async def test_a_migration_that_fails_leaves_nothing_behind(url: str, connection: Connection) -> None:
    with pytest.raises(asyncpg.DuplicateTableError):
        await migrate_database(url, [ONE, BROKEN])

    assert await columns(connection, "two") == []
    await migrate_database(url, [ONE, TWO])
    assert await columns(connection, "one") == ["text", "more"]


async def test_a_migration_that_was_edited_after_it_was_applied_is_refused(url: str) -> None:
    await migrate_database(url, [ONE])

    with pytest.raises(StoreUnavailable, match="Migration 1 is not the one that made this database"):
        await migrate_database(url, [Migration(1, f"{ONE.text} "), TWO])


async def test_a_database_of_a_newer_version_is_refused(url: str) -> None:
    await migrate_database(url, [ONE, TWO])

    with pytest.raises(StoreUnavailable, match=r"newer version \(migration 2\). This version knows 1"):
        await migrate_database(url, [ONE])


async def test_a_node_that_is_not_upgraded_yet_serves_on_the_schema_of_the_next_version(url: str) -> None:
    """One step of a rolling upgrade: the first node of the next version has migrated, and this one starts once more."""
    shipped = load_migrations()
    number = len(shipped) + 1
    await migrate_database(
        url,
        [
            *shipped,
            Migration(
                number,
                f"-- oldest code: {number - 1}\nALTER TABLE calls ADD COLUMN priority bigint NOT NULL DEFAULT 0;"
                "CREATE INDEX calls_by_priority ON calls (priority);",
            ),
        ],
    )
    store, call = PostgresStore(url, clock=FakeClock(), sealer=make_sealer()), make_call()

    await store.open()

    await store.write(lambda tx: tx.calls.insert(call))
    assert await store.read(lambda tx: tx.calls.get(call.id)) == call
    await store.close()


async def test_an_installation_older_than_the_last_step_is_refused_on_the_schema_of_the_next_version(url: str) -> None:
    shipped = load_migrations()
    await migrate_database(url, [*shipped, Migration(len(shipped) + 1, "ALTER TABLE calls DROP COLUMN runs CASCADE;")])

    with pytest.raises(StoreUnavailable, match="Run that version, or a later one"):
        await PostgresStore(url, clock=FakeClock(), sealer=make_sealer()).open()


async def test_a_command_of_a_newer_version_applies_no_migration_that_would_stop_the_nodes(
    url: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ringback doctor` and `ringback keys` open the store while nodes of the earlier version run."""
    shipped = load_migrations()
    await migrate_database(url)
    stopping = Migration(len(shipped) + 1, "CREATE TABLE more (id bigint);")
    monkeypatch.setattr(migrator_module, "load_migrations", lambda: [*shipped, stopping])

    def opening(*, exclusive: bool) -> AbstractAsyncContextManager[Store]:
        return open_store(url, clock=FakeClock(), sealer=make_sealer(), exclusive=exclusive)

    with pytest.raises(StoreUnavailable, match="Start the nodes with this version, or stop them and run") as refused:
        async with opening(exclusive=False):
            raise NotImplementedError

    assert refused.value.needs_operator
    assert await columns(connection, "more") == []
    async with opening(exclusive=True):
        assert await columns(connection, "more") == ["id"]
    async with opening(exclusive=False):
        pass


async def test_a_command_of_a_newer_version_applies_a_migration_with_which_the_nodes_go_on(
    url: str, connection: Connection
) -> None:
    await migrate_database(url, [ONE])

    await migrate_database(url, [ONE, replace(TWO, text=f"-- oldest code: 1\n{TWO.text}")], beside_nodes=True)

    assert await columns(connection, "one") == ["text", "more"]


async def test_reading_the_state_of_a_schema_changes_nothing(url: str, connection: Connection) -> None:
    state = await read_schema_state(url)

    assert (state.applied, state.known) == (0, len(load_migrations()))
    assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


def test_shipped_migrations_are_numbered_without_gaps() -> None:
    assert [each.number for each in load_migrations()] == list(range(1, len(load_migrations()) + 1))


async def test_a_url_with_parameters_of_psql_connects(url: str) -> None:
    separator = "&" if "?" in url else "?"

    await migrate_database(f"{url}{separator}connect_timeout=10&keepalives_idle=30&channel_binding=prefer", [ONE])

    with pytest.raises(StoreUnavailable, match="a parameter of the database URL") as refused:
        await PostgresStore(f"{url}{separator}jti=off", clock=FakeClock(), sealer=make_sealer()).open()
    assert refused.value.needs_operator


async def shorten_timeouts(connection: Connection) -> None:
    """As a DBA does for all programs of a database."""
    name = await connection.fetchval("SELECT quote_ident(current_database())")
    await connection.execute(f"ALTER DATABASE {name} SET idle_session_timeout = 200")
    if connection.get_server_version().major >= TRANSACTION_TIMEOUT_VERSION:
        await connection.execute(f"ALTER DATABASE {name} SET transaction_timeout = 100")


async def test_a_dba_s_timeouts_end_no_migration_and_no_notifications(url: str, connection: Connection) -> None:
    await shorten_timeouts(connection)
    slow = Migration(1, "SELECT pg_sleep(0.3); CREATE TABLE one (id bigint);")

    await migrate_database(url, [slow])

    assert await columns(connection, "one") == ["id"]
    listening = await connect(url)
    (row,) = await listening.fetch("SELECT current_setting('idle_session_timeout') AS idle")
    assert row["idle"] == "0"
    await listening.close()


async def test_a_copy_may_take_longer_than_a_transaction_of_the_service(url: str, connection: Connection) -> None:
    await shorten_timeouts(connection)

    async with open_target(url) as target:
        slow = "SELECT 1 FROM pg_sleep(0.3)"
        assert await target._connection.fetchval(slow) == 1  # pyright: ignore[reportPrivateUsage]


async def test_a_standby_is_refused_by_name(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statements = migrator_module._SQL  # pyright: ignore[reportPrivateUsage]
    in_recovery = replace(statements["is_standby"], writing="SELECT true AS is_standby")
    monkeypatch.setattr(migrator_module, "_SQL", {**statements, "is_standby": in_recovery})

    with pytest.raises(StoreUnavailable, match=r"is a standby, which only reads\. Name the primary") as refused:
        await PostgresStore(url, clock=FakeClock(), sealer=make_sealer()).open()

    assert not refused.value.needs_operator
    assert (await read_schema_state(url)).applied == 0


async def test_a_standby_that_lacks_no_migration_is_refused_by_migrate_and_read_by_its_check(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate_database(url)
    statements = migrator_module._SQL  # pyright: ignore[reportPrivateUsage]
    in_recovery = replace(statements["is_standby"], writing="SELECT true AS is_standby")
    monkeypatch.setattr(migrator_module, "_SQL", {**statements, "is_standby": in_recovery})
    settings = Settings.model_validate({"database_url": url})

    with pytest.raises(StoreUnavailable, match="is a standby"):
        await keyless_store.migrate_database(settings)

    assert not (await schema.read_schema_state(url)).missing


async def test_missing_commits_are_accepted_of_sqlite_only_and_a_postgresql_database_stays_as_it_is(
    url: str, connection: Connection
) -> None:
    with pytest.raises(StoreUnavailable, match="This needs an SQLite database"):
        await keyless_store.accept_restore(Settings(database_url=url))

    assert await connection.fetchval("SELECT to_regclass('schema_migrations')") is None


async def test_other_installations_of_a_database_are_found_by_their_schemas(url: str, connection: Connection) -> None:
    for name in ("a", "b", "other_program"):
        await connection.execute(f"CREATE SCHEMA {name}")
    await connection.execute("CREATE TABLE other_program.calls (id bigint)")
    separator = "&" if "?" in url else "?"
    first, second = (f"{url}{separator}options=-csearch_path%3D{name}" for name in ("a", "b"))
    await migrate_database(first)
    assert await find_other_installations(first) == []

    await migrate_database(second)
    assert (await find_other_installations(first), await find_other_installations(second)) == (["b"], ["a"])
