"""Ringback as a real process, for tests that kill it.

Each process is forked from `multiprocessing`'s forkserver, which has imported everything once. That saves a second for each of
hundreds of processes.
"""

import asyncio
import importlib
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.databases import database_url, needed_settings
from tests.support.limits import WAIT_SECONDS

_LISTENING: Final = re.compile(rb"service\.listening .*url=(\S+)")
FORK_SERVER: Final = multiprocessing.get_context("forkserver")
FORK_SERVER.set_forkserver_preload(
    [
        *("tests.crash.crashing_service", "tests.crash.extension_server", "tests.support.forked_commands"),
        "tests.crash.receiving_process",
        *("scripts.chaos_runs.service", "scripts.chaos_runs.receiver", "scripts.chaos_runs.upstreams"),
        "scripts.soak_runs.hostile_clients",
        *(
            "ringback.cli.commands.serve",
            "ringback.cli.commands.listen",
            "ringback.cli.listening",
            "ringback.cli.commands.call",
            "ringback.cli.commands.keys",
        ),
        *("ringback.cli.commands.mcp", "ringback.cli.stdio_bridge.bridge"),
        "tests.support.forked_setup",  # the last
    ]
)
"""Its list of modules is one for the whole process: another list would replace it."""


@dataclass(slots=True)
class ServiceProcess:
    process: ForkServerProcess
    url: str
    output: list[str] = field(default_factory=list[str])

    def send_signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    async def kill(self) -> None:
        self.process.kill()
        await self.wait_until_dead()

    async def wait_until_dead(self) -> int:
        """Wait for the end of the process, and return its exit code, -9 after SIGKILL."""
        await asyncio.to_thread(self.process.join, WAIT_SECONDS)
        assert self.process.exitcode is not None
        return self.process.exitcode


@asynccontextmanager
async def running_process(
    *, module: str = "tests.crash.crashing_service", **spec: Any
) -> AsyncGenerator[ServiceProcess]:
    """Run `module.main(spec)` as a listening process; the end of the context kills it.

    It also gets the URL of the test's database for the `folder` that the spec names.
    """
    spec = {"database_url": database_url(Path(spec["folder"])), **needed_settings()} | spec
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = FORK_SERVER.Process(target=_run_module, args=(module, spec, dict(os.environ), writer))
    await asyncio.to_thread(process.start)
    writer.close()
    with reader:
        said, _ = await open_stream(reader)
        reading = None
        try:
            output: list[str] = []
            running = ServiceProcess(process, await _read_url(said, output), output)
            reading = asyncio.create_task(_read_output(said, output))
            yield running
        finally:
            process.kill()
            await asyncio.to_thread(process.join)
            if reading is not None:
                await reading


def _run_module(module: str, spec: dict[str, Any], environment: dict[str, str], writer: Connection) -> None:
    os.dup2(writer.fileno(), sys.stderr.fileno())
    writer.close()
    os.environ.clear()
    os.environ.update(environment)
    importlib.import_module(module).main(spec)


async def open_stream(reader: Connection) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """A stream reader on a copy of the pipe, and what closes the copy."""
    said = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(said)
    pipe = os.fdopen(os.dup(reader.fileno()), "rb")
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
    return said, transport


async def _read_url(said: asyncio.StreamReader, output: list[str]) -> str:
    async with asyncio.timeout(WAIT_SECONDS):
        async for line in said:
            output.append(line.decode())
            if found := _LISTENING.search(line):
                return found.group(1).decode()
    raise AssertionError(f"the service did not start: {''.join(output)}")


async def _read_output(said: asyncio.StreamReader, output: list[str]) -> None:
    async for line in said:
        output.append(line.decode())  # noqa: PERF401 - read by the test while it grows


async def post_unless_killed(url: str, path: str, body: dict[str, Any], **headers: str) -> dict[str, Any] | None:
    """The response to a POST, or None if the service died before it."""
    try:
        async with httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS) as client:
            response = await client.post(path, json=body, headers=headers)
    except httpx.TransportError:
        return None
    assert response.is_success, response.text
    return dict(response.json())


def is_running(process_id: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
