"""The command as a process: it drains when it is told to stop, records the truth, and shares its database with nobody."""

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.client import RingbackClient
from tests.support.commands import ForkedCommand, forked_command
from tests.support.engine import until
from tests.support.upstreams import WAIT_SECONDS, Stage, serving

START_SECONDS = 3 * WAIT_SECONDS
"""A cold start on a busy machine."""


@dataclass(slots=True)
class Process:
    process: ForkedCommand
    url: str = ""

    async def logged(self, event: str) -> dict[str, Any]:
        """The next line of the log that tells of this event."""
        async with asyncio.timeout(START_SECONDS):
            async for line in self.process.stderr:
                told = json.loads(line)
                if told["event"] == event:
                    return told
        raise AssertionError(f"The process ended without {event}.")

    async def readiness(self) -> int:
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
            return (await http.get(f"{self.url}/readyz")).status_code

    async def until_draining(self) -> None:
        async def is_draining() -> bool:
            return await self.readiness() == 503

        await until(is_draining)

    async def exit_code(self) -> int:
        await asyncio.wait_for(self.process.communicate(), START_SECONDS)
        assert self.process.returncode is not None
        return self.process.returncode


def spawned(folder: Path, *options: str, **environment: str) -> AbstractAsyncContextManager[ForkedCommand]:
    return forked_command(
        *("serve", "--dev", "--port", "0", "--log-format", "json"),
        *("--database", f"sqlite:///{folder / 'ringback.db'}", *options),
        folder=folder,
        environment=os.environ | environment,
    )


@asynccontextmanager
async def ringback(folder: Path, upstream: str, *, drain_seconds: float) -> AsyncGenerator[Process]:
    """The command, listening; killed at the end if it has not gone by itself."""
    options = ("--upstream", f"stage={upstream}")
    async with spawned(folder, *options, RINGBACK_DRAIN_SECONDS=str(drain_seconds)) as process:
        running = Process(process)
        running.url = (await running.logged("service.listening"))["url"]
        yield running


@asynccontextmanager
async def with_a_call(running: Process, stage: Stage) -> AsyncGenerator[str]:
    """A call that is inside its tool; its id."""
    async with RingbackClient(running.url) as client:
        started = await client.start_call("stage", "hold")
        await asyncio.wait_for(stage.until_inside(1), WAIT_SECONDS)
        yield started.call.id


def stored(folder: Path, call_id: str) -> tuple[str, str | None]:
    """Status and outcome, as the process has left them."""
    with closing(sqlite3.connect(f"file:{folder / 'ringback.db'}?mode=ro", uri=True)) as database:
        return database.execute("SELECT status, outcome FROM calls WHERE id = ?", (call_id,)).fetchone()


@pytest.mark.requirement("R35")
async def test_a_service_that_is_told_to_stop_lets_what_runs_end(tmp_path: Path) -> None:
    stage = Stage()
    async with (
        serving(stage.app()) as server,
        ringback(tmp_path, server.url, drain_seconds=60) as running,
        with_a_call(running, stage) as call_id,
    ):
        assert await running.readiness() == 200
        running.process.terminate()
        await running.until_draining()
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
            refused = await http.post(f"{running.url}/v1/calls", json={"upstream": "stage", "tool": "echo"})
            assert refused.json()["type"] == "/problems/shutting-down"
            assert (await http.get(f"{running.url}/v1/calls/{call_id}")).json()["status"] == "working"

        stage.release.set()
        assert await running.exit_code() == 0

    assert stored(tmp_path, call_id) == ("completed", "result")


@pytest.mark.requirement("R33")
@pytest.mark.requirement("R35")
async def test_what_has_not_ended_when_the_time_is_over_is_recorded_as_unknown(tmp_path: Path) -> None:
    stage = Stage()
    async with (
        serving(stage.app()) as server,
        ringback(tmp_path, server.url, drain_seconds=0) as running,
        with_a_call(running, stage) as call_id,
    ):
        running.process.send_signal(signal.SIGINT)
        assert await running.exit_code() == 0
        await asyncio.wait_for(stage.cancelled.wait(), WAIT_SECONDS)

    assert stored(tmp_path, call_id) == ("failed", "unknown")


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    stage = Stage()
    async with (
        serving(stage.app()) as server,
        ringback(tmp_path, server.url, drain_seconds=600) as running,
        with_a_call(running, stage) as call_id,
    ):
        running.process.terminate()
        await running.until_draining()
        running.process.terminate()

        assert await running.exit_code() == 1

    assert stored(tmp_path, call_id) == ("working", None)


@pytest.mark.requirement("R34")
async def test_a_second_service_on_the_same_database_refuses_in_one_line(tmp_path: Path) -> None:
    async with serving(Stage().app()) as server, ringback(tmp_path, server.url, drain_seconds=0) as running:
        async with spawned(tmp_path, "--upstream", f"stage={server.url}") as second:
            _, told = await asyncio.wait_for(second.communicate(), START_SECONDS)

        assert second.returncode == 75
        (line,) = told.decode().splitlines()
        assert line == (
            f"Error: Another service (process {running.process.pid}) already serves this database. "
            "Stop it, or use another database file."
        )
        assert await running.readiness() == 200
