"""Child processes of stdio upstreams: started so that they die with the service, and stopped with all their descendants.

The kernel's parent-death signal (Linux) kills a child when the service dies. The kernel sends it when the *thread* that forked
ends; `Popen` forks in the thread of the event loop, which is the main thread while the service runs. `setpriv` (util-linux)
sets the signal between fork and exec: a `preexec_fn` of Python is not safe with other threads, and a Python wrapper costs 19 ms
a start, `setpriv` 1 ms (measured). Without `setpriv` (logged once) and on other systems, the children of a killed service run
until they notice the end of their input, or until the next start (`child_records`).

Each child leads a session of its own, so that signals reach its whole process group, and signals of the terminal do not.

The service reads the standard error of its children and logs it at debug level. An unread pipe would block the child when it is
full, and inherited standard error would mix texts of the child, perhaps with user data, into the log of the service. The end
of what a child wrote that could not be used at all is kept for the operator (`error_output`).
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
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Final, TextIO

from mcp.client.stdio import get_default_environment

from ringback.log_context import leave_log_context
from ringback.upstreams.transports.child_records import (
    MARK_VARIABLE,
    ChildRecord,
    ChildRecords,
    ProcessStatus,
    read_process_status,
    signal_processes,
)
from ringback.upstreams.transports.error_output import ErrorOutput

log = logging.getLogger(__name__)

STDERR_EVENT: Final = "upstream.stderr"
"""The message of a log record whose `text` a child has written to its standard error."""
STDERR_TEXT_BYTES_MAX: Final = 2000
"""Logged bytes of one chunk of output; the rest is dropped."""
STDERR_PAUSE_SECONDS: Final = 0.01
"""The pause after a full pipe. It limits a child to 6 MB/s of error output, which the event loop can handle."""
STDERR_END_SECONDS: Final = 0.2
"""How long the last output of a child is waited for: it often says why the child has ended. A process that the child has
started may keep the pipe open for longer."""
READ_BYTES: Final = 65536
"""The capacity of a Linux pipe."""
STOP_TIMEOUT_SECONDS: Final = 2.0
"""For each step of stopping a child: end of input, and SIGTERM to all that is left. As the SDK's. SIGKILL takes no time."""
_POLL_SECONDS: Final = 0.01
_SETPRIV: Final = "setpriv"
_DEATH_SIGNAL_LOCK: Final = threading.Lock()
_PROBE_TIMEOUT_SECONDS: Final = 5.0
"""The probe takes 1 ms; the timeout keeps a hanging one from blocking the start of an upstream."""


@asynccontextmanager
async def log_stderr(upstream: str, output: ErrorOutput) -> AsyncGenerator[TextIO]:
    """Open a file for the standard error of children. Until the context ends, it is logged, and `output` has its end."""
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader(limit=READ_BYTES)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    logging_task = asyncio.create_task(_log_chunks(upstream, reader, output))
    try:
        with os.fdopen(write_end, "w", encoding="utf-8") as errlog:
            yield errlog
    finally:
        try:
            await asyncio.wait([logging_task], timeout=STDERR_END_SECONDS)
        finally:
            logging_task.cancel()  # a scope of anyio cancels each wait in it, so nothing is awaited here
            pipe.close()


async def _log_chunks(upstream: str, reader: asyncio.StreamReader, output: ErrorOutput) -> None:
    leave_log_context()  # the child may serve many calls
    while chunk := await reader.read(READ_BYTES):
        output.append(chunk)
        if log.isEnabledFor(logging.DEBUG):
            text = chunk[:STDERR_TEXT_BYTES_MAX].decode(errors="replace").rstrip()
            log.debug(STDERR_EVENT, extra={"upstream": upstream, "text": text})
        if len(chunk) == READ_BYTES:
            await asyncio.sleep(STDERR_PAUSE_SECONDS)


class ChildProcess:
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipes: tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.ReadTransport],
        record: ChildRecord,
        child_records: ChildRecords,
    ) -> None:
        self.stdin, self.stdout, self._stdout_transport = pipes
        self.chunks_received = 0
        """The number of chunks read from the child. A child with new chunks runs."""
        self.is_stalled = False
        """Whether the child has not read its input for `child_input.WRITE_TIMEOUT_SECONDS`."""
        self.exit_code: int | None = None
        """Of a child that ended by itself, or at the end of its input; known after `stop`. A signal has a negative number."""
        self._process = process
        self._record = record
        self._child_records = child_records

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def read_status(self) -> ProcessStatus | None:
        return read_process_status(self.pid) if self.is_running else None

    def kill(self) -> None:
        """Kill the child at once. `stop` ends its descendants."""
        _signal_group(self._process, signal.SIGKILL)

    async def end(self) -> None:
        """End the child, by force if it does not end by itself. `stop` ends its descendants."""
        _signal_group(self._process, signal.SIGTERM)
        if not await _poll_until(_get_deadline(), self._has_exited):
            self.kill()

    async def stop(self) -> None:
        """Stop the child and its descendants in bounded time: end of input, SIGTERM, SIGKILL."""
        self.stdin.close()
        await _poll_until(_get_deadline(), self._has_exited)
        self.exit_code = self._process.returncode
        try:
            if not await self._terminate():
                _signal_group(self._process, signal.SIGKILL)
                await asyncio.to_thread(signal_processes, self._record)
                await _poll_until(_get_deadline(), self._has_exited)
            self._child_records.remove(self._record)
        finally:
            self._close_pipes()

    def _close_pipes(self) -> None:
        """A process that the child has started may hold them, and read nothing of what is left to write."""
        self._stdout_transport.close()
        if self.stdin.transport.get_write_buffer_size():
            self.stdin.transport.abort()

    def _has_exited(self) -> bool:
        return not self.is_running

    async def _terminate(self) -> bool:
        """Send SIGTERM, once to a child that has not exited, and to all its descendants; False if some still run in the end."""
        deadline = _get_deadline()
        _signal_group(self._process, signal.SIGTERM)
        if not await _poll_until(deadline, self._has_exited):
            return False
        while await asyncio.to_thread(signal_processes, self._record, signal.SIGTERM):
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True


async def start_child_process(
    command: str,
    args: tuple[str, ...],
    *,
    env: Mapping[str, str],
    cwd: str | Path | None,
    errlog: IO[str],
    child_records: ChildRecords,
) -> ChildProcess:
    """Raises OSError. `env` is added to the few variables that are safe to inherit."""
    mark = secrets.token_hex(8)
    environment = {**get_default_environment(), **env, MARK_VARIABLE: mark}
    _require_executable(command, cwd, environment.get("PATH"))
    prefix = await asyncio.to_thread(death_signal_prefix)
    process = _start_process([*prefix, command, *args], environment, cwd, errlog)
    try:
        record = child_records.add(process.pid, mark)
    except BaseException:
        await _abandon(process)  # without a record, the next start could not find it
        raise
    try:
        pipes = await _connect_pipes(process)
    except BaseException:
        child_records.remove(record)
        await _abandon(process)
        raise
    return ChildProcess(process, pipes, record, child_records)


def _start_process(
    command: Sequence[str], environment: Mapping[str, str], cwd: str | Path | None, errlog: IO[str]
) -> subprocess.Popen[bytes]:
    """Start the child with three open files.

    `uvloop.create_subprocess_exec` (0.23) leaves the child a second copy of each pipe. A child that closes its output then
    goes on without the service noticing, and its calls wait for their deadlines.
    """
    return subprocess.Popen(  # noqa: S603 - the operator's configuration names the command
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errlog,
        env=environment,
        cwd=cwd,
        start_new_session=True,
    )


async def _connect_pipes(
    process: subprocess.Popen[bytes],
) -> tuple[asyncio.StreamWriter, asyncio.StreamReader, asyncio.ReadTransport]:
    """The child's input, and its output with the transport that closes it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=READ_BYTES)
    read_transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
    try:
        # A writer drains through a protocol of streams, and a `StreamReaderProtocol` is the public one.
        write_transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), process.stdin
        )
    except BaseException:
        read_transport.close()
        raise
    return asyncio.StreamWriter(write_transport, protocol, None, loop), reader, read_transport


async def _abandon(process: subprocess.Popen[bytes]) -> None:
    """Kill a child that is not used, and close its pipes: a full disk refuses the record of each new start."""
    _signal_group(process, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    await asyncio.shield(asyncio.to_thread(process.wait))  # also reaped if the caller is cancelled


def death_signal_prefix() -> tuple[str, ...]:
    """Call `probe_death_signal_prefix` once, although many threads start children at the same time."""
    with _DEATH_SIGNAL_LOCK:
        return probe_death_signal_prefix()


@functools.cache
def probe_death_signal_prefix() -> tuple[str, ...]:
    """The command prefix that sets the parent-death signal; empty if the system does not support it."""
    if sys.platform != "linux":
        return ()
    prefix = (shutil.which(_SETPRIV) or "", "--pdeathsig", "KILL", "--")
    if prefix[0] and _is_usable_prefix(prefix):
        return prefix
    log.warning("children.not_tied", extra={"missing": f"{_SETPRIV} of util-linux"})
    return ()


def _is_usable_prefix(prefix: tuple[str, ...]) -> bool:
    """Run the prefix once: the `setpriv` of Busybox has no parent-death signal, and a sandbox may reject the system call."""
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, check=False, timeout=_PROBE_TIMEOUT_SECONDS)  # noqa: S603 - a fixed command
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def _require_executable(command: str, cwd: str | Path | None, path: str | None) -> None:
    """Raise the error that the command would raise without the prefix."""
    if os.sep in command:
        file_path = Path(cwd or ".") / command
        if not file_path.exists():
            raise FileNotFoundError(command)
        if not os.access(file_path, os.X_OK):
            raise PermissionError(command)
    elif shutil.which(command, path=path) is None:
        raise FileNotFoundError(command)


def _get_deadline() -> float:
    """The end of a step that begins now."""
    return asyncio.get_running_loop().time() + STOP_TIMEOUT_SECONDS


async def _poll_until(deadline: float, done: Callable[[], bool]) -> bool:
    while not done():
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the process group. Its id cannot be reused before the child is waited for."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
