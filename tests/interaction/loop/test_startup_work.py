"""A start: nothing that grows with what is stored stands before the first request."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ringback.bootstrap import Environment, open_application
from ringback.domain.clock import SystemClock
from ringback.settings import Settings, load_settings
from ringback.storage.sqlite import database
from tests.support.clock import WallClockSteps
from tests.support.stores import open_test_store

MANY_ROWS, MANY_ROWS_DEEP = 10_000, 100_000
"""A start that visits nine thousand rows more takes hundreds of counts more, and ten are allowed."""
STEPS = 100
"""SQLite's virtual machine steps between two counts."""
LEASED_CALLS = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
INSERT INTO calls (
    id, principal, upstream, tool, request_hash, status, phase, input_round, accepts_input, rerun_policy, rerun_allowed,
    cancel_requested, lease_owner, lease_token, lease_until, runs, token_version, created_at, updated_at, deadline_at
)
SELECT
    'call_' || i, 'alice', 'git', 'log', 'x', 'working', 'running', 0, 0, 'never', 0,
    0, 'dead', 'lease_1', 1e15, 0, 1, 0, 0, 1e15
FROM n"""
INPUTS = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
INSERT INTO inputs (call_id, arguments, meta) SELECT 'call_' || i, '{}', '{}' FROM n"""
LEASED_DELIVERIES = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
INSERT INTO deliveries (
    id, principal, webhook_id, kind, generation, state, attempts, due_at, give_up_at, lease_owner, lease_token, lease_until,
    created_at
)
SELECT 'dlv_' || i, 'alice', 'wh_1', 'event', 1, 'leased', 1, 0, 1e15, 'dead', 'lease_1', 1e15, 0 FROM n"""
OLD_EVENTS = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
INSERT INTO events (principal, seq, id, name, data, created_at)
SELECT 'alice', i, 'evt_' || i, 'call.finished', '{}', 0 FROM n"""


async def fill(folder: Path, rows: int) -> None:
    """A database whose process was killed with much open work, and that was not opened for weeks."""
    async with open_test_store(folder, SystemClock()):
        pass
    with closing(sqlite3.connect(folder / "ringback.db")) as connection, connection:
        for statement in (LEASED_CALLS, INPUTS, LEASED_DELIVERIES, OLD_EVENTS):
            connection.execute(statement, {"rows": rows})


@contextmanager
def count_statements(monkeypatch: pytest.MonkeyPatch) -> Generator[list[int]]:
    """The work of every connection that is opened in here, a number for each `STEPS` steps."""
    done: list[int] = []
    open_connection = database.open_connection

    def open_counting(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = open_connection(*args, **options)
        connection.set_progress_handler(lambda: done.append(1), STEPS)
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(database, "open_connection", open_counting)
        yield done


def settings_in(folder: Path) -> Settings:
    return load_settings(database_url=f"sqlite:///{folder / 'ringback.db'}", auth="off", port=0)


async def count_startup_steps(folder: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> int:
    await fill(folder, rows)
    with count_statements(monkeypatch) as done:
        async with open_application(settings_in(folder), ()):
            return len(done)


@pytest.mark.sqlite_only("counts the steps of SQLite's virtual machine")
async def test_a_start_takes_no_more_work_for_many_rows_than_for_a_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, deep: bool
) -> None:
    folders = [tmp_path / "few", tmp_path / "many"]
    for folder in folders:
        folder.mkdir()

    few = await count_startup_steps(folders[0], 1_000, monkeypatch)
    many = await count_startup_steps(folders[1], MANY_ROWS_DEEP if deep else MANY_ROWS, monkeypatch)

    assert many <= few + 10


async def test_a_start_goes_on_from_where_the_last_process_stood(tmp_path: Path) -> None:
    before = WallClockSteps()
    async with open_application(settings_in(tmp_path), (), environment=Environment(clock=before)) as service:
        await service.store.write(lambda tx: tx.scheduling_time.save(tx.now()))
    after = WallClockSteps(before.wall_time() - timedelta(days=1))

    async with open_application(settings_in(tmp_path), (), environment=Environment(clock=after)):
        assert after.now() == before.now()
        assert after.wall_time() == before.wall_time() - timedelta(days=1)
