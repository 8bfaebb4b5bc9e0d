"""`ringback migrate`, on a file and on a PostgreSQL database."""

import asyncio
import json
import socket
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import Result

from ringback.storage import schema
from ringback.storage.migrations import Migration, read_migrations
from ringback.storage.postgres import migrator as postgres_migrator
from ringback.storage.sqlite import migrator as sqlite_migrator
from ringback.storage.sqlite.store import lock_for_database
from tests.support.postgres_databases import empty_database

Run = Callable[..., Result]

STORES = ("sqlite", "postgres")
DATABASE = Path("ringback.db")


@pytest.fixture
def database(store: str, tmp_path: Path) -> Generator[str]:
    if store == "sqlite":
        yield f"sqlite:///{tmp_path / DATABASE}"
        return
    with asyncio.Runner() as runner:
        made = empty_database()
        yield runner.run(made.__aenter__())
        runner.run(made.__aexit__(None, None, None))


def add_migration(monkeypatch: pytest.MonkeyPatch, store: str, text: str) -> int:
    """Make this the next version, which has one more migration. Returns its number."""
    shipped = read_migrations(f"ringback.storage.{store}")
    added = Migration(len(shipped) + 1, text)
    monkeypatch.setattr(
        sqlite_migrator if store == "sqlite" else postgres_migrator, "load_migrations", lambda: [*shipped, added]
    )
    monkeypatch.setattr("ringback.storage.sqlite.store.load_migrations", sqlite_migrator.load_migrations)
    return added.number


@pytest.mark.parametrize("store", STORES)
def test_a_check_says_what_is_missing_and_changes_nothing(run: Run, database: str, store: str) -> None:
    for _ in range(2):
        checked = run("migrate", "--check", "--database", database)

        assert checked.exit_code == 1
        assert "Apply with: ringback migrate. The database is new." in checked.stdout
    assert not DATABASE.exists()


@pytest.mark.parametrize("store", STORES)
def test_migrations_are_applied_once(run: Run, database: str, store: str) -> None:
    last = len(read_migrations(f"ringback.storage.{store}"))

    first = run("migrate", "--json", "--database", database)
    second = run("migrate", "--json", "--database", database)

    assert json.loads(first.stdout) == {
        "applied": last,
        "known": last,
        "migrated": list(range(1, last + 1)),
        "oldest_code": max(migration.oldest_code for migration in read_migrations(f"ringback.storage.{store}")),
    }
    assert json.loads(second.stdout)["migrated"] == []
    checked = run("migrate", "--check", "--database", database)
    assert (checked.exit_code, checked.stdout) == (
        0,
        f"The database is at migration {last}, the last of this version.\n",
    )


@pytest.mark.parametrize("store", STORES)
def test_a_check_says_which_nodes_may_run_meanwhile(
    run: Run, database: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("migrate", "--database", database)
    last = len(read_migrations(f"ringback.storage.{store}"))
    number = add_migration(monkeypatch, store, f"-- oldest code: {last}\nCREATE TABLE another (id BIGINT);")

    checked = run("migrate", "--check", "--database", database)
    as_json = run("migrate", "--check", "--json", "--database", database)

    assert checked.exit_code == 1
    assert f"lacks migration {number}" in checked.stdout
    assert f"knows migration {last} may run meanwhile; stop older ones first" in checked.stdout
    assert json.loads(as_json.stdout) == {"applied": last, "known": number, "missing": [number], "oldest_code": last}


@pytest.mark.parametrize("store", STORES)
def test_an_older_version_says_whether_it_may_run(
    run: Run, database: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = len(read_migrations(f"ringback.storage.{store}"))
    with monkeypatch.context() as next_version:
        add_migration(next_version, store, f"-- oldest code: {last}\nCREATE TABLE another (id BIGINT);")
        run("migrate", "--database", database)

    checked = run("migrate", "--check", "--database", database)

    assert checked.exit_code == 0
    assert f"The database is at migration {last + 1}. This version knows {last}, and may run on it." in checked.stdout


@pytest.mark.parametrize("store", STORES)
def test_a_version_that_is_too_old_is_refused(
    run: Run, database: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as next_version:
        add_migration(next_version, store, "CREATE TABLE another (id BIGINT);")
        run("migrate", "--database", database)

    refused = run("migrate", "--database", database)

    assert refused.exit_code == 2
    assert "changed by a newer version" in refused.stderr
    assert "Run that version, or a later one." in refused.stderr


def test_a_file_that_a_service_has_open_is_not_migrated(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("migrate", "--database", str(DATABASE))
    add_migration(monkeypatch, "sqlite", "CREATE TABLE another (id BIGINT);")
    lock = lock_for_database(DATABASE)
    lock.acquire()
    try:
        refused = run("migrate", "--database", str(DATABASE))
    finally:
        lock.release()

    assert refused.exit_code == 75
    assert "already serves this database" in refused.stderr
    with closing(sqlite3.connect(DATABASE)) as connection:
        assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'another'").fetchall() == []


def test_the_password_of_a_database_that_cannot_be_reached_is_not_shown(run: Run) -> None:
    refused = run("migrate", "--database", "postgresql://ringback:opensesame@127.0.0.1:1/ringback")

    assert refused.exit_code == 75
    assert "The database cannot be used now" in refused.stderr
    assert "opensesame" not in refused.stdout + refused.stderr


@pytest.mark.parametrize("option", [["--check"], []])
def test_a_database_that_is_away_is_no_missing_migration(run: Run, option: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    away = run("migrate", *option, "--database", f"postgresql://ringback@127.0.0.1:{port}/ringback")

    assert away.exit_code == 75
    assert "cannot be used now" in away.stderr


@pytest.mark.parametrize("command", [("migrate",), ("migrate", "--check"), ("keys", "list"), ("backup", "monday")])
def test_a_database_that_a_person_must_repair_ends_a_command_as_one_that_is_not_repeated(
    run: Run, command: tuple[str, ...]
) -> None:
    DATABASE.write_bytes(b"no database " * 1_000)
    damaged = run(*command)
    DATABASE.unlink()
    DATABASE.mkdir()
    folder = run(*command)

    assert (damaged.exit_code, folder.exit_code) == (2, 2)
    assert "is damaged (file is not a database). Nothing was changed." in damaged.stderr
    assert "'ringback.db' is a folder. Name a file in it" in folder.stderr


def test_a_folder_that_the_user_may_not_write_is_named_with_what_to_do(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        refused = sqlite3.OperationalError("attempt to write a readonly database")
        refused.sqlite_errorcode = sqlite3.SQLITE_READONLY
        raise refused

    run("migrate", "--database", "sqlite:///ringback.db")
    monkeypatch.setattr(schema, "connect", refuse)

    checked = run("migrate", "--check", "--database", "sqlite:///ringback.db")

    assert (checked.exit_code, f"write access to '{tmp_path}'" in checked.stderr) == (2, True)
