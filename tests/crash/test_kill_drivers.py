"""`kill -9` around every step of a call that can be found again upstream, each with real processes and sockets.

task   start │ dispatch │ …the upstream makes a task… │ keep the handle │ …polling… │ finish
rounds dispatch │ …the upstream asks… │ park │ …hours… │ answer │ drop the handle │ …the next round… │ finish

Between sending and keeping what came back lies the one window in which nobody can know; everywhere else the call goes on.
"""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.crash import finished_events, until_final
from tests.support.processes import WAIT_SECONDS, ServiceProcess, acknowledged, service
from tests.support.receivers import NO_CONTENT, Receiver, answering, serve
from tests.support.task_stage import YES, TaskStage
from tests.support.upstreams import HttpServer, serving

DISPATCH = "LeasedCall._dispatch"
KEEP = "LeasedCall._change.<locals>"
"""Of a task: the first change is its handle. Of rounds: the handle is dropped before the next one is sent."""
PARK = "LeasedCall.park.<locals>"
ANSWER = "Answers.answer.<locals>"
FINISH = "Ends._record"


def named(steps: list[Any]) -> list[str]:
    return [f"{'after' if after else 'before'} {unit}" for unit, after, *_ in steps]


async def start(running: ServiceProcess, receiver: Receiver, **call: Any) -> str | None:
    """The id of the call, unless the service died before it said so."""
    body = {"upstream": "stage", "accepts_input": True, "callback": {"url": receiver.url()}, **call}
    started = await acknowledged(running.url, "/v1/calls", body, **{"Idempotency-Key": "one-and-only"})
    return None if started is None else str(started["call"]["id"])


def spec_of(folder: Path, upstream: HttpServer) -> dict[str, Any]:
    return {"folder": str(folder), "upstream": upstream.url}


TASK_STEPS = [
    (DISPATCH, True, "unknown"),
    (KEEP, False, "unknown"),
    (KEEP, True, "result"),
    (FINISH, False, "result"),
]


@pytest.mark.requirement("R35")
@pytest.mark.requirement("R33")
@pytest.mark.parametrize(("unit", "after", "outcome"), TASK_STEPS, ids=named(TASK_STEPS))
async def test_a_task_is_found_again_after_a_kill_and_never_started_twice(
    *, unit: str, after: bool, outcome: str, tmp_path: Path
) -> None:
    stage = TaskStage()
    async with serving(stage.app()) as upstream, serve(answering(NO_CONTENT)) as receiver:
        spec = spec_of(tmp_path, upstream)
        async with service(**spec, unit=unit, after=after) as doomed:
            call_id = await start(doomed, receiver, tool="work")
            if unit == FINISH:
                (await stage.task(1)).complete("done")
            assert await doomed.died() == -9

        async with service(**spec) as revived:
            call_id = call_id or await start(revived, receiver, tool="work")
            assert call_id is not None
            if outcome == "result" and unit != FINISH:
                (await stage.task(1)).complete("done")
            call = await until_final(revived, call_id)
            events = await finished_events(revived, receiver, call_id)

    assert (call["outcome"], len(events)) == (outcome, 1)
    assert len(stage.effects) == (0 if (unit, after) == (DISPATCH, True) else 1)
    assert call["runs"] == 1


ROUND_STEPS = [
    (PARK, False, "unknown", 0),
    (PARK, True, "result", 1),
    (ANSWER, True, "result", 1),
    (KEEP, False, "result", 1),
    (KEEP, True, "unknown", 0),
    (FINISH, False, "unknown", 1),
]


@pytest.mark.requirement("R32")
@pytest.mark.requirement("R35")
@pytest.mark.parametrize(("unit", "after", "outcome", "effects"), ROUND_STEPS, ids=named(ROUND_STEPS))
async def test_a_question_outlives_a_kill_and_its_answer_is_never_used_twice(
    *, unit: str, after: bool, outcome: str, effects: int, tmp_path: Path
) -> None:
    stage = TaskStage()
    async with serving(stage.app()) as upstream, serve(answering(NO_CONTENT)) as receiver:
        spec = spec_of(tmp_path, upstream)
        async with service(**spec, unit=unit, after=after) as doomed:
            call_id = await start(doomed, receiver, tool="confirm")
            assert call_id is not None
            if unit != PARK:
                await until_asked(doomed, call_id)
                await acknowledged(doomed.url, f"/v1/calls/{call_id}/input", {"responses": {"r1.1": YES}})
            assert await doomed.died() == -9

        async with service(**spec) as revived:
            call = await look(revived, call_id)
            if call["status"] == "input_required":
                await acknowledged(revived.url, f"/v1/calls/{call_id}/input", {"responses": {"r1.1": YES}})
            call = await until_final(revived, call_id)

    assert call["outcome"] == outcome
    assert len(stage.effects) == effects
    assert call["runs"] == 1


@pytest.mark.requirement("R35")
async def test_a_call_that_may_run_twice_is_run_again_and_says_so(tmp_path: Path) -> None:
    stage = TaskStage()
    async with serving(stage.app()) as upstream, serve(answering(NO_CONTENT)) as receiver:
        spec = spec_of(tmp_path, upstream)
        async with service(**spec, unit=KEEP, after=False) as doomed:
            call_id = await start(doomed, receiver, tool="work", rerun_policy="always")
            assert await doomed.died() == -9

        async with service(**spec) as revived:
            call_id = call_id or await start(revived, receiver, tool="work", rerun_policy="always")
            assert call_id is not None
            (await stage.task(2)).complete("done")
            call = await until_final(revived, call_id)

    assert (call["outcome"], call["runs"], len(stage.effects)) == ("result", 2, 2)


async def look(running: ServiceProcess, call_id: str, **wait: float) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=running.url, timeout=WAIT_SECONDS) as client:
        return dict((await client.get(f"/v1/calls/{call_id}", params=wait)).json())


async def until_asked(running: ServiceProcess, call_id: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while (call := await look(running, call_id, wait_seconds=0.5))["status"] == "working":
            pass
    assert call["status"] == "input_required"
