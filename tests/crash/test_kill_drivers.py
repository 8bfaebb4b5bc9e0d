"""`kill -9` around every step of a call with a handle, each with real processes and sockets.

task   start │ dispatch │ …the upstream creates a task… │ store the handle │ …polling… │ finish
rounds dispatch │ …the upstream requests input… │ park │ …hours… │ answer │ drop the handle │ …the next round… │ finish

Only between dispatch and the stored handle does a kill make the outcome unknown; at every other step the call continues.
"""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.crash_checks import wait_for_finished_events, wait_until_final
from tests.support.processes import WAIT_SECONDS, ServiceProcess, post_unless_killed, running_process
from tests.support.receivers import NO_CONTENT, Receiver, respond_with, serving_receiver
from tests.support.task_upstream import ACCEPTED_ANSWER, TaskUpstream
from tests.support.upstreams import HttpServer, serving

DISPATCH = "LeasedCall._write_dispatched"
KEEP = "LeasedCall.save_handle.<locals>"
"""For a task, the first update stores its handle. For rounds, the handle is dropped before the next round is sent."""
PARK = "LeaseEnd.park_call.<locals>"
ANSWER = "InputAnswers.answer_input.<locals>"
FINISH = "CompletionBatcher._record_completions"


def name_steps(steps: list[Any]) -> list[str]:
    return [f"{'after' if after else 'before'} {unit}" for unit, after, *_ in steps]


async def start_call(running: ServiceProcess, receiver: Receiver, **call: Any) -> str | None:
    """The id of the call, unless the service died before it said so."""
    body = {"upstream": "stage", "accepts_input": True, "callback": {"url": receiver.url()}, **call}
    started = await post_unless_killed(running.url, "/v1/calls", body, **{"Idempotency-Key": "one-and-only"})
    return None if started is None else str(started["call"]["id"])


def make_spec(folder: Path, upstream: HttpServer) -> dict[str, Any]:
    return {"folder": str(folder), "upstream": upstream.url}


TASK_STEPS = [
    (DISPATCH, True, "unknown"),
    (KEEP, False, "unknown"),
    (KEEP, True, "result"),
    (FINISH, False, "result"),
]


@pytest.mark.requirement("R35")
@pytest.mark.requirement("R33")
@pytest.mark.parametrize(("unit", "after", "outcome"), TASK_STEPS, ids=name_steps(TASK_STEPS))
async def test_a_task_is_found_again_after_a_kill_and_never_started_twice(
    *, unit: str, after: bool, outcome: str, tmp_path: Path
) -> None:
    stage = TaskUpstream()
    async with serving(stage.app()) as upstream, serving_receiver(respond_with(NO_CONTENT)) as receiver:
        spec = make_spec(tmp_path, upstream)
        async with running_process(**spec, unit=unit, after=after) as doomed:
            call_id = await start_call(doomed, receiver, tool="work")
            if unit == FINISH:
                (await stage.wait_for_task(1)).complete_task("done")
            assert await doomed.wait_until_dead() == -9

        async with running_process(**spec) as revived:
            call_id = call_id or await start_call(revived, receiver, tool="work")
            assert call_id is not None
            if outcome == "result" and unit != FINISH:
                (await stage.wait_for_task(1)).complete_task("done")
            call = await wait_until_final(revived, call_id)
            events = await wait_for_finished_events(revived, receiver, call_id)

    assert (call["outcome"], len(events)) == (outcome, 1)
    assert len(stage.side_effects) == (0 if (unit, after) == (DISPATCH, True) else 1)
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
@pytest.mark.parametrize(("unit", "after", "outcome", "effects"), ROUND_STEPS, ids=name_steps(ROUND_STEPS))
async def test_a_request_for_input_survives_a_kill_and_its_answer_is_used_once(
    *, unit: str, after: bool, outcome: str, effects: int, tmp_path: Path
) -> None:
    stage = TaskUpstream()
    async with serving(stage.app()) as upstream, serving_receiver(respond_with(NO_CONTENT)) as receiver:
        spec = make_spec(tmp_path, upstream)
        async with running_process(**spec, unit=unit, after=after) as doomed:
            call_id = await start_call(doomed, receiver, tool="confirm")
            assert call_id is not None
            if unit != PARK:
                await wait_for_input_request(doomed, call_id)
                await post_unless_killed(
                    doomed.url, f"/v1/calls/{call_id}/input", {"responses": {"r1.1": ACCEPTED_ANSWER}}
                )
            assert await doomed.wait_until_dead() == -9

        async with running_process(**spec) as revived:
            call = await read_call(revived, call_id)
            if call["status"] == "input_required":
                await post_unless_killed(
                    revived.url, f"/v1/calls/{call_id}/input", {"responses": {"r1.1": ACCEPTED_ANSWER}}
                )
            call = await wait_until_final(revived, call_id)

    assert call["outcome"] == outcome
    assert len(stage.side_effects) == effects
    assert call["runs"] == 1


@pytest.mark.requirement("R35")
async def test_a_call_that_may_run_twice_runs_again_and_counts_its_runs(tmp_path: Path) -> None:
    stage = TaskUpstream()
    async with serving(stage.app()) as upstream, serving_receiver(respond_with(NO_CONTENT)) as receiver:
        spec = make_spec(tmp_path, upstream)
        async with running_process(**spec, unit=KEEP, after=False) as doomed:
            call_id = await start_call(doomed, receiver, tool="work", rerun_policy="always")
            assert await doomed.wait_until_dead() == -9

        async with running_process(**spec) as revived:
            call_id = call_id or await start_call(revived, receiver, tool="work", rerun_policy="always")
            assert call_id is not None
            (await stage.wait_for_task(2)).complete_task("done")
            call = await wait_until_final(revived, call_id)

    assert (call["outcome"], call["runs"], len(stage.side_effects)) == ("result", 2, 2)


async def read_call(running: ServiceProcess, call_id: str, **wait: float) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=running.url, timeout=WAIT_SECONDS) as client:
        return dict((await client.get(f"/v1/calls/{call_id}", params=wait)).json())


async def wait_for_input_request(running: ServiceProcess, call_id: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while (call := await read_call(running, call_id, wait_seconds=0.5))["status"] == "working":
            pass
    assert call["status"] == "input_required"
