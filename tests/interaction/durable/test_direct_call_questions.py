"""Questions and cancellations of durable calls on MCP servers without a service in between."""

import json
from pathlib import Path

import pytest

from ringback.backoff import Backoff
from ringback.client.durable import CallCancelled, CallFailed, InputRequired
from ringback.client.durable.direct import rounds
from tests.support.durable_calls import DeadlineClock, calling, request_call
from tests.support.engine import wait_until
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.task_upstream import ACCEPTED_ANSWER, TaskUpstream, text_result
from tests.support.upstreams import ControlledUpstream


@pytest.mark.requirement("R06")
async def test_a_task_is_cancelled_once_and_the_second_cancel_says_the_same(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        handle = await request_call(make_caller(), "work")
        assert await make_caller().cancel_call_tool(handle)
        assert await make_caller().cancel_call_tool(handle)
        with pytest.raises(CallCancelled, match="cancelled"):
            await make_caller().join_call_tool(handle)


@pytest.mark.requirement("R06")
async def test_a_cancel_after_the_end_says_that_it_was_too_late(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        handle = await request_call(make_caller(), "work")
        upstream.tasks["task-1"].complete_task("done")
        assert not await make_caller().cancel_call_tool(handle)
        assert await make_caller().join_call_tool(handle) == text_result("done")


@pytest.mark.requirement("R06")
@pytest.mark.parametrize("tool", ["work", "long"])
async def test_a_legacy_call_is_cancelled_by_another_caller(tmp_path: Path, tool: str) -> None:
    upstream = LegacyUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        requester = make_caller()
        handle = await request_call(requester, tool)
        await requester.aclose()
        assert await make_caller().cancel_call_tool(handle)
        assert await make_caller().cancel_call_tool(handle)
        if tool == "work":
            await upstream.cancelled.wait()
        else:
            assert upstream.tasks["task-1"].status == "cancelled"
        with pytest.raises(CallCancelled):
            await make_caller().join_call_tool(handle)


async def test_a_plain_call_is_cancelled_by_the_caller_that_waits_for_it(tmp_path: Path) -> None:
    upstream = ControlledUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "hold")
        await upstream.wait_until_held(1)
        assert await caller.cancel_call_tool(handle)
        await upstream.cancelled.wait()
        with pytest.raises(CallCancelled):
            await caller.join_call_tool(handle)


async def test_questions_of_a_task_reach_the_join_and_are_answered_by_another_caller(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        handle = await request_call(make_caller(), "work", accepts_input=True)
        task = upstream.tasks["task-1"]
        task.request_input("sure")
        with pytest.raises(InputRequired, match="sure") as asked:
            await make_caller().join_call_tool(handle)
        assert asked.value.input_requests["sure"].params["message"] == "Really?"
        (found,) = await make_caller().list_calls()
        assert found.status == "input_required"

        await make_caller().answer_call_tool(handle, {"sure": ACCEPTED_ANSWER})
        assert task.answers == {"sure": ACCEPTED_ANSWER}
        task.complete_task("done")
        assert await make_caller().join_call_tool(handle) == text_result("done")


@pytest.mark.parametrize("ends", [True, False])
async def test_questions_of_a_task_that_another_client_has_answered_are_not_raised_again(
    tmp_path: Path,
    ends: bool,  # noqa: FBT001
) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        handle = await request_call(make_caller(), "work", accepts_input=True)
        task = upstream.tasks["task-1"]
        task.request_input("sure")
        for _ in range(2):
            with pytest.raises(InputRequired, match="sure"):
                await make_caller().join_call_tool(handle)

        task.complete_task("done") if ends else task.set_state(status="working")
        joined = await make_caller().join_call_tool(handle, timeout_seconds=WAIT_SECONDS if ends else 0.5)

        assert joined == (text_result("done") if ends else None)


async def test_a_task_with_questions_that_the_server_no_longer_knows_ends_as_unknown(tmp_path: Path) -> None:
    """Each join raised the same questions, and the server refused each answer."""
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        handle = await request_call(make_caller(), "work", accepts_input=True)
        upstream.tasks["task-1"].request_input("sure")
        with pytest.raises(InputRequired, match="sure"):
            await make_caller().join_call_tool(handle)

        upstream.tasks.clear()
        with pytest.raises(CallFailed) as failed:
            await make_caller().join_call_tool(handle)

    assert failed.value.outcome == "unknown"


async def test_a_tool_that_needs_time_in_more_than_a_hundred_rounds_ends_with_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "ROUND_BACKOFF", Backoff(first_seconds=0.0, longest_seconds=0.0))
    upstream = TaskUpstream(rounds=rounds.ROUNDS_MAX + 1)
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "moment")
        result = await caller.join_call_tool(handle, timeout_seconds=WAIT_SECONDS)

    assert (result is not None, len(upstream.requests)) == (True, rounds.ROUNDS_MAX + 2)


async def test_a_tool_that_needs_time_gets_its_next_rounds_while_no_join_waits(tmp_path: Path) -> None:
    upstream = TaskUpstream(rounds=3)
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        caller = make_caller()
        await request_call(caller, "moment")

        async def has_ended() -> bool:
            return [call.status for call in await caller.list_calls()] == ["completed"]

        await wait_until(has_ended)

    assert len(upstream.requests) == 4


async def test_a_tool_that_needs_time_goes_on_in_another_process_if_the_first_one_stops_between_two_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server holds nothing then. The next join read that the call was lost, and that its tool may have run."""
    monkeypatch.setattr(rounds, "ROUND_BACKOFF", Backoff(first_seconds=700.0, longest_seconds=700.0))
    upstream = TaskUpstream(rounds=1)
    async with calling(upstream.app(), tmp_path, clock=DeadlineClock()) as (_, make_caller):
        requester = make_caller()
        handle = await request_call(requester, "moment")

        async def waits_for_its_next_round() -> bool:
            return [call.handle.kind for call in await requester.list_calls()] == ["mrtr"]

        await wait_until(waits_for_its_next_round)
        await requester.aclose()
        result = await make_caller().join_call_tool(handle)

    assert (result is not None, len(upstream.requests)) == (True, 2)


async def test_questions_before_the_result_are_answered_in_rounds(tmp_path: Path) -> None:
    upstream = TaskUpstream(rounds=2)
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        requester = make_caller()
        handle = await request_call(requester, "confirm", accepts_input=True)
        assert (handle.kind, handle.rejoinable) == ("mrtr", True)
        await requester.aclose()

        for _ in range(2):
            with pytest.raises(InputRequired):
                await make_caller().join_call_tool(handle)
            await make_caller().answer_call_tool(handle, {"sure": ACCEPTED_ANSWER})
        result = await make_caller().join_call_tool(handle, timeout_seconds=WAIT_SECONDS)

    assert result is not None
    assert json.loads(result["content"][0]["text"]) == {"sure": ACCEPTED_ANSWER}
    assert upstream.side_effects == ["confirm"]


async def test_a_tool_that_asks_a_caller_that_cannot_answer_fails_with_advice(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        handle = await request_call(make_caller(), "confirm")
        with pytest.raises(CallFailed, match="accepts_input=True"):
            await make_caller().join_call_tool(handle)
