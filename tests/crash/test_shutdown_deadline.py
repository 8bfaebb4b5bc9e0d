"""SIGTERM ends the process even if disk and upstreams hang; acknowledged calls are present at the next start."""

import asyncio
import resource
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ringback.client import RingbackClient
from tests.support.crash_checks import wait_until_final
from tests.support.engine import wait_until
from tests.support.processes import ServiceProcess, running_process
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, serving

END_SECONDS = 60.0
"""It takes one or two seconds; on a busy machine a few more."""


@asynccontextmanager
async def serving_blocked_upstream() -> AsyncGenerator[tuple[ControlledUpstream, str]]:
    stage = ControlledUpstream()
    async with serving(stage.app()) as server:
        yield stage, server.url


async def start_blocked_call(running: ServiceProcess, stage: ControlledUpstream) -> str:
    async with RingbackClient(running.url) as client:
        started = await client.start_call("stage", "hold")
    await asyncio.wait_for(stage.wait_until_held(1), WAIT_SECONDS)
    return started.call.id


async def wait_for_exit_code(running: ServiceProcess) -> int | None:
    await asyncio.to_thread(running.process.join, END_SECONDS)
    return running.process.exitcode


def stop_store_writes(running: ServiceProcess) -> None:
    """The operating system lets the process write nothing more, from here on: no file of it may grow, or be begun."""
    assert running.process.pid is not None
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (0, hard))


@pytest.mark.sqlite_only("the disk is PostgreSQL's own then")
async def test_a_service_with_a_full_disk_ends_on_sigterm(tmp_path: Path) -> None:
    async with serving_blocked_upstream() as (stage, upstream):
        async with running_process(folder=str(tmp_path), upstream=upstream) as running:
            call_id = await start_blocked_call(running, stage)
            stop_store_writes(running)
            stage.release.set()

            async def is_not_recorded() -> bool:
                return "call.not_recorded" in "".join(running.output)

            await wait_until(is_not_recorded)
            running.send_signal(signal.SIGTERM)
            assert await wait_for_exit_code(running) == 0
        assert "call.left_unrecorded" in "".join(running.output)

        async with running_process(folder=str(tmp_path), upstream=upstream) as again:
            call = await wait_until_final(again, call_id)
            assert call["outcome"] == "unknown"


async def test_a_service_with_a_hanging_disk_exits_at_its_deadline_and_names_the_worker(tmp_path: Path) -> None:
    async with serving_blocked_upstream() as (stage, upstream):
        async with running_process(
            module="tests.crash.stuck_service", folder=str(tmp_path), upstream=upstream
        ) as running:
            call_id = await start_blocked_call(running, stage)
            (tmp_path / "stuck").touch()
            running.send_signal(signal.SIGTERM)

            assert await wait_for_exit_code(running) == 1
        (line_of_log,) = [line for line in running.output if "service.not_stopped" in line]
        assert "runner" in line_of_log

        (tmp_path / "stuck").unlink()
        stage.release.set()
        async with running_process(folder=str(tmp_path), upstream=upstream) as again:
            call = await wait_until_final(again, call_id)
            assert call["outcome"] == "unknown"
