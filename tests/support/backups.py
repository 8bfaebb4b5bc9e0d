"""A small installation on SQLite in the working folder, which `ringback backup` copies and `ringback restore` replaces."""

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import Result

from ringback.service_database.keyless_store import open_store_without_keys
from ringback.settings import load_settings

Run = Callable[..., Result]

DATABASE, KEY_FILE, BACKUP = Path("ringback.db"), Path("ringback.db.key"), Path("backups/monday")


def create_key(run: Run, principal: str) -> None:
    created = run("keys", "create", principal, "--create")
    assert created.exit_code == 0, created.stderr


def principals(run: Run) -> set[str]:
    listed = run("keys", "list", "--json")
    assert listed.exit_code == 0, listed.stderr
    return {key["principal"] for key in json.loads(listed.stdout)}


def list_files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


@contextmanager
def serving() -> Generator[None]:
    """The database is held as a running service holds it."""
    with asyncio.Runner() as runner:
        store = open_store_without_keys(load_settings(), exclusive=True)
        runner.run(store.__aenter__())
        try:
            yield
        finally:
            runner.run(store.__aexit__(None, None, None))
