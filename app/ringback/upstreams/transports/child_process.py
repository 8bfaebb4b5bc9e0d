"""The standard error of stdio upstreams: read, bounded, into our log at debug level, never onto our own standard error.

A child that nobody reads blocks as soon as the pipe is full; one that writes what it likes onto our standard error mixes its
words, and perhaps its users' data, into ours.
"""

import asyncio
import contextlib
import functools
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Final, TextIO, cast

from mcp.client.stdio import get_default_environment

from ringback.upstreams.transports.child_records import (
    MARK_VARIABLE,
    ChildRecord,
    ChildRecords,
    ProcessStatus,
    read_process_status,
    signal_processes,
)

log = logging.getLogger(__name__)

STDERR_TEXT_BYTES_MAX: Final = 2000
"""What is kept of one piece of output; the rest of it is read and dropped."""
STDERR_PAUSE_SECONDS: Final = 0.01
"""After a whole pipe of it. A child that writes more than 6 MB/s of errors waits, and the event loop hardly notices."""
_READ_BYTES: Final = 65536  # a Linux pipe holds as much


@asynccontextmanager
async def log_stderr(upstream: str) -> AsyncGenerator[TextIO]:
    """A file to start children with; what they write to it is logged until the context is left."""
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader(limit=_READ_BYTES)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    logging_task = asyncio.create_task(_log_chunks(upstream, reader))
    try:
        with os.fdopen(write_end, "w", encoding="utf-8") as errlog:
            yield errlog
    finally:
        logging_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await logging_task
        pipe.close()


async def _log_chunks(upstream: str, reader: asyncio.StreamReader) -> None:
    while chunk := await reader.read(_READ_BYTES):
        if log.isEnabledFor(logging.DEBUG):
            text = chunk[:STDERR_TEXT_BYTES_MAX].decode(errors="replace").rstrip()
            log.debug("upstream.stderr", extra={"upstream": upstream, "text": text})
        if len(chunk) == _READ_BYTES:
            await asyncio.sleep(STDERR_PAUSE_SECONDS)


# A child process of this service: started so that it cannot outlive it, and ended with everything that it has started.
#
# Its death is tied to ours by the kernel's parent-death signal (Linux). The signal comes when the *thread* that forked ends, and
# asyncio forks in the thread of its event loop, which is the process's main one while the service runs. `setpriv` (util-linux)
# sets it between fork and exec: a `preexec_fn` of Python's is not safe beside other threads, and a Python wrapper costs 19 ms for
# each start, `setpriv` 1 (measured). Without `setpriv`, of which the log then tells once, and on other systems, a killed service
# leaves its children behind until they notice the end of their input, or until its next start (`runner.child_records`).
#
# Each child is the leader of a session of its own, so that signals reach its process group and none of the terminal's reach it.


READ_BYTES: Final = 65536
"""A Linux pipe holds as much."""
STOP_TIMEOUT_SECONDS: Final = 2.0
"""For each step of ending a child: after the end of its input, after SIGTERM, after SIGKILL. The SDK's own patience."""
_POLL_SECONDS: Final = 0.01
_SETPRIV: Final = "setpriv"
_DEATH_SIGNAL_LOCK: Final = threading.Lock()
_PROBE_TIMEOUT_SECONDS: Final = 5.0
"""It takes 1 ms; one that hangs must not keep an upstream from being started."""


class ChildProcess:
    def __init__(self, process: asyncio.subprocess.Process, record: ChildRecord, child_records: ChildRecords) -> None:
        self.stdin = cast("asyncio.StreamWriter", process.stdin)
        self.stdout = cast("asyncio.StreamReader", process.stdout)
        self.chunks_received = 0
        """How many times something came from it: a child that was heard since is alive."""
        self.is_stalled = False
        """Whether it has not read its input for a while."""
        self._process = process
        self._record = record
        self._child_records = child_records

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    def read_status(self) -> ProcessStatus | None:
        return read_process_status(self.pid) if self._process.returncode is None else None

    def kill(self) -> None:
        """End it at once; what it has started is ended when it is stopped."""
        _signal_group(self._process, signal.SIGKILL)

    async def stop(self) -> None:
        """End it and what it has started, in bounded time: end of input, SIGTERM, SIGKILL."""
        self.stdin.close()
        if not await self._wait_exit():
            _signal_group(self._process, signal.SIGTERM)
            if not await self._wait_exit():
                _signal_group(self._process, signal.SIGKILL)
                await self._wait_exit()
        try:
            if await self._has_leftovers(signal.SIGTERM):
                await asyncio.to_thread(signal_processes, self._record)
            self._child_records.remove(self._record)
        finally:
            _close_transport(self._process)

    async def _wait_exit(self) -> bool:
        """Not by `wait()`, which also waits for the end of pipes that a grandchild may hold."""
        return await _poll_until(STOP_TIMEOUT_SECONDS, lambda: self._process.returncode is not None)

    async def _has_leftovers(self, number: signal.Signals) -> bool:
        """Whether processes that it started go on, although they were sent this signal."""
        deadline = asyncio.get_running_loop().time() + STOP_TIMEOUT_SECONDS
        while await asyncio.to_thread(signal_processes, self._record, number):
            if asyncio.get_running_loop().time() >= deadline:
                return True
            await asyncio.sleep(_POLL_SECONDS)
        return False


async def start_child_process(
    command: str,
    args: tuple[str, ...],
    *,
    env: Mapping[str, str],
    cwd: str | Path | None,
    errlog: IO[str],
    child_records: ChildRecords,
) -> ChildProcess:
    """Raises OSError if it cannot be started. `env` comes on top of the few variables that are safe to hand on."""
    mark = secrets.token_hex(8)
    environment = {**get_default_environment(), **env, MARK_VARIABLE: mark}
    _require_executable(command, cwd, environment.get("PATH"))
    process = await asyncio.create_subprocess_exec(
        *await asyncio.to_thread(death_signal_prefix),
        command,
        *args,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errlog,
        env=environment,
        cwd=cwd,
        start_new_session=True,
        limit=READ_BYTES,
    )
    try:
        record = child_records.add(process.pid, mark)
    except BaseException:
        _signal_group(process, signal.SIGKILL)  # nobody would ever end it
        _close_transport(process)
        raise
    return ChildProcess(process, record, child_records)


def death_signal_prefix() -> tuple[str, ...]:
    """`find_tie`, once: many children may be started at the same time, each in a thread of its own."""
    with _DEATH_SIGNAL_LOCK:
        return probe_death_signal_prefix()


@functools.cache
def probe_death_signal_prefix() -> tuple[str, ...]:
    """What stands before a command so that it is killed when this thread ends; nothing where that cannot be had."""
    if sys.platform != "linux":
        return ()
    prefix = (shutil.which(_SETPRIV) or "", "--pdeathsig", "KILL", "--")
    if prefix[0] and _is_usable_prefix(prefix):
        return prefix
    log.warning("children.not_tied", extra={"missing": f"{_SETPRIV} of util-linux"})
    return ()


def _is_usable_prefix(prefix: tuple[str, ...]) -> bool:
    """Busybox has a `setpriv` that knows no parent-death signal, and a sandbox may refuse the system call."""
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, check=False, timeout=_PROBE_TIMEOUT_SECONDS)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def _require_executable(command: str, cwd: str | Path | None, path: str | None) -> None:
    """Raise what starting the command without anything before it would raise."""
    if os.sep in command:
        file_path = Path(cwd or ".") / command
        if not file_path.exists():
            raise FileNotFoundError(command)
        if not os.access(file_path, os.X_OK):
            raise PermissionError(command)
    elif shutil.which(command, path=path) is None:
        raise FileNotFoundError(command)


async def _poll_until(limit_seconds: float, done: Callable[[], bool]) -> bool:
    deadline = asyncio.get_running_loop().time() + limit_seconds
    while not done():
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To its process group, whose id cannot have been given out again while the child was not waited for."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _close_transport(process: asyncio.subprocess.Process) -> None:
    """Its transport stays open, with a warning later, while a grandchild holds a pipe; nothing public closes it."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with contextlib.suppress(PermissionError):
            transport.close()
