"""`ringback copy`, from a file to a PostgreSQL database."""

import asyncio
import json
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from typer.testing import Result

from ringback.domain.errors import StoreUnavailable
from ringback.storage.open import open_store
from ringback.storage.sqlite import use_mark
from ringback.storage.sqlite.database import SESSION_STATEMENTS
from ringback.storage.sqlite.store import lock_for_database
from ringback.storage.urls import describe_database
from tests.support.clock import FakeClock
from tests.support.filled_database import fill_database
from tests.support.postgres_databases import empty_database
from tests.support.stores import make_sealer

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


async def open_file(*, exclusive: bool) -> None:
    async with open_store(str(DATABASE), clock=FakeClock(), sealer=make_sealer(), exclusive=exclusive):
        pass


def test_a_service_does_not_start_on_a_file_that_was_moved_until_that_is_accepted(
    installation: Run, target: str
) -> None:
    """Both services would have run the same calls; only the last line of the copy said so."""
    service = lock_for_database(DATABASE)
    service.acquire()
    installation("copy", "--from", str(DATABASE), "--to", target)
    service.release()
    asyncio.run(open_file(exclusive=True))  # the copy is not finished

    moved = installation("copy", "--from", str(DATABASE), "--to", with_password(target))
    assert "A service does not start on the SQLite database any more" in moved.stderr.replace("\n", " ")

    with pytest.raises(StoreUnavailable, match="--accept-restore") as refused:
        asyncio.run(open_file(exclusive=True))
    assert describe_database(target) in refused.value.detail
    assert "opensesame" not in refused.value.detail
    asyncio.run(open_file(exclusive=False))
    checked = installation("doctor", "--database", str(DATABASE))
    assert "was moved to" in checked.stdout.replace("\n", " ")

    installation("doctor", "--database", str(DATABASE), "--accept-restore")
    asyncio.run(open_file(exclusive=True))
    asyncio.run(open_file(exclusive=True))


def test_a_moved_file_without_its_lock_file_is_refused_too(installation: Run, target: str) -> None:
    installation("copy", "--from", str(DATABASE), "--to", target)
    lock_for_database(DATABASE).path.unlink()

    with pytest.raises(StoreUnavailable, match="was moved to another database"):
        asyncio.run(open_file(exclusive=True))


def test_a_copy_of_a_file_that_cannot_be_marked_is_finished_and_says_what_not_to_do(
    installation: Run, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {**SESSION_STATEMENTS, "mark_moved": "INSERT INTO no_table VALUES (1)"}
    monkeypatch.setattr(use_mark, "SESSION_STATEMENTS", refused)

    copied = installation("copy", "--from", str(DATABASE), "--to", target)

    assert copied.exit_code == 0
    assert "Do not start a service on the SQLite database again" in copied.stderr.replace("\n", " ")


def with_password(url: str) -> str:
    """The same database. The server asks for no password."""
    return f"{url}{'&' if '?' in url else '?'}password=opensesame"


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
