"""Finds the running service, or starts one, detached from this process."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ringback.cli.embedded_service.paths import FILE_MODE, ServicePaths
from ringback.cli.embedded_service.runtime_file import RunningService, read_running_service, remove_runtime_file
from ringback.cli.file_locks import LOOK_AGAIN_SECONDS, is_locked, open_lock_file, read_process_id, wait_for_lock
from ringback.cli.output import TRY_AGAIN, strip_control_characters
from ringback.domain.clock import Clock

START_SECONDS: Final = 40.0
"""From the start of a process until it listens, on a busy machine: importing the service takes 3 s of CPU. Below the 45 s for
which the bridge waits."""
LOG_TAIL_BYTES: Final = 4096
"""The end of the log, which says why a service did not start."""
REASON_LENGTH_MAX: Final = 600
SERVICE_COMMAND: Final = (sys.executable, "-P", "-m", "ringback", "mcp-service")
"""-P: the folder in which a client starts commands may have a module named `ringback`, and is not searched for one."""


class ServiceNotStarted(Exception):
    """No service could be started. The text says why, and what to do."""

    def __init__(self, reason: str, *, is_passing: bool) -> None:
        super().__init__(reason)
        self.is_passing = is_passing
        """Whether another attempt may succeed without a change."""


class ServiceStarter:
    def __init__(
        self,
        paths: ServicePaths,
        *,
        clock: Clock,
        environment: Mapping[str, str],
        command: Sequence[str] = SERVICE_COMMAND,
    ) -> None:
        self._paths = paths
        self._clock = clock
        self._environment = environment
        self._command = command
        self._lock = asyncio.Lock()
        self._process_id: int | None = None
        """The service that this process started."""

    @property
    def log_path(self) -> Path:
        return self._paths.log

    def find_running(self) -> RunningService | None:
        return read_running_service(self._paths)

    async def ensure_running(self) -> RunningService:
        """The running service; starts one if there is none. Raises `ServiceNotStarted`."""
        if (running := self.find_running()) is not None:
            return running
        async with self._lock:
            try:
                self._paths.create_folder()
                return await self._find_or_start()
            except OSError as error:
                place = error.filename or self._paths.folder  # a lock that its file system does not have names no file
                raise ServiceNotStarted(f"{place}: {error.strerror}.", is_passing=False) from None

    async def _find_or_start(self) -> RunningService:
        ends_at = self._clock.monotonic() + START_SECONDS
        with open_lock_file(self._paths.start_lock) as lock:
            await wait_for_lock(lock, clock=self._clock, timeout_seconds=START_SECONDS)
            log_begins_at = self._measure_log()
            while self._clock.monotonic() < ends_at:
                if (running := self.find_running()) is not None:
                    return running
                if not is_locked(self._paths.lock) and not self._is_starting(log_begins_at):
                    remove_runtime_file(self._paths)  # it is that of a service that was killed
                    self._process_id = self._start_process()
                await self._clock.sleep(LOOK_AGAIN_SECONDS)
        raise ServiceNotStarted(self._describe_slow_start(), is_passing=True)

    def _describe_slow_start(self) -> str:
        described = f"The service does not listen after {START_SECONDS:g} s. Its log: {self._paths.log}"
        if (process_id := read_process_id(self._paths.lock)) is None:
            return described
        return f"{described}. If it stays so, end its process: kill -9 {process_id}"

    def _is_starting(self, log_begins_at: int) -> bool:
        """Whether the process that this one started still runs; raises `ServiceNotStarted` if it has failed."""
        if self._process_id is None or (code := _poll_process(self._process_id)) is None:
            return self._process_id is not None
        self._process_id = None
        if code <= 0 or code == TRY_AGAIN:  # it ended after it had listened, was killed, or another one was faster
            return False
        raise ServiceNotStarted(
            f"The service could not start. {self._read_reason(log_begins_at)} Its log: {self._paths.log}",
            is_passing=False,
        )

    def _start_process(self) -> int:
        """Start it in a session of its own, so that no signal and no closed terminal of a client reaches it."""
        streams = (
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, self._paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        )
        return os.posix_spawn(
            self._command[0], list(self._command), self._environment, file_actions=streams, setsid=True
        )

    def _measure_log(self) -> int:
        try:
            return self._paths.log.stat().st_size
        except FileNotFoundError:
            return 0

    def _read_reason(self, begins_at: int) -> str:
        """The last error that the service printed."""
        try:
            with self._paths.log.open("rb") as file:
                file.seek(max(begins_at, self._measure_log() - LOG_TAIL_BYTES))
                text = file.read(LOG_TAIL_BYTES).decode(errors="replace")
        except OSError:
            return ""
        error = text[text.rfind("Error: ") :] if "Error: " in text else text
        return strip_control_characters(" ".join(error.split()))[-REASON_LENGTH_MAX:]


def _poll_process(process_id: int) -> int | None:
    """The exit code of a child of this process, negative for a signal; None while it runs."""
    try:
        ended, status = os.waitpid(process_id, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if ended else None
