"""SIGTERM ends the process, whatever the disk and the upstreams do; what was acknowledged is there at the next start."""

import asyncio
import resource
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from ringback.client import RingbackClient
from tests.support.crash import until_final
from tests.support.engine import until
from tests.support.processes import ServiceProcess, service
from tests.support.upstreams import WAIT_SECONDS, Stage, serving

END_SECONDS = 60.0
"""It takes a second or two; on a busy machine a few more."""


@asynccontextmanager
async def staged() -> AsyncGenerator[tuple[Stage, str]]:
    stage = Stage()
    async with serving(stage.app()) as server:
        yield stage, server.url


async def a_call_inside_its_tool(running: ServiceProcess, stage: Stage) -> str:
    async with RingbackClient(running.url) as client:
        started = await client.start_call("stage", "hold")
    await asyncio.wait_for(stage.until_inside(1), WAIT_SECONDS)
    return started.call.id


async def exit_code(running: ServiceProcess) -> int | None:
    await asyncio.to_thread(running.process.join, END_SECONDS)
    return running.process.exitcode


def fill_the_disk_of(running: ServiceProcess) -> None:
    """The operating system lets the process write nothing more, from here on: no file of it may grow, or be begun."""
    assert running.process.pid is not None
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (0, hard))


async def test_a_service_whose_disk_is_full_ends_when_it_is_told_to(tmp_path: Path) -> None:
    async with staged() as (stage, upstream):
        async with service(folder=str(tmp_path), upstream=upstream) as running:
            call_id = await a_call_inside_its_tool(running, stage)
            fill_the_disk_of(running)
            stage.release.set()

            async def is_not_recorded() -> bool:
                return "call.not_recorded" in "".join(running.output)

            await until(is_not_recorded)
            running.send_signal(signal.SIGTERM)
            assert await exit_code(running) == 0
        assert "call.left_unrecorded" in "".join(running.output)

        async with service(folder=str(tmp_path), upstream=upstream) as again:
            call = await until_final(again, call_id)
            assert call["outcome"] == "unknown"


async def test_a_service_whose_disk_answers_nothing_ends_at_its_deadline_and_says_what_held_it(tmp_path: Path) -> None:
    async with staged() as (stage, upstream):
        async with service(module="tests.crash.stuck_service", folder=str(tmp_path), upstream=upstream) as running:
            call_id = await a_call_inside_its_tool(running, stage)
            (tmp_path / "stuck").touch()
            running.send_signal(signal.SIGTERM)

            assert await exit_code(running) == 1
        (told,) = [line for line in running.output if "service.not_stopped" in line]
        assert "runner" in told

        (tmp_path / "stuck").unlink()
        stage.release.set()
        async with service(folder=str(tmp_path), upstream=upstream) as again:
            call = await until_final(again, call_id)
            assert call["outcome"] == "unknown"
