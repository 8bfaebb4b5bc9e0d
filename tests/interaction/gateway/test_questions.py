"""A tool's questions, put to the client that waits: by InputRequiredResult, or by elicitation/create."""

import asyncio
import json
from typing import Any

import pytest

from tests.interaction.gateway.conftest import ASKABLE, NO_CAPABILITIES, Gate
from tests.support.interop_stage import BLUE
from tests.support.mcp_wire import Json, Modern, Refused

pytestmark = pytest.mark.requirement("R32")


async def asked(client: Modern, name: str = "ask", **rest: Any) -> Json:
    return await client.result("tools/call", {"name": name, "arguments": {}, **rest}, declare=ASKABLE)


async def test_the_client_of_today_is_asked_and_answers_with_its_request_again(gate: Gate) -> None:
    for upstream in ("paint", "old-paint"):
        client = await gate.modern(upstream)
        question = await asked(client, _meta={"ringback/correlationId": "colour"})
        ((key, request),) = question["inputRequests"].items()
        assert question["resultType"] == "input_required"
        assert (request["method"], request["params"]["message"]) == ("elicitation/create", "Which colour?")
        assert question["_meta"]["ringback/correlationId"] == "colour"

        answer = await asked(client, requestState=question["requestState"], inputResponses={key: BLUE})

        assert answer["content"][0]["text"] == "painted blue"
        assert answer["_meta"]["ringback/callId"] == question["_meta"]["ringback/callId"]


async def test_several_rounds_have_keys_of_their_own(gate: Gate) -> None:
    client = await gate.modern("tasks")
    first = await asked(client, "confirm")
    (key,) = first["inputRequests"]
    answer = await asked(
        client,
        "confirm",
        requestState=first["requestState"],
        inputResponses={key: {"action": "accept", "content": {"sure": True}}},
    )
    assert key not in answer.get("inputRequests", {})
    assert json.loads(answer["content"][0]["text"])["sure"]["content"] == {"sure": True}


async def test_the_client_of_before_is_asked_on_its_waiting_stream(gate: Gate) -> None:
    for upstream in ("paint", "old-paint"):
        async with gate.session(upstream) as session:
            params: Json = {"name": "ask", "arguments": {}, "_meta": {"ringback/clientSessionId": "s-1"}}
            async with session.asking("tools/call", params) as frames:
                question = await frames.next("elicitation/create")
                assert question["params"]["message"] == "Which colour?"
                assert question["params"]["_meta"]["ringback/clientSessionId"] == "s-1"
                await session.reply(question, BLUE)
                assert (await frames.answer())["content"][0]["text"] == "painted blue"


async def test_whoever_declares_no_elicitation_is_not_asked(gate: Gate, modern: Modern) -> None:
    params: Json = {"name": "ask", "arguments": {}}
    with pytest.raises(Refused, match="asks for input"):
        await modern.result("tools/call", params, declare=NO_CAPABILITIES)
    async with gate.session(capabilities={}) as session:
        heard: list[Json] = []
        with pytest.raises(Refused, match="asks for input"):
            await session.result("tools/call", params, heard=heard)
        assert heard == []


async def test_a_question_that_its_client_cannot_answer_stays_open_for_other_doors(gate: Gate) -> None:
    async with gate.session() as session, session.asking("tools/call", {"name": "ask", "arguments": {}}) as frames:
        question = await frames.next("elicitation/create")
        await session.refuse(question)
        pending = await frames.answer()
    call_id = pending["_meta"]["ringback/callId"]
    call = (await gate.rest("GET", f"/v1/calls/{call_id}")).json()
    (key,) = call["input_requests"]
    assert call["status"] == "input_required"
    assert "ringback_answer_call" in pending["content"][0]["text"]
    await gate.rest("POST", f"/v1/calls/{call_id}/input", json={"responses": {key: BLUE}})
    assert (await gate.ended(call_id))["outcome"] == "result"


async def test_the_first_answer_counts_whatever_door_it_comes_through(gate: Gate) -> None:
    async with gate.session() as session, session.asking("tools/call", {"name": "ask", "arguments": {}}) as frames:
        await frames.next("elicitation/create")
        (call,) = [
            call
            for call in (await gate.rest("GET", "/v1/calls?status=input_required&tool=ask")).json()["calls"]
            if call["upstream"] == "paint"
        ]
        (key,) = call["input_requests"]
        await gate.rest("POST", f"/v1/calls/{call['id']}/input", json={"responses": {key: BLUE}})
        assert (await frames.answer())["content"][0]["text"] == "painted blue"


async def test_a_request_state_is_good_for_its_principal_and_its_tool_only(gate: Gate, modern: Modern) -> None:
    question = await asked(modern)
    state, (key,) = question["requestState"], question["inputRequests"]
    assert question["_meta"]["ringback/callId"] not in state
    bob = await gate.modern(principal="bob")
    for client, name, sent in (
        (bob, "ask", state),
        (modern, "count", state),
        (modern, "ask", state[:-8] + "AAAAAAA="),
        (modern, "ask", "nonsense"),
        (modern, "ask", ""),
    ):
        with pytest.raises(Refused) as refused:
            await asked(client, name, requestState=sent, inputResponses={key: BLUE})
        assert refused.value.code == -32602
    assert (await asked(modern, requestState=state, inputResponses={key: BLUE}))["content"][0]["text"] == "painted blue"


async def test_sending_it_again_twice_runs_the_tool_once(gate: Gate, modern: Modern) -> None:
    question = await asked(modern)
    (key,) = question["inputRequests"]
    again: Json = {"requestState": question["requestState"], "inputResponses": {key: BLUE}}
    first, second = await asked(modern, **again), await asked(modern, **again)
    assert first["content"] == second["content"]
    assert len(gate.paint.seen_meta) == 2  # the question, and the answer


async def test_a_client_that_answers_nothing_is_asked_the_same_again(modern: Modern) -> None:
    question = await asked(modern)
    again = await asked(modern, requestState=question["requestState"])
    assert again["inputRequests"] == question["inputRequests"]


async def test_what_a_task_of_the_upstream_asks_is_its_tasks_to_ask(gate: Gate) -> None:
    client = await gate.modern("tasks")
    count = len(gate.tasks.tasks)
    answer = asyncio.create_task(client.result("tools/call", {"name": "work", "arguments": {}}))
    task = await gate.tasks.task(count + 1)
    task.ask("sure")
    created = await answer
    assert created["resultType"] == "task"
    task.complete("done")
    await gate.ended(created["taskId"])
