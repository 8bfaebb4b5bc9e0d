"""Processes that are restarted when they have died, and the faults injected into them.

Each process is forked from the server of `tests.support.processes`, which has imported everything once. That saves a second for
every start.
"""

import asyncio
import fcntl
import importlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

from ringback.waits import wait_first
from scripts.chaos_runs.plan import ServiceRun
from tests.support.processes import FORK_SERVER

START_SECONDS: Final = 300.0
"""For a start, which takes half a second on an idle machine, and more than a minute beside twenty busy processes."""
POLL_SECONDS: Final = 0.02
RESTART_SECONDS: Final = 0.5
"""Between two starts of a node without a database."""
FREEZE_SECONDS: Final = 0.3
"""The longest stop of a service that stops itself."""

LOG_CHARACTERS_QUOTED: Final = 2000
"""Characters of a log that an error message quotes."""

Spec = dict[str, Any]
"""The arguments of the process's entry function."""


class UnexpectedExit(Exception):
    """A process exited without a kill, so the run is invalid."""


@dataclass(slots=True, kw_only=True)
class ManagedProcess:
    """A process that is restarted whenever it dies. `entry` is `module:function`."""

    name: str
    entry: str
    spec: Spec
    folder: Path
    start_specs: list[tuple[ServiceRun, Spec]] = field(default_factory=list[tuple[ServiceRun, Spec]])
    """The first runs, with the arguments of each. The run after them does not end."""
    downtime_seconds: float = 0.0
    """Before a restart."""
    may_fail_to_start: bool = False
    """Whether it may exit by itself, as a node does whose database is down; an operator's supervisor starts it again then."""
    kills: int = 0
    failed_starts: int = 0
    process: ForkServerProcess | None = None

    @property
    def port(self) -> int:
        return self.spec["port"]

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def keep_running(self) -> None:
        """Keep the process running until cancelled; raises `UnexpectedExit`."""
        for life, different in self.start_specs:
            await self._run_once(self.spec | different, life)
        while True:
            await self._run_once(self.spec, None)

    async def wait_until_listening(self) -> None:
        async with asyncio.timeout(START_SECONDS):
            while not _listens(self.port):  # noqa: ASYNC110 - another process cannot set an event
                await asyncio.sleep(POLL_SECONDS)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process is alive."""
        if self.process is not None and self.process.pid is not None and self.process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    async def _run_once(self, spec: Spec, life: ServiceRun | None) -> None:
        process = FORK_SERVER.Process(target=_enter, args=(self.entry, spec, self.log), daemon=True)
        await asyncio.to_thread(process.start)
        self.process = process
        try:
            with notify_exit(process) as gone:
                await self._wait_for_exit(gone, life)
        finally:
            process.kill()
            process.join()
        if self._has_failed_to_start(process):
            self.failed_starts += 1
            await asyncio.sleep(RESTART_SECONDS)
            return
        if process.exitcode != -signal.SIGKILL:
            last_words = self.log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARACTERS_QUOTED:]
            raise UnexpectedExit(
                f"{self.name} ended with exit code {process.exitcode}. Its log ends with: {last_words}"
            )
        self.kills += 1
        await asyncio.sleep(self.downtime_seconds)

    def _has_failed_to_start(self, process: ForkServerProcess) -> bool:
        """Whether it said in a line why it does not start. A process that was killed at once has no log."""
        if not self.may_fail_to_start or process.exitcode != 1:
            return False
        return b"Traceback" not in self.log.read_bytes()[-LOG_CHARACTERS_QUOTED:]

    async def _wait_for_exit(self, gone: asyncio.Event, life: ServiceRun | None) -> None:
        if life is None:
            await gone.wait()
            return
        ends_at = asyncio.get_running_loop().time() + life.lifetime_seconds
        while not gone.is_set() and (left := ends_at - asyncio.get_running_loop().time()) > 0:
            await wait_first(gone.wait(), timeout_seconds=min(left, FREEZE_SECONDS))
            if life.step is not None and life.step.stops:
                self.send_signal(signal.SIGCONT)


@contextmanager
def notify_exit(process: ForkServerProcess) -> Generator[asyncio.Event]:
    """Set when the process has ended."""
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()

    def note() -> None:
        loop.remove_reader(process.sentinel)
        gone.set()

    loop.add_reader(process.sentinel, note)
    try:
        yield gone
    finally:
        loop.remove_reader(process.sentinel)


def _enter(entry: str, spec: Spec, log: Path) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    module, _, name = entry.partition(":")
    main: Callable[..., None] = getattr(importlib.import_module(module), name)
    main(**spec)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True, slots=True)
class ManagedChild:
    """A child process of the service, found by its PID file, which it locks while it lives."""

    pid_file: Path

    def send_signal(self, number: signal.Signals) -> bool:
        """Send a signal. Returns whether the process was alive."""
        if not self.pid_file.exists():
            return False
        with self.pid_file.open("r+", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read()
            else:
                return False
        if not text:
            return False
        with suppress(ProcessLookupError):
            os.kill(int(text), number)
        return True
