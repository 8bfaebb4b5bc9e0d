"""A real process with a full disk, a damaged page, or a removed database file reports the fault and can be stopped."""

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

from tests.support.engine import wait_until
from tests.support.processes import WAIT_SECONDS, ServiceProcess, running_process
from tests.support.upstreams import STDIO_SERVER, ControlledUpstream, serving

pytestmark = [pytest.mark.requirement("R35"), pytest.mark.sqlite_only("the disk is PostgreSQL's own then")]

UPSTREAM = f"{sys.executable} {STDIO_SERVER}"
CALL: dict[str, Any] = {"upstream": "stage", "tool": "whoami", "arguments": {}}


def limit_file_size(process: ServiceProcess, size: int) -> None:
    """From here on no file of the process may grow beyond this size, or be begun: at 0 that is what a full disk is."""
    assert process.process.pid is not None
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def damage_table(database: Path, table: str) -> None:
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
        running_process(folder=str(folder), upstream=upstream) as process,
        httpx.AsyncClient(base_url=process.url, timeout=WAIT_SECONDS) as client,
    ):
        yield process, client


async def wait_until_ready(client: httpx.AsyncClient, status: int) -> str:
    """Readiness, once it has this status; what it says."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (answer := await client.get("/readyz")).status_code != status:
            pass  # a response is cached for a second, so polling is cheap
    return str(answer.json().get("detail", ""))


async def wait_for_log_message(process: ServiceProcess, message: str) -> None:
    async def is_logged() -> bool:
        return any(message in line for line in process.output)

    await wait_until(is_logged)


async def stop_and_wait(process: ServiceProcess) -> int:
    process.send_signal(signal.SIGTERM)
    return await process.wait_until_dead()


async def start_call(client: httpx.AsyncClient) -> httpx.Response:
    """A call that has ended when this returns, unless it was refused: then nothing is left to be written down."""
    return await client.post("/v1/calls", json=CALL | {"wait_seconds": 60})


async def test_a_full_disk_is_reported_until_there_is_room_again(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, client):
        assert (await start_call(client)).status_code == 200
        await wait_until_ready(client, 200)
        limit_file_size(process, 0)

        assert "try again" in await wait_until_ready(client, 503)
        assert (await start_call(client)).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        limit_file_size(process, resource.getrlimit(resource.RLIMIT_FSIZE)[0])
        await wait_until_ready(client, 200)
        assert (await start_call(client)).status_code == 200
        limit_file_size(process, 0)
        assert await stop_and_wait(process) == 0
        assert not any("store.untrusted" in line for line in process.output)


@pytest.mark.parametrize("suffix", ["", "-wal"])
async def test_nothing_is_acknowledged_into_a_file_that_was_deleted(tmp_path: Path, suffix: str) -> None:
    async with running(tmp_path) as (process, client):
        assert (await start_call(client)).status_code == 200
        (tmp_path / f"ringback.db{suffix}").unlink()

        answers = [await start_call(client) for _ in range(3)]

        assert [answer.status_code for answer in answers] == [503] * 3
        assert "was removed while the service used it" in answers[0].json()["detail"]
        assert "was removed" in await wait_until_ready(client, 503)
        assert (await client.get("/healthz")).status_code == 200
        assert await stop_and_wait(process) == 0
        assert sum("store.untrusted" in line for line in process.output) == 1
        assert not any("Traceback" in line for line in process.output)


async def test_a_damaged_page_stops_all_work_and_the_process_still_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, client):
        assert (await start_call(client)).status_code == 200
        assert await stop_and_wait(process) == 0
    damage_table(tmp_path / "ringback.db", "events")

    async with running(tmp_path) as (process, client):
        assert (await client.get("/v1/events")).status_code == 503
        assert "is damaged" in (await start_call(client)).json()["detail"]
        assert "is damaged" in await wait_until_ready(client, 503)
        assert await stop_and_wait(process) == 0
        assert sum("store.untrusted" in line for line in process.output) == 1
        assert not any("Traceback" in line for line in process.output)


async def test_a_write_ahead_log_that_vanished_after_a_kill_stops_the_next_start(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, client):
        assert (await start_call(client)).status_code == 200
        await process.kill()
    (tmp_path / "ringback.db-wal").unlink()

    with pytest.raises(AssertionError, match="--accept-restore"):
        async with running(tmp_path):
            raise NotImplementedError


@pytest.mark.parametrize("tool_ends", [False, True])
async def test_a_call_in_flight_on_a_store_that_cannot_be_trusted_does_not_keep_the_process(
    tmp_path: Path, *, tool_ends: bool
) -> None:
    stage = ControlledUpstream()
    async with serving(stage.app()) as server, running(tmp_path, upstream=server.url) as (process, client):
        begun = await client.post("/v1/calls", json=CALL | {"tool": "hold"})
        assert begun.status_code == 202
        await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
        (tmp_path / "ringback.db").unlink()
        assert "was removed" in await wait_until_ready(client, 503)
        if tool_ends:
            stage.release.set()
            await wait_for_log_message(process, "call.not_recorded")

        assert await stop_and_wait(process) == 0

        assert sum("store.untrusted" in line for line in process.output) == 1
        assert any("call.left_unrecorded" in line for line in process.output)
        assert not any("service.not_stopped" in line or "Traceback" in line for line in process.output)
