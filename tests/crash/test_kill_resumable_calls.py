"""`kill -9` of the service during a resumable call: the upstream is not affected, and the result arrives.

dispatch │ …sent… │ handle stored │ …the tool runs… │ result

Between dispatch and the stored handle the outcome is unknown: the call ends as `unknown`, and does not run again.
"""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.crash_checks import wait_until_final
from tests.support.everything_server import RESEARCH_TOOL, serving_over_http
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.processes import WAIT_SECONDS, ServiceProcess, post_unless_killed, running_process
from tests.support.upstreams import serving

KEEP_STEP = "LeasedCall.save_handle.<locals>"
TOOLS = [pytest.param("work", id="stream"), pytest.param("long", id="legacy_task")]


def make_call_body(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"upstream": "stage", "tool": tool, "arguments": arguments}


async def wait_for_progress(running: ServiceProcess, call_id: str) -> None:
    """Any: progress within a second of the last one may be left out."""
    async with httpx.AsyncClient(base_url=running.url, timeout=WAIT_SECONDS) as client, asyncio.timeout(WAIT_SECONDS):
        while True:
            call = (await client.get(f"/v1/calls/{call_id}", params={"wait_seconds": 1})).json()
            if call["progress"] is not None:
                return


def release_upstream(stage: LegacyUpstream) -> None:
    stage.release.set()
    for task in stage.tasks.values():
        task.end_task()


async def kill_at_handle_save(stage: LegacyUpstream, tool: str, folder: Path, *, after: bool) -> dict[str, Any]:
    """The service is killed right before or after the commit that keeps the handle; the call, as the next one ended it."""
    async with serving(stage.app()) as upstream:
        spec: dict[str, Any] = {"folder": str(folder), "upstream": upstream.url}
        async with running_process(**spec, unit=KEEP_STEP, after=after) as doomed:
            started = await post_unless_killed(doomed.url, "/v1/calls", make_call_body(tool))
            assert await doomed.wait_until_dead() == -9
        assert started is not None
        release_upstream(stage)
        async with running_process(**spec) as revived:
            return await wait_until_final(revived, started["call"]["id"])


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R35")
@pytest.mark.parametrize("tool", TOOLS)
async def test_a_kill_right_after_the_handle_was_saved_loses_nothing(tool: str, tmp_path: Path) -> None:
    stage = LegacyUpstream()
    call = await kill_at_handle_save(stage, tool, tmp_path, after=True)

    assert (call["status"], call["outcome"], call["runs"]) == ("completed", "result", 1)
    assert stage.effects == [tool]


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R35")
@pytest.mark.parametrize("tool", TOOLS)
async def test_a_kill_during_the_tool_loses_nothing(tool: str, tmp_path: Path) -> None:
    stage = LegacyUpstream()
    async with serving(stage.app()) as upstream:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": upstream.url}
        async with running_process(**spec) as doomed:
            started = await post_unless_killed(doomed.url, "/v1/calls", make_call_body(tool))
            assert started is not None
            await stage.wait_until(lambda: stage.effects)
            for task in stage.tasks.values():
                task.message = "begun"
            await wait_for_progress(doomed, started["call"]["id"])
            await doomed.kill()
        release_upstream(stage)
        async with running_process(**spec) as revived:
            call = await wait_until_final(revived, started["call"]["id"])

    assert (call["status"], call["outcome"], call["runs"]) == ("completed", "result", 1)
    assert stage.effects == [tool]


@pytest.mark.requirement("R33")
@pytest.mark.requirement("R35")
@pytest.mark.parametrize("tool", TOOLS)
async def test_a_kill_between_sending_and_keeping_the_handle_is_unknown_and_starts_nothing_again(
    tool: str, tmp_path: Path
) -> None:
    stage = LegacyUpstream()
    call = await kill_at_handle_save(stage, tool, tmp_path, after=False)

    assert (call["status"], call["outcome"], call["runs"]) == ("failed", "unknown", 1)
    assert stage.effects == [tool]


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R28")
async def test_a_task_of_the_reference_server_survives_a_kill(tmp_path: Path) -> None:
    async with serving_over_http() as url:
        spec: dict[str, Any] = {"folder": str(tmp_path), "upstream": url}
        async with running_process(**spec) as doomed:
            started = await post_unless_killed(doomed.url, "/v1/calls", make_call_body(RESEARCH_TOOL, topic="sleep"))
            assert started is not None
            await wait_for_progress(doomed, started["call"]["id"])
            await doomed.kill()
        async with running_process(**spec) as revived:
            call = await wait_until_final(revived, started["call"]["id"])

    assert (call["status"], call["outcome"], call["runs"]) == ("completed", "result", 1)
