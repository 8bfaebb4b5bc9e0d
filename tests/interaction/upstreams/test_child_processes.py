"""No child process, and no process that it started, outlives the service: neither its stop nor its SIGKILL."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from ringback.domain.upstreams import Listing
from ringback.upstreams.registry import UpstreamRegistry
from ringback.upstreams.transports import child_process as child
from ringback.upstreams.transports.child_records import (
    ChildRecord,
    ChildRecords,
    read_boot_id,
    read_process_status,
    signal_processes,
)
from ringback.upstreams.transports.error_output import ErrorOutput
from tests.support.application import running_application
from tests.support.forked_commands import running_forked_script
from tests.support.upstreams import (
    WAIT_SECONDS,
    make_python_config,
    make_raw_config,
    open_upstreams,
    run_upstream_call,
    wait_until_true,
)

ROOT: Final = Path(__file__).parents[3]
STUBBORN_CHILD: Final = {"RAW_STUBBORN": "1", "RAW_GRANDCHILD": "1"}


def process_exists(pid: int) -> bool:
    status = read_process_status(pid)
    return status is not None and status.state not in {"Z", "X"}


def records_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.json"))


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def list_pids(upstreams: UpstreamRegistry) -> dict[str, int]:
    ending = await run_upstream_call(upstreams, "whoami")
    assert ending.result is not None
    return json.loads(json.loads(ending.result)["content"][0]["text"])


async def test_a_killed_service_takes_its_child_along_and_its_next_start_the_rest(tmp_path: Path) -> None:
    script = ROOT / "tests" / "support" / "child_parent_process.py"
    async with running_forked_script(script, str(tmp_path), folder=ROOT, environment=os.environ) as holder:
        async with asyncio.timeout(2 * WAIT_SECONDS):
            pids = json.loads(await holder.stdout.readline())
        assert process_exists(pids["pid"])
        assert process_exists(pids["grandchild"])

        holder.send_signal(signal.SIGKILL)
        await holder.wait()
    await wait_until_true(lambda: not process_exists(pids["pid"]))
    assert process_exists(pids["grandchild"])

    async with open_upstreams(children_folder=tmp_path):
        await wait_until_true(lambda: not process_exists(pids["grandchild"]))
    assert records_in(tmp_path) == []


async def test_stopping_ends_a_stubborn_child_and_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "STOP_TIMEOUT_SECONDS", 0.1)
    async with open_upstreams(make_raw_config(**STUBBORN_CHILD), children_folder=tmp_path) as upstreams:
        pids = await list_pids(upstreams)
        assert len(records_in(tmp_path)) == 1

    assert not process_exists(pids["pid"])
    await wait_until_true(lambda: not process_exists(pids["grandchild"]))
    assert records_in(tmp_path) == []


async def test_stopping_a_stubborn_child_with_a_stubborn_child_takes_two_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The service counts on that when it stops (`server.EXIT_SECONDS`)."""
    monkeypatch.setattr(child, "STOP_TIMEOUT_SECONDS", 1.5)
    async with open_upstreams(make_raw_config(**STUBBORN_CHILD, RAW_OWN_GROUP="1")) as upstreams:
        pids = await list_pids(upstreams)
        began_at = asyncio.get_running_loop().time()
    took = asyncio.get_running_loop().time() - began_at

    assert took < 2.8 * 1.5
    await wait_until_true(lambda: not process_exists(pids["grandchild"]))


async def test_a_child_that_ends_by_itself_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "STOP_TIMEOUT_SECONDS", 0.1)
    async with open_upstreams(make_raw_config(RAW_GRANDCHILD="1"), children_folder=tmp_path) as upstreams:
        first = await list_pids(upstreams)
        os.kill(first["pid"], signal.SIGKILL)
        await wait_until_true(lambda: not process_exists(first["grandchild"]))
        second = await list_pids(upstreams)

    assert second["pid"] != first["pid"]


@pytest.mark.sqlite_only("a database that is no file has nothing beside it")
async def test_a_child_whose_session_was_replaced_ends_although_it_keeps_a_stream_of_its_changes_open() -> None:
    config = make_python_config("-m", "tests.support.event_upstream")
    async with open_upstreams(config) as upstreams:
        connection = upstreams.connections.shared[config.name]
        replaced = await connection.get_shared_session()
        await wait_until_true(lambda: connection.catalog_cache.get_entries(Listing.EVENTS) is not None)
        replaced.close_to_new_requests()

        await wait_until_true(lambda: replaced.child is not None and not replaced.child.is_running)
        following = await connection.get_shared_session()
        assert following.child is not None
        assert following.child.is_running


@pytest.mark.sqlite_only("a database of PostgreSQL is no file")
async def test_the_service_writes_its_children_down_beside_its_database(tmp_path: Path) -> None:
    async with running_application(tmp_path, make_raw_config()):
        await wait_until_true(lambda: [file.parent.name for file in records_in(tmp_path)] == ["ringback.db-children"])
    assert records_in(tmp_path) == []


async def test_the_pipe_of_a_childs_error_output_is_closed_however_often_its_end_is_cancelled() -> None:
    kept, is_open = list[int](), asyncio.Event()

    async def log_until_cancelled() -> None:
        async with child.log_stderr("stage", ErrorOutput()) as errlog:
            kept.append(os.dup(errlog.fileno()))  # as a process that the child has started
            is_open.set()
            await asyncio.Event().wait()

    logging_task = asyncio.create_task(log_until_cancelled())
    await is_open.wait()
    logging_task.cancel()
    await asyncio.sleep(0)  # it waits for the last output
    logging_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await logging_task
    await asyncio.sleep(0)

    with pytest.raises(BrokenPipeError):
        os.write(kept[0], b"x")
    os.close(kept[0])


@pytest.mark.parametrize(
    "change",
    [{"mark": "another"}, {"started": 1}, {"boot_id": "another"}],
    ids=["the mark", "the start", "the boot"],
)
def test_a_process_that_only_has_the_number_of_one_that_was_recorded_is_let_go(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    env = {**os.environ, "RINGBACK_CHILD": "mark"}
    stranger = subprocess.Popen(["cat"], start_new_session=True, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert stranger.stdin is not None
        assert stranger.stdout is not None
        stranger.stdin.write(b"x")
        stranger.stdin.flush()
        stranger.stdout.read(1)  # before it runs, its environment may be empty
        records = ChildRecords(tmp_path)
        record = records.add(stranger.pid, "mark")
        assert (tmp_path / f"{stranger.pid}.json").stat().st_mode & 0o077 == 0  # the mark is for this user
        (tmp_path / f"{stranger.pid}.json").unlink()
        changed = replace(record, **change)
        (tmp_path / "1.json").write_text(json.dumps({name: getattr(changed, name) for name in ChildRecord.__slots__}))

        assert records.kill_leftovers() == 0
        assert process_exists(stranger.pid)
        assert records_in(tmp_path) == []
        assert signal_processes(record) == 1
    finally:
        stranger.kill()
        stranger.communicate()


@pytest.mark.parametrize(
    "setpriv", [None, "false", "gone"], ids=["none", "one that knows no such option", "none any more"]
)
def test_without_a_setpriv_that_works_children_are_started_untied_and_the_log_says_so_once(
    setpriv: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = {None: None, "false": shutil.which("false"), "gone": "/nowhere/setpriv"}[setpriv]

    def which(_: str) -> str | None:
        return found

    def tie(_: int) -> tuple[str, ...]:
        return child.death_signal_prefix()

    monkeypatch.setattr(shutil, "which", which)
    child.probe_death_signal_prefix.cache_clear()
    try:
        with ThreadPoolExecutor(4) as threads:
            ties = list(threads.map(tie, range(8)))
    finally:
        child.probe_death_signal_prefix.cache_clear()

    assert ties == [()] * 8
    assert [record.getMessage() for record in caplog.records] == ["children.not_tied"]


def test_a_record_that_cannot_be_read_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text("{")
    (tmp_path / "2.json").write_text('{"pid": 1}')

    assert ChildRecords(tmp_path).kill_leftovers() == 0
    assert records_in(tmp_path) == []
    assert read_boot_id()


class _FailingChildRecords(ChildRecords):
    def __init__(self) -> None:
        super().__init__(None)
        self.pids: list[int] = []

    def add(self, pid: int, mark: str) -> ChildRecord:
        del mark
        self.pids.append(pid)
        raise OSError("No space left on device")


async def test_a_child_that_cannot_be_written_down_is_ended_at_once() -> None:
    records = _FailingChildRecords()
    await asyncio.to_thread(child.death_signal_prefix)  # the first start of a process probes it
    open_files = count_open_files()

    with pytest.raises(OSError, match="No space left"):
        await child.start_child_process("sleep", ("600",), env={}, cwd=None, errlog=sys.stderr, child_records=records)

    (pid,) = records.pids
    await wait_until_true(lambda: not process_exists(pid))
    assert count_open_files() == open_files


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_child_has_no_second_copy_of_a_pipe_so_that_the_end_of_its_output_is_noticed(
    run: Callable[[Awaitable[None]], None],
) -> None:
    async def close_output() -> None:
        script = "exec >&-; exec sleep 600"
        started = await child.start_child_process(
            "sh", ("-c", script), env={}, cwd=None, errlog=sys.stderr, child_records=ChildRecords(None)
        )
        async with asyncio.timeout(WAIT_SECONDS):
            assert await started.stdout.read() == b""
        assert started.is_running
        await started.stop()

    run(close_output())


class _NoPermission(ChildRecords):
    def remove(self, record: ChildRecord) -> None:
        raise PermissionError(record.pid)


async def test_a_child_whose_record_cannot_be_removed_is_still_closed(tmp_path: Path) -> None:
    """Another process has left the child's session and holds its output, so the pipe does not close by itself."""
    script = "setsid sh -c 'echo $$; exec sleep 600' & exec cat"
    records = _NoPermission(tmp_path)
    started = await child.start_child_process(
        "sh", ("-c", script), env={}, cwd=None, errlog=sys.stderr, child_records=records
    )
    async with asyncio.timeout(WAIT_SECONDS):
        holder = int(await started.stdout.readline())
    try:
        with pytest.raises(PermissionError):
            await started.stop()

        assert not process_exists(started.pid)
        assert process_exists(holder)
        assert started.stdin.is_closing()
        async with asyncio.timeout(WAIT_SECONDS):
            assert await started.stdout.read() == b""  # the service reads it no more
    finally:
        os.kill(holder, signal.SIGKILL)


def test_a_record_that_cannot_be_removed_is_logged_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = ChildRecords(tmp_path)
    record = records.add(os.getpid(), "mark")
    (file,) = records_in(tmp_path)
    file.unlink()
    file.mkdir()  # not even root can unlink a directory

    records.remove(record)

    assert [logged.getMessage() for logged in caplog.records] == ["upstream.child_record_not_removed"]
