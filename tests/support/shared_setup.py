"""The setup that hundreds of tests share, made once in a process: the tables of an empty database, and the routes of the API.

Without this module, a test with one request takes 66 ms of CPU, a third of it for migrations and half for routes. test_migrator
tests the migrations; services in their own processes use this module only if they are forked (`forked_setup`).

A new database file is a copy of one with all tables: that takes half a millisecond, and to copy the tables through a connection
and its log three more.
"""

import functools
import os
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from ringback.api import app as ringback_api
from ringback.storage.migrations import Migration
from ringback.storage.sqlite import database, migrator

load_migrations_once = functools.cache(migrator.load_migrations)
"""Reading the files takes half a millisecond."""


@functools.cache
def _open_template() -> sqlite3.Connection:
    """An empty database with all tables, in memory."""
    template = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    template.row_factory = sqlite3.Row
    migrator.apply_migrations(template, load_migrations_once(), now=datetime.fromtimestamp(0, UTC))
    return template


def create_tables(connection: sqlite3.Connection) -> None:
    """Copy the empty tables of this version into a database that has none."""
    _open_template().backup(connection)


def copy_and_migrate(connection: sqlite3.Connection, migrations: Sequence[Migration], *, now: datetime) -> None:
    """An `apply_migrations` that copies the tables into a database without any."""
    if connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
        create_tables(connection)
    migrator.apply_migrations(connection, migrations, now=now)


@functools.cache
def read_template_file() -> bytes:
    """A database file with all tables, as a service leaves it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        with closing(database.connect(path, lock_wait_seconds=0)) as connection:
            database.enable_wal(connection)
            create_tables(connection)
        return path.read_bytes()


def make_copying_create_file(create_file: Callable[[Path], None]) -> Callable[[Path], None]:
    """A `create_database_file` whose new files have all tables. One that does not fit on the disk stays empty."""

    def create(path: Path) -> None:
        create_file(path)
        if path.stat().st_size == 0:
            try:
                path.write_bytes(read_template_file())
            except OSError:
                os.truncate(path, 0)

    return create


def make_sharing_describe_app(describe_app: Callable[[], FastAPI]) -> Callable[[], FastAPI]:
    """A `describe_app` whose applications have routes in common: FastAPI works out a route's models at its first request.

    The applications include no router, because to include all of them takes a millisecond.
    """
    routes = describe_app().router.routes

    def describe() -> FastAPI:
        app = ringback_api._create_empty_app()  # pyright: ignore[reportPrivateUsage]
        app.router.routes[:] = routes
        return app

    return describe


def make_remembering(inspect_field: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a settings source that looks at a field once: half of the time of reading the settings, which is 3 ms.

    What it returns depends on the field and on how its variables are named, and on no value.
    """
    known: dict[tuple[Any, ...], tuple[FieldInfo, Any]] = {}

    def look_up(source: EnvSettingsSource, field: FieldInfo, *name: str, **of_nested_model: Any) -> Any:
        if of_nested_model:
            return inspect_field(source, field, *name, **of_nested_model)
        key = (id(field), source.env_prefix, source.case_sensitive, *name)
        if key not in known:
            known[key] = field, inspect_field(source, field, *name)
        return known[key][1]

    return look_up
