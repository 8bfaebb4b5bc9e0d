"""Calls whose tool asks before it works: parked for hours, answered, and never sent twice by mistake."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import MCPError

from ringback.backoff import Backoff
from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_rows import LEASED_ARGUMENT_BYTES_MAX
from ringback.domain.event import EventName
from ringback.domain.inputs import ACCEPT_INPUT_ADVICE
from ringback.runner.drivers import mrtr
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.builders import make_webhook
from tests.support.calls import answer_call, make_call_to, request_cancel, wait_for_call, wait_for_input_request
from tests.support.clock import OffsetClock
from tests.support.engine import Engine
from tests.support.task_upstream import ACCEPTED_ANSWER, TaskUpstream
from tests.support.upstreams import HttpServer, make_http_config, open_upstreams, serving, wait_for_state

DECLINED_ANSWER: dict[str, Any] = {"action": "decline"}


@asynccontextmanager
async def running_runner(engine: Engine, stage: TaskUpstream, *calls: Call) -> AsyncGenerator[UpstreamRegistry]:
    async with serving(stage.app()) as server, running_process(engine, server, *calls) as upstreams:
        yield upstreams


@asynccontextmanager
async def running_process(engine: Engine, server: HttpServer, *calls: Call) -> AsyncGenerator[UpstreamRegistry]:
    await engine.insert_calls(*calls)
    async with open_upstreams(make_http_config(server.url)) as upstreams, engine.running_runner(upstreams):
        yield upstreams


async def read_result(engine: Engine, call: Call) -> Any:
    """What the tool says that it was answered."""
    body = json.loads(await engine.read_result(call) or b"null")
    return json.loads(body["content"][0]["text"])


@pytest.mark.requirement("R32")
async def test_an_input_request_parks_the_call_sends_a_callback_and_holds_no_connection(engine: Engine) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "confirm")
    await engine.insert_webhooks(make_webhook())

    async with running_runner(engine, stage, call) as upstreams:
        parked = await wait_for_input_request(engine, call)
        (info,) = upstreams.tool_catalog.list_upstreams()

    assert (parked.phase, parked.lease_token, info.calls_in_flight) == (CallPhase.PARKED, None, 0)
    assert parked.input_requests["r1.1"].params["message"] == "Really?"
    (event,) = await engine.read_events()
    (delivery,) = await engine.read_deliveries()
    assert (event.name, event.data["status"], event.data["input_keys"]) == (
        EventName.CALL_INPUT_REQUIRED, "input_required", ["r1.1"],
    )  # fmt: skip
    assert b"Really?" not in delivery.body
    assert b"sure" not in delivery.body
    assert stage.side_effects == []


@pytest.mark.requirement("R32")
@pytest.mark.requirement("R35")
async def test_a_call_is_answered_hours_and_restarts_later(engine: Engine, clock: OffsetClock) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "confirm", deadline_in=86_400)

    async with serving(stage.app()) as server:
        async with running_process(engine, server, call):
            await wait_for_input_request(engine, call)
        clock.advance(8 * 3600)
        await engine.run_recovery()
        answered = await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        async with running_process(engine, server):
            (ended,) = await engine.wait_until_final(call)

    assert (answered.call.phase, answered.call.status) == (CallPhase.QUEUED, CallStatus.WORKING)
    assert (ended.outcome, ended.runs) == (CallOutcome.RESULT, 1)
    assert (await read_result(engine, call))["sure"]["content"] == {"sure": True}
    assert stage.side_effects == ["confirm"]


async def test_every_round_has_keys_of_its_own(engine: Engine) -> None:
    stage, call = TaskUpstream(rounds=3), make_call_to(engine, "confirm")
    asked: list[str] = []

    async with running_runner(engine, stage, call):
        for number in range(1, 4):
            await wait_for_input_request(engine, call)
            asked += (await engine.read_call(call)).input_requests
            answered = await answer_call(engine, call, {"r1.1": DECLINED_ANSWER, f"r{number}.1": ACCEPTED_ANSWER})
            assert answered.accepted == [f"r{number}.1"] or number == 1
        (ended,) = await engine.wait_until_final(call)

    assert asked == ["r1.1", "r2.1", "r3.1"]
    assert ended.outcome is CallOutcome.RESULT
    assert len(await engine.read_events()) == 4


async def test_a_tool_that_returns_only_request_state_is_retried_without_input(engine: Engine) -> None:
    stage, call = TaskUpstream(rounds=3), make_call_to(engine, "moment")

    async with running_runner(engine, stage, call):
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.input_round) == (CallOutcome.RESULT, 0)
    assert [json.loads(params.request_state or "{}").get("round") for _, params in stage.requests] == [None, 1, 2, 3]


async def test_a_tool_that_needs_time_in_more_than_a_hundred_rounds_ends_with_its_result(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 5 s each, such a call was ended after eight minutes, as one whose upstream had asked for input too often."""
    monkeypatch.setattr(mrtr, "ROUND_BACKOFF", Backoff(first_seconds=0.0, longest_seconds=0.0))
    stage, call = TaskUpstream(rounds=mrtr.ROUNDS_MAX + 1), make_call_to(engine, "moment")

    async with running_runner(engine, stage, call):
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, len(stage.requests)) == (CallOutcome.RESULT, mrtr.ROUNDS_MAX + 2)


async def test_a_tool_that_asks_in_more_rounds_than_the_limit_is_ended(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mrtr, "ROUNDS_MAX", 2)
    stage, call = TaskUpstream(rounds=3), make_call_to(engine, "confirm")

    async with running_runner(engine, stage, call):
        for key in ("r1.1", "r2.1"):
            await wait_for_call(engine, call, lambda found, key=key: key in found.input_requests)
            await answer_call(engine, call, {key: ACCEPTED_ANSWER})
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, len(stage.requests)) == (CallOutcome.UPSTREAM_ERROR, 3)
    assert "more than 2 times" in (ended.error or {})["message"]


@pytest.mark.parametrize("text", ["short", "x" * LEASED_ARGUMENT_BYTES_MAX], ids=["small", "large"])
async def test_each_round_repeats_the_arguments(engine: Engine, text: str) -> None:
    """In one process and after a wait for an answer; large ones are not read with the lease."""
    stage, arguments = TaskUpstream(rounds=2), {"text": text}
    calls = [make_call_to(engine, tool, arguments=arguments) for tool in ("confirm", "moment")]

    async with running_runner(engine, stage, *calls):
        for key in ("r1.1", "r2.1"):
            await wait_for_call(engine, calls[0], lambda call, key=key: key in call.input_requests)
            await answer_call(engine, calls[0], {key: ACCEPTED_ANSWER})
        ended = await engine.wait_until_final(*calls)

    assert [call.outcome for call in ended] == [CallOutcome.RESULT] * 2
    assert [params.arguments for _, params in stage.requests] == [arguments] * 6


@pytest.mark.requirement("R32")
async def test_a_tool_that_requires_input_fails_the_call_if_the_starter_cannot_answer(engine: Engine) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "confirm", accepts_input=False)

    async with running_runner(engine, stage, call):
        (ended,) = await engine.wait_until_final(call)

    assert stage.declared[0].elicitation is None
    assert ended.outcome is CallOutcome.UPSTREAM_ERROR
    assert (ended.error or {})["message"].endswith(ACCEPT_INPUT_ADVICE)


async def test_an_upstream_whose_state_has_expired_passes_its_error_on(engine: Engine) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "confirm")

    def refuse() -> None:
        raise MCPError(-32602, "requestState has expired")

    stage.on_retry = refuse
    async with running_runner(engine, stage, call):
        await wait_for_input_request(engine, call)
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.UPSTREAM_ERROR
    assert (ended.error or {})["message"] == "requestState has expired"


async def test_an_answered_call_waits_for_an_unreachable_upstream(engine: Engine) -> None:
    """Nothing was sent, so its answers are still good when it is back."""
    stage, call = TaskUpstream(), make_call_to(engine, "confirm")

    async with (
        serving(stage.app()) as server,
        open_upstreams(make_http_config(server.url), patience_seconds=0.05) as upstreams,
        engine.running_runner(upstreams),
    ):
        await wait_for_state(upstreams, "ready")
        await engine.insert_calls(call)
        await wait_for_input_request(engine, call)
        await server.kill_server()
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        async with serving(stage.app(), port=server.port):
            (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.RESULT
    assert (await read_result(engine, call))["sure"]["action"] == "accept"


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(("rerun_allowed", "outcome"), [(False, CallOutcome.UNKNOWN), (True, CallOutcome.RESULT)])
async def test_a_round_that_was_cut_off_is_sent_again_only_if_the_call_may_run_twice(
    engine: Engine, *, rerun_allowed: bool, outcome: CallOutcome
) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "confirm", rerun_allowed=rerun_allowed)

    await engine.insert_calls(call)
    async with serving(stage.app()) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        async with engine.running_runner(upstreams):
            await wait_for_input_request(engine, call)
        stage.tools_may_respond.clear()
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        async with engine.running_runner(upstreams, drain_seconds=0.0):
            await stage.wait_until(lambda: stage.side_effects == ["confirm"])
        stage.tools_may_respond.set()
        async with engine.running_runner(upstreams):
            (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is outcome
    assert stage.side_effects == ["confirm"] * (2 if rerun_allowed else 1)


async def test_a_parked_call_past_its_deadline_has_timed_out(engine: Engine, clock: OffsetClock) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "confirm")

    async with running_runner(engine, stage, call):
        await wait_for_input_request(engine, call)
        clock.advance(3600)
        await engine.make_janitor().run_once()
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.input_requests) == (CallOutcome.TIMED_OUT, {})


async def test_a_cancellation_during_a_round_abandons_it(engine: Engine) -> None:
    stage, call = TaskUpstream(rounds=0), make_call_to(engine, "confirm")
    stage.tools_may_respond.clear()

    async with running_runner(engine, stage, call):
        await stage.wait_until(lambda: stage.side_effects == ["confirm"])
        await request_cancel(engine, call)
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.CANCELLED
