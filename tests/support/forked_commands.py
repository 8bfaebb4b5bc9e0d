"""The command `ringback` in its own process, without the seconds of CPU for importing the service.

    async with forked_command("serve", "--dev", folder=tmp_path) as process:
        async for line in process.stderr: ...
    printed = await run_forked_program("print(1)", folder=tmp_path, environment=os.environ)

The process is forked from the server of `tests.support.processes`, with its own memory, sockets, signals, standard streams and
exit code. It has the interface of `asyncio.subprocess.Process`. test_stdio_bridge tests that `python -m ringback` starts it.
"""

import asyncio
import multiprocessing
import os
import runpy
import signal
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from ringback.__main__ import main
from tests.support.limits import WAIT_SECONDS
from tests.support.processes import FORK_SERVER, open_stream


@dataclass(slots=True)
class ForkedCommand:
    process: ForkServerProcess
    stdin: StreamWriter
    stdout: StreamReader
    stderr: StreamReader
    _stdout_pipe: asyncio.ReadTransport

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.process.terminate()

    @property
    def is_stdout_paused(self) -> bool:
        """Whether so much of its output waits to be read that no more is taken from the pipe."""
        return not self._stdout_pipe.is_reading()

    def close_stdout(self) -> None:
        """Close this end of its standard output."""
        self._stdout_pipe.close()

    async def wait(self) -> int:
        """Wait for the end of the process, and return its exit code. Callers limit the wait."""
        while self.process.exitcode is None:
            await asyncio.to_thread(self.process.join, WAIT_SECONDS)
        return self.process.exitcode

    async def communicate(self, sent: bytes = b"") -> tuple[bytes, bytes]:
        """Send this, end the input, wait for the end of the process, and return the rest of both outputs."""
        self.stdin.write(sent)
        self.stdin.close()
        out, err, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), self.wait())
        return out, err


@asynccontextmanager
async def running_forked_command(
    *arguments: str, folder: Path, environment: Mapping[str, str]
) -> AsyncGenerator[ForkedCommand]:
    """Run `ringback …` in this folder with exactly this environment; the end of the context kills it."""
    async with _running_fork(_run_command, arguments, folder, environment) as command:
        yield command


async def run_forked_program(code: str, *, folder: Path, environment: Mapping[str, str], stdin: bytes = b"") -> str:
    """What this program prints, as `python -c` runs it; fails if its exit code is not 0."""
    async with _running_fork(_run_program, (code,), folder, environment) as program, asyncio.timeout(WAIT_SECONDS):
        out, error = await program.communicate(stdin)
    assert program.returncode == 0, error.decode()
    return out.decode()


@asynccontextmanager
async def running_forked_script(
    script: Path, *arguments: str, folder: Path, environment: Mapping[str, str]
) -> AsyncGenerator[ForkedCommand]:
    """Run a file, as `python script …` does; the end of the context kills it."""
    async with _running_fork(_run_script, (str(script), *arguments), folder, environment) as command:
        yield command


@asynccontextmanager
async def _running_fork(
    run: Callable[[tuple[str, ...]], None], arguments: tuple[str, ...], folder: Path, environment: Mapping[str, str]
) -> AsyncGenerator[ForkedCommand]:
    read_stdin, write_stdin = multiprocessing.Pipe(duplex=False)
    readers, writers = zip(*(multiprocessing.Pipe(duplex=False) for _ in range(2)), strict=True)
    process = FORK_SERVER.Process(
        target=_run, args=(run, arguments, str(folder), dict(environment), read_stdin, *writers)
    )
    await asyncio.to_thread(process.start)
    for passed in (read_stdin, *writers):
        passed.close()
    stdin = await _open_stream_writer(write_stdin)
    (stdout, pipe), (stderr, _) = [await open_stream(reader) for reader in readers]
    for reader in readers:
        reader.close()
    command = ForkedCommand(process, stdin, stdout, stderr, pipe)
    try:
        yield command
    finally:
        process.kill()
        await command.communicate()


async def _open_stream_writer(writer: Connection) -> StreamWriter:
    """A stream writer on the pipe, which it closes."""
    loop = asyncio.get_running_loop()
    with writer:
        pipe = os.fdopen(os.dup(writer.fileno()), "wb")
    transport, protocol = await loop.connect_write_pipe(lambda: asyncio.StreamReaderProtocol(StreamReader()), pipe)
    return StreamWriter(transport, protocol, None, loop)


def _run(
    run: Callable[[tuple[str, ...]], None],
    arguments: tuple[str, ...],
    folder: str,
    environment: dict[str, str],
    stdin: Connection,
    stdout: Connection,
    stderr: Connection,
) -> None:
    os.dup2(stdin.fileno(), 0)
    stdin.close()
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    for writer, stream in ((stdout, sys.stdout), (stderr, sys.stderr)):
        os.dup2(writer.fileno(), stream.fileno())
        writer.close()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    run(arguments)


def _run_command(arguments: tuple[str, ...]) -> None:
    sys.argv = ["ringback", *arguments]
    main()


def _run_script(arguments: tuple[str, ...]) -> None:
    sys.argv = list(arguments)
    runpy.run_path(arguments[0], run_name="__main__")


def _run_program(arguments: tuple[str, ...]) -> None:
    (code,) = arguments
    sys.argv = ["-c"]
    exec(compile(code, "<program>", "exec"), {"__name__": "__main__"})  # noqa: S102 - a test's own program
