"""Bad days of a real process: a full disk, a damaged page, a database file that is gone. It says so, and it can be stopped."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.processes import WAIT_SECONDS, ServiceProcess, service
from tests.support.upstreams import STDIO_SERVER

pytestmark = pytest.mark.requirement("R35")

UPSTREAM = f"{sys.executable} {STDIO_SERVER}"
CALL: dict[str, Any] = {"upstream": "stage", "tool": "whoami", "arguments": {}}
FULL_ENOUGH_BYTES = 64 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of 40 MiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write until nothing more fits."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * FULL_ENOUGH_BYTES):
            pass
    return ballast


def damage(database: Path, table: str) -> None:
    """Overwrite the first page of a table."""
    with closing(sqlite3.connect(database)) as looking:
        (page,) = looking.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [table]).fetchone()
        (size,) = looking.execute("PRAGMA page_size").fetchone()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(os.urandom(size))


@asynccontextmanager
async def running(folder: Path) -> AsyncGenerator[tuple[ServiceProcess, httpx.AsyncClient]]:
    async with (
        service(folder=str(folder), upstream=UPSTREAM) as process,
        httpx.AsyncClient(base_url=process.url, timeout=WAIT_SECONDS) as client,
    ):
        yield process, client


async def until_ready(client: httpx.AsyncClient, status: int) -> str:
    """Readiness, once it has this status; what it says."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (answer := await client.get("/readyz")).status_code != status:
            pass  # an answer is a second old at most, and asking costs the service nothing
    return str(answer.json().get("detail", ""))


async def stopped(process: ServiceProcess) -> int:
    process.send_signal(signal.SIGTERM)
    return await process.died()


async def started(client: httpx.AsyncClient) -> httpx.Response:
    """A call that has ended when this returns, unless it was refused: then nothing is left to be written down."""
    return await client.post("/v1/calls", json=CALL | {"wait_seconds": WAIT_SECONDS})


async def test_a_full_disk_is_told_and_left_again_when_there_is_room(small_disk: Path) -> None:
    async with running(small_disk) as (process, client):
        assert (await started(client)).status_code == 200
        await until_ready(client, 200)
        ballast = fill(small_disk)

        assert "MiB are free" in await until_ready(client, 503)
        assert (await client.get("/healthz")).status_code == 200
        ballast.unlink()
        await until_ready(client, 200)
        assert (await started(client)).status_code == 200
        fill(small_disk)
        assert await stopped(process) == 0


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
