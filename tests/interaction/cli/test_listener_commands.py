"""How the commands of `ringback listen --exec` end: no two commands for one callback run at once."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.cli.durable_listener import command_guard
from ringback.cli.durable_listener.commands import CommandHandler, find_missing_program
from ringback.cli.durable_listener.handlers import Failed, Handled, ReceivedCallback
from ringback.cli.durable_listener.running_commands import RunningCommands, open_running_commands
from ringback.receiver import Callback, parse
from tests.support.limits import WAIT_SECONDS
from tests.support.processes import is_running
from tests.support.upstreams import wait_until_true

pytestmark = pytest.mark.requirement("R16")

SAVING = "trap 'sleep 0.5; echo saved > saved; exit 1' TERM; echo $$ > new; mv new begun; sleep 3600 & wait"
"""A command that saves its work when it is asked to end."""
GRACE_SECONDS: Final = 0.2
DEAF = "trap '' TERM; echo $$ > new; mv new begun; sleep 3600 & wait; sleep 3600"


def make_handler(folder: Path, command: str, **options: Any) -> CommandHandler:
    options = {"timeout_seconds": 3600.0, **options}
    return CommandHandler(f"cd {folder}; {command}", environment=os.environ, **options)


@asynccontextmanager
async def running_commands(
    folder: Path, *, stop: asyncio.Event | None = None, reports: list[str] | None = None
) -> AsyncGenerator[RunningCommands]:
    report = (reports if reports is not None else []).append
    opening = open_running_commands(
        folder / "state.db", stop=stop or asyncio.Event(), report=report, grace_seconds=GRACE_SECONDS
    )
    async with opening as running:
        yield running


def make_received() -> ReceivedCallback:
    body = b'{"eventId":"evt_1","name":"call.finished","timestamp":"2026-11-20T17:00:00.000Z","data":{}}'
    callback = parse(body)
    assert isinstance(callback, Callback)
    return ReceivedCallback(event_id="evt_1", callback=callback, body=body, attempt=1)


async def cancel_begun_command(handler: CommandHandler, folder: Path) -> int:
    """Cancel the command after it has begun, and wait for the handler. Returns the id of the command's process."""
    handling = asyncio.create_task(handler.handle_callback(make_received()))
    await wait_until_true((folder / "begun").exists)
    handling.cancel()
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(handling, return_exceptions=True)
    return int((folder / "begun").read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", [SAVING, f"({SAVING}); true"], ids=["the shell saves", "a child saves"])
async def test_a_command_that_is_ended_has_saved_its_work_before_the_next_attempt(tmp_path: Path, command: str) -> None:
    await cancel_begun_command(make_handler(tmp_path, command), tmp_path)

    assert (tmp_path / "saved").exists()


async def test_a_command_that_runs_too_long_has_ended_before_the_next_attempt(tmp_path: Path) -> None:
    handler = make_handler(tmp_path, SAVING, timeout_seconds=1.0)
    outcome = await handler.handle_callback(make_received())

    assert isinstance(outcome, Failed)
    assert (tmp_path / "saved").exists() or not (tmp_path / "begun").exists()


async def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    process_id = await cancel_begun_command(make_handler(tmp_path, DEAF, grace_seconds=GRACE_SECONDS), tmp_path)

    assert not is_running(process_id)


async def test_what_a_failed_command_leaves_behind_has_ended_before_the_next_attempt(tmp_path: Path) -> None:
    handler = make_handler(tmp_path, "sleep 3600 & echo $! > left; exit 1")
    outcome = await handler.handle_callback(make_received())

    assert isinstance(outcome, Failed)
    assert not is_running(int((tmp_path / "left").read_text(encoding="utf-8")))


async def test_what_a_command_leaves_behind_that_handled_its_callback_runs_on(tmp_path: Path) -> None:
    handler = make_handler(tmp_path, "sleep 3600 & echo $! > left")
    outcome = await handler.handle_callback(make_received())
    left = int((tmp_path / "left").read_text(encoding="utf-8"))
    ran_on = is_running(left)
    os.kill(left, signal.SIGKILL)

    assert isinstance(outcome, Handled)
    assert ran_on


async def test_a_body_that_the_command_does_not_read_is_no_failure(tmp_path: Path) -> None:
    received = make_received()
    large = ReceivedCallback(
        event_id="evt_1", callback=received.callback, body=received.body + b" " * 1_000_000, attempt=1
    )
    async with asyncio.timeout(WAIT_SECONDS):
        outcome = await make_handler(tmp_path, "true").handle_callback(large)

    assert isinstance(outcome, Handled)


async def start_command(folder: Path, command: str) -> Process:
    process = await asyncio.create_subprocess_exec("sh", "-c", command, cwd=folder, start_new_session=True)
    await wait_until_true((folder / "begun").exists)
    return process


async def test_the_guard_of_a_killed_listener_kills_a_command_that_ignores_sigterm(tmp_path: Path) -> None:
    """The end of the guard's standard input is the end of the listener."""
    command = await start_command(tmp_path, DEAF)
    guard = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", command_guard.__file__, str(GRACE_SECONDS)), stdin=PIPE
    )
    async with asyncio.timeout(WAIT_SECONDS):
        await guard.communicate(f"+1\n-1\n+{command.pid}\n".encode())
        code = await command.wait()

    assert code == -signal.SIGKILL


async def test_commands_that_begin_at_once_and_after_the_death_of_the_guard_have_one_guard(tmp_path: Path) -> None:
    command = await start_command(tmp_path, SAVING)
    async with asyncio.timeout(WAIT_SECONDS):
        async with running_commands(tmp_path) as running:
            await asyncio.gather(running.add(command.pid), running.add(command.pid))
            guards = find_guards()
            for guard in guards:
                os.kill(guard, signal.SIGKILL)
            await wait_until_true(lambda: not find_guards())
            while not find_guards():  # asyncio learns of the death a moment later
                await running.add(command.pid)
                await asyncio.sleep(0)
        await command.wait()

    assert len(guards) == 1


def find_guards() -> list[int]:
    """The running guards that this process started."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if is_own_guard(folder)]


def is_own_guard(folder: Path) -> bool:
    try:
        parent = int((folder / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
        return parent == os.getpid() and command_guard.__file__.encode() in (folder / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return False


async def open_and_close(folder: Path, reports: list[str]) -> None:
    async with running_commands(folder, reports=reports):
        pass


async def test_a_listener_waits_for_the_guard_of_the_earlier_one_and_says_so(tmp_path: Path) -> None:
    """Two listeners with one state file are one after the other; here both are in this process."""
    reports: list[str] = []
    interrupted = asyncio.Event()
    interrupted.set()
    async with asyncio.timeout(WAIT_SECONDS):
        async with running_commands(tmp_path):
            async with running_commands(tmp_path, stop=interrupted, reports=reports):
                pass
            waiting = asyncio.create_task(open_and_close(tmp_path, reports))
            await wait_until_true(lambda: len(reports) == 2)
            is_waiting = not waiting.done()
        await waiting

    assert is_waiting
    assert "Waiting for a command of the earlier listener" in reports[0]


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("no-such-program-7 --now", "no-such-program-7"),
        (" ./wake.sh; true", "./wake.sh"),
        ("no-such-program-7", "no-such-program-7"),
        ("cat > body.json", None),
        ("cd .. && ./wake.sh", None),
        ("if true; then true; fi", None),
        ("NAME=value no-such-program-7", None),
        ("wake() { true; }; wake", None),
        ("$WAKE", None),
        ("(true)", None),
        ("", None),
    ],
)
async def test_a_program_that_the_shell_does_not_find_is_named(command: str, missing: str | None) -> None:
    assert await find_missing_program(command, os.environ) == missing


async def test_a_machine_without_a_shell_can_still_listen(tmp_path: Path) -> None:
    """Each callback says why its command cannot be started."""
    assert await find_missing_program("true", {"PATH": str(tmp_path)}) is None
