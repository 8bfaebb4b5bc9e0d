"""Processes that are started again whenever they have died, and what is done to them meanwhile.

Each is forked from a server that has imported everything once (`multiprocessing`'s forkserver), which saves a second for every
start. It is a process like any other: its own memory, sockets, locks and death.
"""

import asyncio
import fcntl
import importlib
import multiprocessing
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

START_SECONDS: Final = 60.0
"""Half a second on a free machine; only one that starts nothing any more takes this long."""
POLL_SECONDS: Final = 0.02
FREEZE_SECONDS: Final = 0.3
"""For so long at most a service that stops itself stays stopped."""
_FORK_SERVER: Final = multiprocessing.get_context("forkserver")
_FORK_SERVER.set_forkserver_preload(["scripts.chaos_runs.service", "scripts.chaos_runs.receiver"])

LAST_LOG_LINES: Final = 2000
"""Characters of a log, for whoever has to find out."""

Spec = dict[str, Any]
"""What `main` or another function of a module is called with."""


class UnexpectedExit(Exception):
    """A process that nobody killed is gone: the run says nothing, and whoever reads its last words much."""


@dataclass(slots=True, kw_only=True)
class ManagedProcess:
    """A process, again and again: `entry` is `module:function`."""

    name: str
    entry: str
    spec: Spec
    folder: Path
    start_specs: list[tuple[ServiceRun, Spec]] = field(default_factory=list[tuple[ServiceRun, Spec]])
    """The first lives, and what is different in each; after them it lives on."""
    downtime_seconds: float = 0.0
    """Before it is started again."""
    kills: int = 0
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
        """Live until cancelled; raises `EndedByItself`."""
        for life, different in self.start_specs:
            await self._run_once(self.spec | different, life)
        while True:
            await self._run_once(self.spec, None)

    async def wait_until_listening(self) -> None:
        async with asyncio.timeout(START_SECONDS):
            while not _listens(self.port):  # noqa: ASYNC110 - another process rings no bell
                await asyncio.sleep(POLL_SECONDS)

    def send_signal(self, number: signal.Signals) -> None:
        """Raise a signal, if it is alive just now."""
        if self.process is not None and self.process.pid is not None and self.process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    async def _run_once(self, spec: Spec, life: ServiceRun | None) -> None:
        process = _FORK_SERVER.Process(target=_enter, args=(self.entry, spec, self.log), daemon=True)
        await asyncio.to_thread(process.start)
        self.process = process
        try:
            with notify_exit(process) as gone:
                await self._wait_for_exit(gone, life)
        finally:
            process.kill()
            process.join()
        if process.exitcode != -signal.SIGKILL:
            last_words = self.log.read_text(encoding="utf-8", errors="replace")[-LAST_LOG_LINES:]
            raise UnexpectedExit(f"{self.name} ended with exit code {process.exitcode}. Its last words: {last_words}")
        self.kills += 1
        await asyncio.sleep(self.downtime_seconds)

    async def _wait_for_exit(self, gone: asyncio.Event, life: ServiceRun | None) -> None:
        if life is None:
            await gone.wait()
            return
        ends_at = asyncio.get_running_loop().time() + life.downtime_seconds
        while not gone.is_set() and (left := ends_at - asyncio.get_running_loop().time()) > 0:
            await wait_first(gone.wait(), timeout_seconds=min(left, FREEZE_SECONDS))
            if life.step is not None and life.step.stops:
                self.send_signal(signal.SIGCONT)


@contextmanager
def notify_exit(process: ForkServerProcess) -> Generator[asyncio.Event]:
    """Set when the process is no more."""
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class ManagedChild:
    """A process that the service started, by the file in which it keeps its number, locked, as long as it lives."""

    pid_file: Path

    def send_signal(self, number: signal.Signals) -> bool:
        """Raise a signal; whether there was anybody to raise it against."""
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
