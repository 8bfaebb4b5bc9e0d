"""`ringback copy`, from a file to a PostgreSQL database."""

import asyncio
import json
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from typer.testing import Result

from ringback.storage.sqlite.store import lock_for_database
from tests.support.filled_database import fill_database
from tests.support.postgres_databases import empty_database

Run = Callable[..., Result]

DATABASE = Path("ringback.db")


@pytest.fixture
def target() -> Generator[str]:
    with asyncio.Runner() as runner:
        database = empty_database()
        yield runner.run(database.__aenter__())
        runner.run(database.__aexit__(None, None, None))


@pytest.fixture
def installation(run: Run) -> Run:
    """The command, in the folder of a small installation."""
    fill_database(DATABASE, rows=20).close()
    return run


def test_a_copy_says_what_was_compared_and_which_settings_are_next(installation: Run, target: str) -> None:
    Path("ringback.db.key").write_text("key", encoding="ascii")

    copied = installation("copy", "--from", "sqlite:///ringback.db", "--to", target, "--json")

    assert copied.exit_code == 0
    assert json.loads(copied.stdout)["tables"]["events"] == {"compared": 20, "written": 20, "removed": 0}
    assert "events: 20 rows compared, 20 written" in copied.stderr
    assert "set RINGBACK_SECRET_KEYS to the content of" in copied.stderr
    assert "ringback.db.key" in copied.stderr.replace("\n", "")


def test_a_copy_beside_a_running_service_says_to_stop_it_and_can_be_finished(installation: Run, target: str) -> None:
    service = lock_for_database(DATABASE)
    service.acquire()
    early = installation("copy", "--from", str(DATABASE), "--to", target)
    service.release()

    finished = installation("copy", "--from", str(DATABASE), "--to", target)

    assert early.exit_code == 75
    assert "Stop it, and run this command again" in early.stderr
    assert finished.exit_code == 0
    assert "events: 20 rows compared, 0 written" in finished.stderr
    assert "keep RINGBACK_SECRET_KEYS" in finished.stderr


def test_a_copy_that_is_finished_says_so_and_changes_nothing(installation: Run, target: str) -> None:
    installation("copy", "--from", str(DATABASE), "--to", target)

    refused = installation("copy", "--from", str(DATABASE), "--to", target)

    assert refused.exit_code == 2
    assert "is already finished" in refused.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("source", "target", "words", "exit_code"),
    [
        (
            "postgresql://a:opensesame@localhost/a",
            "postgresql://a:opensesame@localhost/b",
            "needs an SQLite database",
            2,
        ),
        ("ringback.db", "other.db", "--to needs a PostgreSQL database", 2),
        ("nothing.db", "postgresql://a:opensesame@127.0.0.1:1/b", "There is no database at", 2),
        ("ringback.db.key", "postgresql://a:opensesame@127.0.0.1:1/b", "is damaged (file is not a database)", 2),
        ("ringback.db", "postgresql://a:opensesame@127.0.0.1:1/b", "The database cannot be used now", 75),
    ],
)
def test_databases_that_cannot_be_copied_are_refused_without_their_passwords(
    installation: Run, source: str, target: str, words: str, exit_code: int
) -> None:
    Path("ringback.db.key").write_text("key" * 1_000, encoding="ascii")

    refused = installation("copy", "--from", source, "--to", target)

    assert refused.exit_code == exit_code
    assert words in refused.stderr
    assert "opensesame" not in refused.stdout + refused.stderr
