"""Parked runs in an SQLite file: saved before their calls start, leased while they continue, found by each of their calls."""

import asyncio
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringback.agents import parked_runs
from ringback.agents.parked_runs import (
    APPLICATION_ID,
    ParkedRun,
    ParkedRunsUnavailable,
    SQLiteParkedRuns,
    ToolRequest,
)
from ringback.private_sqlite import open_private_file

LEASE = 3600.0


def request(tool_call_id: str) -> ToolRequest:
    return ToolRequest(tool_call_id=tool_call_id, upstream="git", tool="git_log", arguments='{"repo": "."}')


RUN = ParkedRun(id="run-1", client_session_id="session-1", requests=[request("c1"), request("c2")], state="{}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def runs(path: Path) -> SQLiteParkedRuns:
    return SQLiteParkedRuns(path)


async def test_a_saved_run_is_found_by_each_of_its_calls_in_another_process(runs: SQLiteParkedRuns, path: Path) -> None:
    assert await runs.save(RUN, "token", lease_seconds=LEASE)

    another = SQLiteParkedRuns(path)
    assert [await another.find("session-1", call) for call in ("c1", "c2")] == [RUN, RUN]
    assert await another.find("session-1", "c3") is None
    assert await another.find("session-2", "c1") is None


async def test_the_file_is_readable_by_its_owner_only(runs: SQLiteParkedRuns, path: Path) -> None:
    await runs.save(RUN, "token", lease_seconds=LEASE)

    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


async def test_a_run_is_leased_by_one_token_at_a_time(runs: SQLiteParkedRuns) -> None:
    await runs.save(RUN, "mine", lease_seconds=LEASE)

    assert not await runs.lease("run-1", "another", seconds=LEASE)
    assert await runs.lease("run-1", "mine", seconds=LEASE)
    await runs.release("run-1", "mine")
    assert await runs.lease("run-1", "another", seconds=LEASE)


async def test_a_token_that_was_refused_releases_nothing(runs: SQLiteParkedRuns) -> None:
    await runs.save(RUN, "late", lease_seconds=0)

    await runs.release("run-1", "refused")

    assert await runs.save(RUN, "late", lease_seconds=LEASE)


async def test_a_lapsed_lease_is_renewed_until_another_token_has_had_one(runs: SQLiteParkedRuns) -> None:
    await runs.save(RUN, "late", lease_seconds=0)
    assert await runs.renew("run-1", "late", seconds=0)
    assert not await runs.renew("run-1", "another", seconds=LEASE)

    assert await runs.lease("run-1", "another", seconds=LEASE)
    await runs.release("run-1", "another")

    assert not await runs.renew("run-1", "late", seconds=LEASE)


async def test_a_token_whose_lease_lapsed_changes_nothing_once_another_token_has_the_lease(
    runs: SQLiteParkedRuns,
) -> None:
    await runs.save(RUN, "slow", lease_seconds=0)
    assert await runs.lease("run-1", "another", seconds=LEASE)

    assert not await runs.save(ParkedRun(id="run-1", client_session_id="session-1"), "slow", lease_seconds=LEASE)
    assert await runs.find("session-1", "c1") == RUN


async def test_a_run_that_goes_on_waits_for_its_new_calls_only(runs: SQLiteParkedRuns) -> None:
    await runs.save(RUN, "token", lease_seconds=LEASE)
    later = ParkedRun(id="run-1", client_session_id="session-1", requests=[request("c3")], state='{"turn": 2}')

    assert await runs.save(later, "token", lease_seconds=LEASE)

    assert [await runs.find("session-1", call) for call in ("c1", "c3")] == [later, later]


async def test_a_finished_run_is_recognised_and_no_longer_waits(runs: SQLiteParkedRuns) -> None:
    await runs.save(RUN, "token", lease_seconds=LEASE)

    assert await runs.save(ParkedRun(id="run-1", client_session_id="session-1"), "token", lease_seconds=LEASE)

    found = await runs.find("session-1", "c1")
    assert found is not None
    assert (found.is_final, found.requests) == (True, [])
    assert await runs.find_waiting() == []


async def test_a_call_belongs_to_the_run_that_was_saved_last(runs: SQLiteParkedRuns) -> None:
    await runs.save(RUN, "token", lease_seconds=LEASE)
    continued = ParkedRun(id="run-2", client_session_id="session-1", requests=RUN.requests, state='{"approved": true}')

    await runs.save(continued, "token", lease_seconds=LEASE)

    assert await runs.find("session-1", "c2") == continued
    assert await runs.find_waiting() == [continued]


async def test_a_run_knows_the_ids_of_its_calls_that_have_started(runs: SQLiteParkedRuns, path: Path) -> None:
    await runs.save(RUN, "token", lease_seconds=LEASE)

    of_an_earlier_turn = ToolRequest(
        tool_call_id="c1", upstream="git", tool="git_log", arguments="{}", call_id="call_earlier"
    )
    await runs.record_calls("run-1", [replace(request("c2"), call_id="call_2"), of_an_earlier_turn])

    found = await SQLiteParkedRuns(path).find("session-1", "c1")
    assert found is not None
    assert [each.call_id for each in found.requests] == [None, "call_2"]


def test_a_database_of_another_program_is_refused_and_not_changed(runs: SQLiteParkedRuns, path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE customers (name TEXT)")
    content = path.read_bytes()

    with pytest.raises(ParkedRunsUnavailable, match=r"runs\.db is another program's database.* Choose another file"):
        asyncio.run(runs.find_waiting())

    assert path.read_bytes() == content


def test_a_file_that_is_no_database_is_refused(runs: SQLiteParkedRuns, path: Path) -> None:
    path.write_text("a diary, " * 100, encoding="utf-8")

    with pytest.raises(ParkedRunsUnavailable, match=r"is not a file of parked runs: .*Choose another file"):
        asyncio.run(runs.find_waiting())


async def test_runs_are_not_parked_in_memory_where_the_next_transaction_finds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ParkedRunsUnavailable, match="is no file"):
        await SQLiteParkedRuns(":memory:").save(RUN, "token", lease_seconds=LEASE)


async def test_a_file_of_a_later_version_is_refused(runs: SQLiteParkedRuns, path: Path) -> None:
    await runs.find_waiting()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        database.execute("PRAGMA user_version = 99")

    with pytest.raises(ParkedRunsUnavailable, match="later version of ringback"):
        await runs.find_waiting()


async def test_a_full_disk_is_reported_as_such_and_the_run_before_stays(
    runs: SQLiteParkedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_full_file(*arguments: Any, **options: Any) -> sqlite3.Connection:
        database = open_private_file(*arguments, **options)
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")  # takes no parameters
        return database

    await runs.save(RUN, "token", lease_seconds=LEASE)
    monkeypatch.setattr(parked_runs, "open_private_file", open_full_file)

    with pytest.raises(
        ParkedRunsUnavailable, match=r"disk is full.* Check that its folder may be written and has room"
    ):
        await runs.save(replace(RUN, state="x" * 100_000), "token", lease_seconds=LEASE)

    assert await runs.find("session-1", "c1") == RUN
