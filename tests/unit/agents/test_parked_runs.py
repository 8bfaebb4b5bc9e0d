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
from ringback.agents.parked_runs import APPLICATION_ID, ParkedRun, ParkedRunsUnavailable, SQLiteParkedRuns, ToolRequest
from ringback.private_sqlite import open_private_file

LEASE = 3600.0


def request(tool_call_id: str) -> ToolRequest:
    return ToolRequest(tool_call_id=tool_call_id, upstream="git", tool="git_log", arguments='{"repo": "."}')


RUN = ParkedRun(id="run-1", client_session_id="session-1", requests=[request("c1"), request("c2")], state="{}")


FIRST_VERSION = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, client_session_id TEXT NOT NULL, state TEXT, finished_at REAL,
    lease_token TEXT NOT NULL, lease_until REAL NOT NULL);
CREATE TABLE requests (
    client_session_id TEXT NOT NULL, tool_call_id TEXT NOT NULL, run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    upstream TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL, open INTEGER NOT NULL, call_id TEXT,
    PRIMARY KEY (client_session_id, tool_call_id));
CREATE INDEX requests_of_runs ON requests (run_id);
CREATE INDEX finished_runs ON runs (finished_at) WHERE finished_at IS NOT NULL;
INSERT INTO runs VALUES ('run-1', 'session-1', '{}', NULL, 'token', 0);
INSERT INTO requests VALUES ('session-1', 'c1', 'run-1', 'git', 'git_log', '{"repo": "."}', TRUE, 'call_1');
PRAGMA application_id = 1380076370;
PRAGMA user_version = 1;
"""


def make_run(run_id: str, arguments: str) -> ParkedRun:
    """A run that waits for one call, whose name is the same in each run."""
    return replace(RUN, id=run_id, requests=[replace(request("c1"), arguments=arguments)])


async def save_with_ids(runs: SQLiteParkedRuns, run: ParkedRun, *call_ids: str) -> None:
    """Save a run whose calls have started."""
    await runs.save(run, "token", lease_seconds=LEASE)
    started = [replace(each, call_id=call_id) for each, call_id in zip(run.requests, call_ids, strict=True)]
    await runs.record_calls(run.id, started)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def runs(path: Path) -> SQLiteParkedRuns:
    return SQLiteParkedRuns(path)


async def test_a_saved_run_is_found_by_each_of_its_calls_in_another_process(runs: SQLiteParkedRuns, path: Path) -> None:
    assert await runs.save(RUN, "token", lease_seconds=LEASE)

    another = SQLiteParkedRuns(path)
    assert [await another.find("session-1", call, "call_1") for call in ("c1", "c2")] == [[RUN], [RUN]]
    assert await another.find("session-1", "c3", "call_1") == []
    assert await another.find("session-2", "c1", "call_1") == []


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
    assert await runs.read("run-1") == RUN


async def test_a_run_that_goes_on_waits_for_its_new_calls_only(runs: SQLiteParkedRuns) -> None:
    await save_with_ids(runs, RUN, "call_1", "call_2")
    later = ParkedRun(id="run-1", client_session_id="session-1", requests=[request("c3")], state='{"turn": 2}')

    assert await runs.save(later, "token", lease_seconds=LEASE)

    assert await runs.find("session-1", "c1", "call_1") == [later]
    assert await runs.find("session-1", "c3", "call_3") == [later]


async def test_a_finished_run_is_recognised_and_no_longer_waits(runs: SQLiteParkedRuns) -> None:
    await save_with_ids(runs, RUN, "call_1", "call_2")

    assert await runs.save(ParkedRun(id="run-1", client_session_id="session-1"), "token", lease_seconds=LEASE)

    (found,) = await runs.find("session-1", "c1", "call_1")
    assert (found.is_final, found.requests) == (True, [])
    assert await runs.find_waiting() == []


async def test_a_call_belongs_to_the_run_that_was_saved_last(runs: SQLiteParkedRuns) -> None:
    await runs.save(RUN, "token", lease_seconds=LEASE)
    continued = ParkedRun(id="run-2", client_session_id="session-1", requests=RUN.requests, state='{"approved": true}')

    await runs.save(continued, "token", lease_seconds=LEASE)

    assert await runs.find("session-1", "c2", "call_2") == [continued]
    assert await runs.find_waiting() == [continued]


async def test_runs_whose_calls_are_named_alike_are_told_apart_by_the_ids_of_their_calls(
    runs: SQLiteParkedRuns,
) -> None:
    """The later run took the call of the earlier one, which was removed: nothing woke it any more."""
    first, second = (make_run(f"run-{number}", f'{{"number": {number}}}') for number in (1, 2))
    await save_with_ids(runs, first, "call_1")
    await runs.save(second, "token", lease_seconds=LEASE)

    assert [each.id for each in await runs.find("session-1", "c1", "call_1")] == ["run-1"]
    assert [each.id for each in await runs.find("session-1", "c1", "call_2")] == ["run-2"]
    assert [each.id for each in await runs.find_waiting()] == ["run-1", "run-2"]


async def test_while_no_ids_are_known_all_runs_with_a_call_of_the_name_are_found(runs: SQLiteParkedRuns) -> None:
    for number in (1, 2):
        await runs.save(make_run(f"run-{number}", f'{{"number": {number}}}'), "token", lease_seconds=LEASE)

    assert [each.id for each in await runs.find("session-1", "c1", "call_1")] == ["run-2", "run-1"]


async def test_calls_of_one_run_that_are_named_alike_are_all_kept(runs: SQLiteParkedRuns) -> None:
    requests = [request("c1"), replace(request("c1"), arguments="{}")]
    await runs.save(replace(RUN, requests=requests), "token", lease_seconds=LEASE)

    found = await runs.read("run-1")

    assert found is not None
    assert sorted(found.requests, key=lambda each: each.arguments, reverse=True) == sorted(
        requests, key=lambda each: each.arguments, reverse=True
    )


async def test_the_runs_in_a_file_of_the_first_version_are_kept(runs: SQLiteParkedRuns, path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(FIRST_VERSION)

    (found,) = await runs.find("session-1", "c1", "call_1")

    assert found == replace(RUN, requests=[replace(request("c1"), call_id="call_1")])


async def test_a_run_knows_the_ids_of_its_calls_that_have_started(runs: SQLiteParkedRuns, path: Path) -> None:
    await runs.save(RUN, "token", lease_seconds=LEASE)

    of_an_earlier_turn = ToolRequest(
        tool_call_id="c1", upstream="git", tool="git_log", arguments="{}", call_id="call_earlier"
    )
    await runs.record_calls("run-1", [replace(request("c2"), call_id="call_2"), of_an_earlier_turn])

    found = await SQLiteParkedRuns(path).read("run-1")
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

    assert await runs.read("run-1") == RUN
