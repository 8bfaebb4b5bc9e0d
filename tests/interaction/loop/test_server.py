"""The command as a process: it drains after SIGTERM, records how calls ended, and is the only process on its database."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.client import RingbackClient
from tests.support.databases import database_url, query_rows, service_environment
from tests.support.engine import wait_until
from tests.support.forked_commands import ForkedCommand, running_forked_command
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, serving

START_SECONDS = 3 * WAIT_SECONDS
"""A cold start on a busy machine."""


@dataclass(slots=True)
class ServerProcess:
    process: ForkedCommand
    url: str = ""

    async def logged(self, event: str) -> dict[str, Any]:
        """The next line of the log with this event."""
        async with asyncio.timeout(START_SECONDS):
            async for line in self.process.stderr:
                logged = json.loads(line)
                if logged["event"] == event:
                    return logged
        raise AssertionError(f"The process ended without {event}.")

    async def readiness(self) -> int:
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
            return (await http.get(f"{self.url}/readyz")).status_code

    async def wait_until_draining(self) -> None:
        async def is_draining() -> bool:
            return await self.readiness() == 503

        await wait_until(is_draining)

    async def exit_code(self) -> int:
        await asyncio.wait_for(self.process.communicate(), START_SECONDS)
        assert self.process.returncode is not None
        return self.process.returncode


def spawned_service(folder: Path, *options: str, **environment: str) -> AbstractAsyncContextManager[ForkedCommand]:
    return running_forked_command(
        *("serve", "--dev", "--port", "0", "--log-format", "json"),
        *("--database", database_url(folder), *options),
        folder=folder,
        environment=os.environ | service_environment() | environment,
    )


@asynccontextmanager
async def ringback(folder: Path, upstream: str, *, drain_seconds: float) -> AsyncGenerator[ServerProcess]:
    """The command, listening; killed at the end if it has not gone by itself."""
    options = ("--upstream", f"stage={upstream}")
    async with spawned_service(folder, *options, RINGBACK_DRAIN_SECONDS=str(drain_seconds)) as process:
        running = ServerProcess(process)
        running.url = (await running.logged("service.listening"))["url"]
        yield running


@asynccontextmanager
async def start_blocked_call(running: ServerProcess, stage: ControlledUpstream) -> AsyncGenerator[str]:
    """A call that is inside its tool; its id."""
    async with RingbackClient(running.url) as client:
        started = await client.start_call("stage", "hold")
        await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
        yield started.call.id


def read_stored_call(folder: Path, call_id: str) -> tuple[str, str | None]:
    """Status and outcome, as the process has left them."""
    ((status, outcome),) = query_rows(folder, "SELECT status, outcome FROM calls WHERE id = ?", call_id)
    return status, outcome


@pytest.mark.requirement("R35")
async def test_a_service_lets_running_calls_end_on_sigterm(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with (
        serving(stage.app()) as server,
        ringback(tmp_path, server.url, drain_seconds=60) as running,
        start_blocked_call(running, stage) as call_id,
    ):
        assert await running.readiness() == 200
        running.process.terminate()
        await running.wait_until_draining()
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
            refused = await http.post(f"{running.url}/v1/calls", json={"upstream": "stage", "tool": "echo"})
            assert refused.json()["type"] == "/problems/shutting-down"
            assert (await http.get(f"{running.url}/v1/calls/{call_id}")).json()["status"] == "working"

        stage.release.set()
        assert await running.exit_code() == 0

    assert read_stored_call(tmp_path, call_id) == ("completed", "result")


@pytest.mark.requirement("R33")
@pytest.mark.requirement("R35")
async def test_calls_that_run_at_the_end_of_the_drain_are_recorded_as_unknown(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with (
        serving(stage.app()) as server,
        ringback(tmp_path, server.url, drain_seconds=0) as running,
        start_blocked_call(running, stage) as call_id,
    ):
        running.process.send_signal(signal.SIGINT)
        assert await running.exit_code() == 0
        await asyncio.wait_for(stage.cancelled.wait(), WAIT_SECONDS)

    assert read_stored_call(tmp_path, call_id) == ("failed", "unknown")


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    stage = ControlledUpstream()
    async with (
        serving(stage.app()) as server,
        ringback(tmp_path, server.url, drain_seconds=600) as running,
        start_blocked_call(running, stage) as call_id,
    ):
        running.process.terminate()
        await running.wait_until_draining()
        running.process.terminate()

        assert await running.exit_code() == 1

    assert read_stored_call(tmp_path, call_id) == ("working", None)


async def test_the_log_names_the_address_of_a_service_that_has_a_public_url(tmp_path: Path) -> None:
    options = ("--upstream", "away=http://127.0.0.1:1/mcp")
    async with spawned_service(tmp_path, *options, RINGBACK_PUBLIC_URL="https://ringback.example") as process:
        running = ServerProcess(process)
        listening = await running.logged("service.listening")
        running.url = listening["listens_on"]

        assert listening["url"] == "https://ringback.example"
        assert await running.readiness() == 200


@pytest.mark.requirement("R34")
@pytest.mark.sqlite_only("several services may serve one PostgreSQL database")
async def test_a_second_service_on_the_same_database_refuses_in_one_line(tmp_path: Path) -> None:
    async with (
        serving(ControlledUpstream().app()) as server,
        ringback(tmp_path, server.url, drain_seconds=0) as running,
    ):
        async with spawned_service(tmp_path, "--upstream", f"stage={server.url}") as second:
            _, logged = await asyncio.wait_for(second.communicate(), START_SECONDS)

        assert second.returncode == 75
        (line,) = logged.decode().splitlines()
        assert line == (
            f"Error: Another service (process {running.process.pid}) already serves this database. "
            "Stop it, or name another database: RINGBACK_DATABASE_URL or --database."
        )
        assert await running.readiness() == 200
