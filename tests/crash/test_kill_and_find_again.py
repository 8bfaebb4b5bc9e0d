"""`kill -9` of the service while a tool runs that can be found again: the upstream notices nothing, and the result arrives.

dispatch │ …sent… │ handle kept │ …the tool runs… │ result

Only between sending and keeping can nobody know: then the call is `unknown`, and is not started again.
"""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.crash import until_final
from tests.support.everything import RESEARCH, over_http
from tests.support.legacy_stage import LegacyStage
from tests.support.processes import WAIT_SECONDS, ServiceProcess, acknowledged, service
from tests.support.upstreams import serving

KEEP = "LeasedCall._change.<locals>"
TOOLS = [pytest.param("work", id="stream"), pytest.param("long", id="legacy_task")]


def call_of(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"upstream": "stage", "tool": tool, "arguments": arguments}


async def until_progress(running: ServiceProcess, call_id: str) -> None:
    """Any: what a tool tells within a second of the last may be passed over."""
    async with httpx.AsyncClient(base_url=running.url, timeout=WAIT_SECONDS) as client, asyncio.timeout(WAIT_SECONDS):
        while True:
            call = (await client.get(f"/v1/calls/{call_id}", params={"wait_seconds": 1})).json()
            if call["progress"] is not None:
                return


def let_go(stage: LegacyStage) -> None:
    stage.release.set()
    for task in stage.tasks.values():
        task.end()


async def killed_at_keeping(stage: LegacyStage, tool: str, folder: Path, *, after: bool) -> dict[str, Any]:
    """The service is killed right before or after the commit that keeps the handle; the call, as the next one ended it."""
    async with serving(stage.app()) as upstream:
        spec: dict[str, Any] = {"folder": str(folder), "upstream": upstream.url}
        async with service(**spec, unit=KEEP, after=after) as doomed:
            started = await acknowledged(doomed.url, "/v1/calls", call_of(tool))
            assert await doomed.died() == -9
        assert started is not None
        let_go(stage)
        async with service(**spec) as revived:
            return await until_final(revived, started["call"]["id"])


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R35")
@pytest.mark.parametrize("tool", TOOLS)
async def test_a_kill_right_after_the_handle_was_kept_loses_nothing(tool: str, tmp_path: Path) -> None:
    stage = LegacyStage()
    call = await killed_at_keeping(stage, tool, tmp_path, after=True)

    assert (call["status"], call["outcome"], call["runs"]) == ("completed", "result", 1)
    assert stage.effects == [tool]


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R35")
@pytest.mark.parametrize("tool", TOOLS)
async def test_a_kill_in_the_middle_of_the_tool_loses_nothing(tool: str, tmp_path: Path) -> None:
    stage = LegacyStage()
    async with serving(stage.app()) as upstream:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": upstream.url}
        async with service(**spec) as doomed:
            started = await acknowledged(doomed.url, "/v1/calls", call_of(tool))
            assert started is not None
            await stage.until(lambda: stage.effects)
            for task in stage.tasks.values():
                task.message = "begun"
            await until_progress(doomed, started["call"]["id"])
            await doomed.kill()
        let_go(stage)
        async with service(**spec) as revived:
            call = await until_final(revived, started["call"]["id"])

    assert (call["status"], call["outcome"], call["runs"]) == ("completed", "result", 1)
    assert stage.effects == [tool]


@pytest.mark.requirement("R33")
@pytest.mark.requirement("R35")
@pytest.mark.parametrize("tool", TOOLS)
async def test_a_kill_between_sending_and_keeping_the_handle_is_unknown_and_starts_nothing_again(
    tool: str, tmp_path: Path
) -> None:
    stage = LegacyStage()
    call = await killed_at_keeping(stage, tool, tmp_path, after=False)

    assert (call["status"], call["outcome"], call["runs"]) == ("failed", "unknown", 1)
    assert stage.effects == [tool]


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R28")
async def test_a_task_of_the_reference_server_survives_a_kill(tmp_path: Path) -> None:
    async with over_http() as url:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": url}
        async with service(**spec) as doomed:
            started = await acknowledged(doomed.url, "/v1/calls", call_of(RESEARCH, topic="sleep"))
            assert started is not None
            await until_progress(doomed, started["call"]["id"])
            await doomed.kill()
        async with service(**spec) as revived:
            call = await until_final(revived, started["call"]["id"])

    assert (call["status"], call["outcome"], call["runs"]) == ("completed", "result", 1)
