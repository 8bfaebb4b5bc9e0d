"""Bad days of a real process: a full disk, a damaged page, a database file that is gone. It says so, and it can be stopped."""

import asyncio
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.engine import until
from tests.support.processes import WAIT_SECONDS, ServiceProcess, service
from tests.support.upstreams import STDIO_SERVER, Stage, serving

pytestmark = pytest.mark.requirement("R35")

UPSTREAM = f"{sys.executable} {STDIO_SERVER}"
CALL: dict[str, Any] = {"upstream": "stage", "tool": "whoami", "arguments": {}}


def let_write(process: ServiceProcess, size: int) -> None:
    """From here on no file of the process may grow beyond this size, or be begun: at 0 that is what a full disk is."""
    assert process.process.pid is not None
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def damage(database: Path, table: str) -> None:
    """Overwrite the first page of a table."""
    with closing(sqlite3.connect(database)) as looking:
        (page,) = looking.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [table]).fetchone()
        (size,) = looking.execute("PRAGMA page_size").fetchone()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(os.urandom(size))


@asynccontextmanager
async def running(
    folder: Path, *, upstream: str = UPSTREAM
) -> AsyncGenerator[tuple[ServiceProcess, httpx.AsyncClient]]:
    async with (
        service(folder=str(folder), upstream=upstream) as process,
        httpx.AsyncClient(base_url=process.url, timeout=WAIT_SECONDS) as client,
    ):
        yield process, client


async def until_ready(client: httpx.AsyncClient, status: int) -> str:
    """Readiness, once it has this status; what it says."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (answer := await client.get("/readyz")).status_code != status:
            pass  # an answer is a second old at most, and asking costs the service nothing
    return str(answer.json().get("detail", ""))


async def until_said(process: ServiceProcess, message: str) -> None:
    async def is_said() -> bool:
        return any(message in line for line in process.output)

    await until(is_said)


async def stopped(process: ServiceProcess) -> int:
    process.send_signal(signal.SIGTERM)
    return await process.died()


async def started(client: httpx.AsyncClient) -> httpx.Response:
    """A call that has ended when this returns, unless it was refused: then nothing is left to be written down."""
    return await client.post("/v1/calls", json=CALL | {"wait_seconds": 60})


async def test_a_full_disk_is_told_and_left_again_when_there_is_room(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, client):
        assert (await started(client)).status_code == 200
        await until_ready(client, 200)
        let_write(process, 0)

        assert "try again" in await until_ready(client, 503)
        assert (await started(client)).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        let_write(process, resource.getrlimit(resource.RLIMIT_FSIZE)[0])
        await until_ready(client, 200)
        assert (await started(client)).status_code == 200
        let_write(process, 0)
        assert await stopped(process) == 0
        assert not any("store.untrusted" in line for line in process.output)


@pytest.mark.parametrize("suffix", ["", "-wal"])
async def test_nothing_is_acknowledged_into_a_file_that_was_deleted(tmp_path: Path, suffix: str) -> None:
    async with running(tmp_path) as (process, client):
        assert (await started(client)).status_code == 200
        (tmp_path / f"ringback.db{suffix}").unlink()

        answers = [await started(client) for _ in range(3)]

        assert [answer.status_code for answer in answers] == [503] * 3
        assert "was removed while the service used it" in answers[0].json()["detail"]
        assert "was removed" in await until_ready(client, 503)
        assert (await client.get("/healthz")).status_code == 200
        assert await stopped(process) == 0
        assert sum("store.untrusted" in line for line in process.output) == 1
        assert not any("Traceback" in line for line in process.output)


async def test_a_damaged_page_stops_all_work_and_the_process_still_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, client):
        assert (await started(client)).status_code == 200
        assert await stopped(process) == 0
    damage(tmp_path / "ringback.db", "events")

    async with running(tmp_path) as (process, client):
        assert (await client.get("/v1/events")).status_code == 503
        assert "is damaged" in (await started(client)).json()["detail"]
        assert "is damaged" in await until_ready(client, 503)
        assert await stopped(process) == 0
        assert sum("store.untrusted" in line for line in process.output) == 1
        assert not any("Traceback" in line for line in process.output)


async def test_a_write_ahead_log_that_vanished_after_a_kill_stops_the_next_start(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, client):
        assert (await started(client)).status_code == 200
        await process.kill()
    (tmp_path / "ringback.db-wal").unlink()

    with pytest.raises(AssertionError, match="--accept-restore"):
        async with running(tmp_path):
            raise NotImplementedError


@pytest.mark.parametrize("tool_ends", [False, True])
async def test_a_call_in_flight_on_a_store_that_cannot_be_trusted_does_not_keep_the_process(
    tmp_path: Path, *, tool_ends: bool
) -> None:
    stage = Stage()
    async with serving(stage.app()) as server, running(tmp_path, upstream=server.url) as (process, client):
        begun = await client.post("/v1/calls", json=CALL | {"tool": "hold"})
        assert begun.status_code == 202
        await asyncio.wait_for(stage.until_inside(1), WAIT_SECONDS)
        (tmp_path / "ringback.db").unlink()
        assert "was removed" in await until_ready(client, 503)
        if tool_ends:
            stage.release.set()
            await until_said(process, "call.not_recorded")

        assert await stopped(process) == 0

        assert sum("store.untrusted" in line for line in process.output) == 1
        assert any("call.left_unrecorded" in line for line in process.output)
        assert not any("service.not_stopped" in line or "Traceback" in line for line in process.output)
