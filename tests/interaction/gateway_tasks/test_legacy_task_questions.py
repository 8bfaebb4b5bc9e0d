"""The questions of a legacy task: sent during tasks/result, answered by one client, cancelled for the others."""

import logging
from typing import Final

import pytest

from ringback.mcp_server import legacy_task_elicitation
from tests.interaction.gateway_tasks.conftest import RELATED, TasksHarness
from tests.support.engine import wait_until
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, JsonRpcMessages, LegacyClientSession
from tests.support.task_upstream import ACCEPTED_ANSWER, QUESTION, UpstreamTask

UNFIT_ANSWER: Final[Json] = {"action": "accept", "content": {"sure": "perhaps"}}

pytestmark = pytest.mark.requirement("R30")


async def accept_question(
    harness: TasksHarness, session: LegacyClientSession, frames: JsonRpcMessages, task: UpstreamTask
) -> None:
    """Answer the next question, and let its task end with the answer."""
    await session.send_response(await frames.read_message("elicitation/create"), ACCEPTED_ANSWER)
    await harness.tasks.wait_until(lambda: task.answers == {"sure": ACCEPTED_ANSWER})
    task.complete_task("thanks")
    await frames.read_response()


@pytest.mark.must("L10")
@pytest.mark.must("L18")
@pytest.mark.must("L19")
@pytest.mark.requirement("R32")
@pytest.mark.requirement("R19")
async def test_a_question_is_sent_during_tasks_result_and_its_answer_reaches_the_tool(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    task_id, task = await harness.start_asking_task(session, _meta={"ringback/correlationId": "c-1"})
    async with session.open_request("tasks/result", {"taskId": task_id}) as frames:
        question = await frames.read_message("elicitation/create")
        assert question["params"]["message"] == QUESTION["params"]["message"]
        assert question["params"]["requestedSchema"] == QUESTION["params"]["requestedSchema"]
        assert question["params"]["_meta"][RELATED] == {"taskId": task_id}
        assert question["params"]["_meta"]["ringback/correlationId"] == "c-1"
        assert (await session.request("tasks/get", {"taskId": task_id}))["status"] == "input_required"
        await session.send_response(question, ACCEPTED_ANSWER)
        await harness.tasks.wait_until(lambda: task.answers == {"sure": ACCEPTED_ANSWER})
        task.complete_task("thanks")
        assert (await frames.read_response())["content"][0]["text"] == "thanks"


async def test_a_question_is_sent_again_to_a_client_that_reconnects(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    task_id, task = await harness.start_asking_task(session)
    async with session.open_request("tasks/result", {"taskId": task_id}) as lost:
        await lost.read_message("elicitation/create")
    async with session.open_request("tasks/result", {"taskId": task_id}) as frames:
        await accept_question(harness, session, frames, task)


@pytest.mark.requirement("R32")
async def test_a_question_that_is_answered_elsewhere_is_cancelled(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    task_id, _ = await harness.start_asking_task(session)
    async with session.open_request("tasks/result", {"taskId": task_id}) as frames:
        question = await frames.read_message("elicitation/create")
        modern = await harness.make_modern_client()
        requested = (await modern.request("tasks/get", {"taskId": task_id}))["inputRequests"]
        await modern.request(
            "tasks/update", {"taskId": task_id, "inputResponses": dict.fromkeys(requested, ACCEPTED_ANSWER)}
        )
        taken_back = await frames.read_message("notifications/cancelled")
        assert taken_back["params"]["requestId"] == question["id"]


async def test_a_question_that_the_client_refuses_stays_open_for_others(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    task_id, task = await harness.start_asking_task(session)
    async with session.open_request("tasks/result", {"taskId": task_id}) as frames:
        await session.send_response(await frames.read_message("elicitation/create"), {"nonsense": True})
        assert (await session.request("tasks/get", {"taskId": task_id}))["status"] == "input_required"
        task.complete_task("never mind")
        await frames.read_response()


@pytest.mark.requirement("R32")
async def test_a_question_whose_answer_is_refused_is_sent_again(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    """Its client had 202 for the answer, and went on waiting for a tool that still waited for one."""
    task_id, task = await harness.start_asking_task(session)
    async with session.open_request("tasks/result", {"taskId": task_id}) as frames:
        await session.send_response(await frames.read_message("elicitation/create"), UNFIT_ANSWER)
        await accept_question(harness, session, frames, task)


async def test_a_question_that_is_sent_again_says_why_its_last_answer_was_refused(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    task_id, task = await harness.start_task_in_session(session)
    task.request_input("sure")
    messages: list[str] = []
    async with session.open_request("tasks/result", {"taskId": task_id}) as frames:
        for answer in (UNFIT_ANSWER, UNFIT_ANSWER, ACCEPTED_ANSWER):
            question = await frames.read_message("elicitation/create")
            messages.append(question["params"]["message"])
            await session.send_response(question, answer)
        await harness.tasks.wait_until(lambda: task.answers == {"sure": ACCEPTED_ANSWER})
        task.complete_task("thanks")
        await frames.read_response()

    first, *again = messages
    assert first == QUESTION["params"]["message"]
    assert again[0] == again[1]
    assert again[0].startswith(f"{first}\n\nThe last answer was refused: The answer does not match the requestedSchema")
    assert "/content/sure" in again[0]


async def test_a_question_is_sent_three_times_at_most(
    harness: TasksHarness, session: LegacyClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that always sends the same unfit answer would otherwise be asked without end."""
    caplog.set_level(logging.INFO)
    task_id, task = await harness.start_asking_task(session)
    received: list[Json] = []
    async with session.open_request("tasks/result", {"taskId": task_id}) as frames:
        for _ in range(legacy_task_elicitation.QUESTION_SENT_MAX):
            await session.send_response(await frames.read_message("elicitation/create"), UNFIT_ANSWER)

        async def are_refused() -> bool:
            return caplog.messages.count("question.not_answered") == legacy_task_elicitation.QUESTION_SENT_MAX

        await wait_until(are_refused)
        task.complete_task("never mind")
        await frames.read_response(received)
    assert received == []


async def test_the_oldest_of_too_many_waiters_for_one_task_is_ended(
    harness: TasksHarness, session: LegacyClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy_task_elicitation, "RESULT_WAITERS_MAX", 1)
    task_id, task = await harness.start_asking_task(session)
    async with (
        session.open_request("tasks/result", {"taskId": task_id}) as older,
        session.open_request("tasks/result", {"taskId": task_id}) as newer,
    ):
        await newer.read_message("elicitation/create")
        with pytest.raises(JsonRpcErrorResponse, match="Newer") as refused:
            await older.read_response()
        assert refused.value.code == -32603
        task.complete_task("done")
        await newer.read_response()
