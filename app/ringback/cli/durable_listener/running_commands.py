"""Keeps the commands of two listeners apart: a listener that was killed may leave commands that still end."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from ringback.cli.durable_listener import command_guard
from ringback.cli.durable_listener.state_file import open_lock
from ringback.cli.file_locks import LOOK_AGAIN_SECONDS, try_lock

GRACE_SECONDS: Final = 10.0
"""From SIGTERM to SIGKILL: the grace time of common supervisors."""


class RunningCommands:
    """The process groups of the commands that run. A guard process ends them when this process is killed."""

    def __init__(self, lock: int, grace_seconds: float) -> None:
        self._lock = lock
        self._grace_seconds = grace_seconds
        self._group_ids: set[int] = set()
        self._guard: Process | None = None
        self._starting = asyncio.Lock()

    async def add(self, group_id: int) -> None:
        """Name the group to the guard. Raises `OSError` if no guard can be started."""
        self._group_ids.add(group_id)
        async with self._starting:
            if self._guard is None or self._guard.returncode is not None:
                self._guard = await self._start_guard()
                for running in self._group_ids:
                    self._write_line(f"+{running}\n")
        self._write_line(f"+{group_id}\n")

    def remove(self, group_id: int) -> None:
        self._group_ids.discard(group_id)
        self._write_line(f"-{group_id}\n")

    async def close(self) -> None:
        """End the guard, and the commands that were not removed."""
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            await self._guard.wait()

    async def _start_guard(self) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", command_guard.__file__, str(self._grace_seconds)),
            stdin=PIPE,
            stdout=DEVNULL,
            pass_fds=(self._lock,),
            start_new_session=True,  # Ctrl-C reaches the listener only
        )

    def _write_line(self, line: str) -> None:
        """The line is in the pipe when this returns: asyncio writes at once if nothing waits to be written."""
        if self._guard is not None and self._guard.stdin is not None:
            with suppress(ConnectionError):  # the guard was killed: the next command starts another
                self._guard.stdin.write(line.encode())


@asynccontextmanager
async def open_running_commands(
    state: Path, *, stop: asyncio.Event, report: Callable[[str], None], grace_seconds: float = GRACE_SECONDS
) -> AsyncGenerator[RunningCommands]:
    """Wait until the commands of an earlier listener with this state file have ended, or until `stop` is set.

    The guard inherits the lock, so the lock is free when the earlier listener and its guard have ended.
    """
    with open_lock(state, "commands") as lock:
        await _wait_for_lock(lock, stop, report)
        commands = RunningCommands(lock, grace_seconds)
        try:
            yield commands
        finally:
            await commands.close()


async def _wait_for_lock(lock: int, stop: asyncio.Event, report: Callable[[str], None]) -> None:
    if try_lock(lock):
        return
    report(f"Waiting for a command of the earlier listener, which has up to {GRACE_SECONDS:g} s to end.")
    while not stop.is_set() and not try_lock(lock):
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                await stop.wait()
