"""Calls whose tool asks before it works: parked for hours, answered, and never sent twice by mistake."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import MCPError

from ringback.domain.call import Call, CallOutcome, CallPhase, CallStatus
from ringback.domain.event import EventName
from ringback.runner.upstreams import UpstreamRegistry
from tests.support.builders import a_webhook
from tests.support.calls import a_call_to, answer, ask_to_cancel, until_asked
from tests.support.clock import ShiftedClock
from tests.support.engine import Engine
from tests.support.task_stage import YES, TaskStage
from tests.support.upstreams import http_config, opened, serving, until_state

NO: dict[str, Any] = {"action": "decline"}


@asynccontextmanager
async def running(engine: Engine, stage: TaskStage, *calls: Call) -> AsyncGenerator[UpstreamRegistry]:
    await engine.queue(*calls)
    async with serving(stage.app()) as server, opened(http_config(server.url)) as upstreams, engine.running(upstreams):
        yield upstreams


async def result_of(engine: Engine, call: Call) -> Any:
    """What the tool says that it was answered."""
    body = json.loads(await engine.result(call) or b"null")
    return json.loads(body["content"][0]["text"])


@pytest.mark.requirement("R32")
async def test_a_question_parks_the_call_rings_and_holds_nothing_open(engine: Engine) -> None:
    stage, call = TaskStage(), a_call_to(engine, "confirm")
    await engine.register(a_webhook())

    async with running(engine, stage, call) as upstreams:
        parked = await until_asked(engine, call)
        (info,) = upstreams.tool_catalog.list_upstreams()

    assert (parked.phase, parked.lease_token, info.calls_in_flight) == (CallPhase.PARKED, None, 0)
    assert parked.input_requests["r1.1"].params["message"] == "Really?"
    (event,) = await engine.events()
    (delivery,) = await engine.deliveries()
    assert (event.name, event.data["status"], event.data["input_keys"]) == (
        EventName.CALL_INPUT_REQUIRED, "input_required", ["r1.1"],
    )  # fmt: skip
    assert b"Really?" not in delivery.body
    assert b"sure" not in delivery.body
    assert stage.effects == []


@pytest.mark.requirement("R32")
@pytest.mark.requirement("R35")
async def test_a_call_is_answered_hours_and_restarts_later(engine: Engine, clock: ShiftedClock) -> None:
    stage, call = TaskStage(), a_call_to(engine, "confirm", deadline_in=86_400)

    async with running(engine, stage, call):
        await until_asked(engine, call)
    clock.advance(8 * 3600)
    await engine.recover()
    told = await answer(engine, call, {"r1.1": YES})
    async with running(engine, stage):
        (ended,) = await engine.until_final(call)

    assert (told.call.phase, told.call.status) == (CallPhase.QUEUED, CallStatus.WORKING)
    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)
    assert (await result_of(engine, call))["sure"]["content"] == {"sure": True}
    assert stage.effects == ["confirm"]


async def test_every_round_has_keys_of_its_own(engine: Engine) -> None:
    stage, call = TaskStage(rounds=3), a_call_to(engine, "confirm")
    asked: list[str] = []

    async with running(engine, stage, call):
        for number in range(1, 4):
            await until_asked(engine, call)
            asked += (await engine.call(call)).input_requests
            told = await answer(engine, call, {"r1.1": NO, f"r{number}.1": YES})
            assert told.accepted == [f"r{number}.1"] or number == 1
        (ended,) = await engine.until_final(call)

    assert asked == ["r1.1", "r2.1", "r3.1"]
    assert ended.outcome is CallOutcome.RESULT
    assert len(await engine.events()) == 4


async def test_a_tool_that_wants_a_moment_is_asked_again_without_asking_anybody(engine: Engine) -> None:
    stage, call = TaskStage(rounds=3), a_call_to(engine, "moment")

    async with running(engine, stage, call):
        (ended,) = await engine.until_final(call)

    assert (ended.outcome, ended.input_round) == (CallOutcome.RESULT, 0)
    assert [json.loads(params.request_state or "{}").get("round") for _, params in stage.requests] == [None, 1, 2, 3]


@pytest.mark.requirement("R32")
async def test_a_tool_that_asks_although_nobody_can_answer_fails_the_call_with_a_reason(engine: Engine) -> None:
    stage, call = TaskStage(), a_call_to(engine, "confirm", accepts_input=False)

    async with running(engine, stage, call):
        (ended,) = await engine.until_final(call)

    assert stage.declared[0].elicitation is None
    assert ended.outcome is CallOutcome.UPSTREAM_ERROR
    assert "accepts_input" in (ended.error or {})["message"]


async def test_an_upstream_whose_state_has_expired_passes_its_error_on(engine: Engine) -> None:
    stage, call = TaskStage(), a_call_to(engine, "confirm")

    def refuse() -> None:
        raise MCPError(-32602, "requestState has expired")

    stage.on_retry = refuse
    async with running(engine, stage, call):
        await until_asked(engine, call)
        await answer(engine, call, {"r1.1": YES})
        (ended,) = await engine.until_final(call)

    assert ended.outcome is CallOutcome.UPSTREAM_ERROR
    assert (ended.error or {})["message"] == "requestState has expired"


async def test_an_answered_call_waits_for_an_upstream_that_is_away(engine: Engine) -> None:
    """Nothing was sent, so its answers are still good when it is back."""
    stage, call = TaskStage(), a_call_to(engine, "confirm")

    async with (
        serving(stage.app()) as server,
        opened(http_config(server.url), patience_seconds=0.05) as upstreams,
        engine.running(upstreams),
    ):
        await until_state(upstreams, "ready")
        await engine.queue(call)
        await until_asked(engine, call)
        await server.kill()
        await answer(engine, call, {"r1.1": YES})
        async with serving(stage.app(), port=server.port):
            (ended,) = await engine.until_final(call)

    assert ended.outcome is CallOutcome.RESULT
    assert (await result_of(engine, call))["sure"]["action"] == "accept"


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(("rerun_allowed", "outcome"), [(False, CallOutcome.UNKNOWN), (True, CallOutcome.RESULT)])
async def test_a_round_that_was_cut_off_is_sent_again_only_if_the_call_may_run_twice(
    engine: Engine, *, rerun_allowed: bool, outcome: CallOutcome
) -> None:
    stage, call = TaskStage(), a_call_to(engine, "confirm", rerun_allowed=rerun_allowed)

    async with running(engine, stage, call):
        await until_asked(engine, call)
    stage.gate.clear()
    await answer(engine, call, {"r1.1": YES})
    async with serving(stage.app()) as server, opened(http_config(server.url)) as upstreams:
        async with engine.running(upstreams, drain_seconds=0.0):
            await stage.until(lambda: stage.effects == ["confirm"])
        stage.gate.set()
        async with engine.running(upstreams):
            (ended,) = await engine.until_final(call)

    assert ended.outcome is outcome
    assert stage.effects == ["confirm"] * (2 if rerun_allowed else 1)


async def test_a_parked_call_past_its_deadline_has_timed_out(engine: Engine, clock: ShiftedClock) -> None:
    stage, call = TaskStage(), a_call_to(engine, "confirm")

    async with running(engine, stage, call):
        await until_asked(engine, call)
        clock.advance(3600)
        await engine.janitor().run_once()
        (ended,) = await engine.until_final(call)

    assert (ended.outcome, ended.input_requests) == (CallOutcome.TIMED_OUT, {})


async def test_a_cancellation_during_a_round_abandons_it(engine: Engine) -> None:
    stage, call = TaskStage(rounds=0), a_call_to(engine, "confirm")
    stage.gate.clear()

    async with running(engine, stage, call):
        await stage.until(lambda: stage.effects == ["confirm"])
        await ask_to_cancel(engine, call)
        (ended,) = await engine.until_final(call)

    assert ended.outcome is CallOutcome.CANCELLED
