"""The example server as a real process: its tool works, reports progress, and reads only its own folder."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from ringback.domain.call import Progress
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.upstreams import WAIT_SECONDS, make_python_config, open_upstreams, run_upstream_call

SERVER = Path(__file__).parents[3] / "scripts" / "examples" / "measure_files.py"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[tuple[UpstreamRegistry, Path]]:
    """One process for all tests, because its import of the SDK takes a second of CPU; and the folder that it reads."""
    root = tmp_path_factory.mktemp("root")
    async with open_upstreams(make_python_config(str(SERVER), "--stdio", "--root", str(root))) as upstreams:
        yield upstreams, root


@pytest.fixture
def upstreams(server: tuple[UpstreamRegistry, Path]) -> UpstreamRegistry:
    return server[0]


@pytest.fixture
def folder(server: tuple[UpstreamRegistry, Path], tmp_path: Path) -> Path:
    below = server[1] / tmp_path.name
    (below / "deep").mkdir(parents=True)
    (below / "a.txt").write_bytes(b"one\ntwo\n")
    (below / "deep" / "b.bin").write_bytes(b"x" * 1000)
    return below


def measured(ending: CallCompletion) -> dict[str, Any]:
    assert ending.result is not None
    return json.loads(ending.result)["structuredContent"]


@pytest.mark.requirement("R28")
async def test_the_tool_measures_every_file_and_reports_progress(upstreams: UpstreamRegistry, folder: Path) -> None:
    seen: list[Progress] = []

    async def keep(progress: Progress) -> None:
        seen.append(progress)

    ending = await run_upstream_call(upstreams, "measure_files", {"folder": str(folder), "rounds": 3}, on_progress=keep)

    assert ending.outcome is CallOutcome.RESULT
    result = measured(ending)
    assert (result["files"], result["bytes"], result["lines"]) == (2, 1008, 2)
    assert result["largest"]["path"] == f"{folder.name}/deep/b.bin"
    assert [(progress.progress, progress.total) for progress in seen] == [(1, 2), (2, 2)]


async def test_it_refuses_what_is_no_folder_of_its_own(upstreams: UpstreamRegistry, folder: Path) -> None:
    outcomes = {
        asked: (await run_upstream_call(upstreams, "measure_files", {"folder": asked})).outcome
        for asked in ("..", "/", "absent", f"{folder.name}/a.txt")
    }

    assert outcomes == dict.fromkeys(outcomes, CallOutcome.TOOL_ERROR)


async def test_the_tool_serves_other_requests_while_it_works_and_stops_on_cancellation(
    upstreams: UpstreamRegistry, folder: Path
) -> None:
    working = asyncio.Event()

    async def began(_: Progress) -> None:
        working.set()

    (folder / "z.bin").write_bytes(b"x" * 1_000_000)  # at this many rounds it would take the best part of an hour
    call = asyncio.create_task(
        run_upstream_call(upstreams, "measure_files", {"folder": str(folder), "rounds": 20_000}, on_progress=began)
    )
    async with asyncio.timeout(WAIT_SECONDS):
        await working.wait()
    other = await run_upstream_call(upstreams, "measure_files", {"folder": str(folder / "deep"), "rounds": 1})
    call.cancel()
    await asyncio.wait({call})

    assert other.outcome is CallOutcome.RESULT
    assert call.cancelled()
