"""A tool's questions reach the waiting client, as InputRequiredResult or as elicitation/create."""

import asyncio
import json
from typing import Any, Final

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.inputs import InputAnswer
from ringback.domain.principal import Caller
from ringback.mcp_server import elicitation
from ringback.services.calls.input_answers import InputAnswers
from tests.interaction.gateway.conftest import ELICITATION_CAPABILITY, NO_CAPABILITIES, GatewayHarness
from tests.support.interop_upstream import BLUE_ANSWER
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, ModernClient

UPSTREAMS: Final = ("old-paint", "paint", "tasks")

pytestmark = pytest.mark.requirement("R32")


async def start_asking_call(client: ModernClient, name: str = "ask", **rest: Any) -> Json:
    return await client.request("tools/call", {"name": name, "arguments": {}, **rest}, declare=ELICITATION_CAPABILITY)


async def test_a_modern_client_gets_an_input_request_and_answers_with_a_retry(gate: GatewayHarness) -> None:
    for upstream in ("paint", "old-paint"):
        client = await gate.make_modern_client(upstream)
        question = await start_asking_call(client, _meta={"ringback/correlationId": "colour"})
        ((key, request),) = question["inputRequests"].items()
        assert question["resultType"] == "input_required"
        assert (request["method"], request["params"]["message"]) == ("elicitation/create", "Which colour?")
        assert question["_meta"]["ringback/correlationId"] == "colour"

        answer = await start_asking_call(
            client, requestState=question["requestState"], inputResponses={key: BLUE_ANSWER}
        )

        assert answer["content"][0]["text"] == "painted blue"
        assert answer["_meta"]["ringback/callId"] == question["_meta"]["ringback/callId"]


async def test_each_input_round_has_its_own_keys(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("tasks")
    first = await start_asking_call(client, "confirm")
    (key,) = first["inputRequests"]
    answer = await start_asking_call(
        client,
        "confirm",
        requestState=first["requestState"],
        inputResponses={key: {"action": "accept", "content": {"sure": True}}},
    )
    assert key not in answer.get("inputRequests", {})
    assert json.loads(answer["content"][0]["text"])["sure"]["content"] == {"sure": True}


async def test_a_legacy_client_gets_an_elicitation_on_its_waiting_stream(gate: GatewayHarness) -> None:
    for upstream in ("paint", "old-paint"):
        async with gate.open_legacy_session(upstream) as session:
            params: Json = {"name": "ask", "arguments": {}, "_meta": {"ringback/clientSessionId": "s-1"}}
            async with session.open_request("tools/call", params) as frames:
                question = await frames.read_message("elicitation/create")
                assert question["params"]["message"] == "Which colour?"
                assert question["params"]["_meta"]["ringback/clientSessionId"] == "s-1"
                await session.send_response(question, BLUE_ANSWER)
                assert (await frames.read_response())["content"][0]["text"] == "painted blue"


async def test_a_client_without_the_elicitation_capability_gets_no_elicitation(
    gate: GatewayHarness, modern: ModernClient
) -> None:
    params: Json = {"name": "ask", "arguments": {}}
    with pytest.raises(JsonRpcErrorResponse, match="asks for input"):
        await modern.request("tools/call", params, declare=NO_CAPABILITIES)
    async with gate.open_legacy_session(capabilities={}) as session:
        received: list[Json] = []
        with pytest.raises(JsonRpcErrorResponse, match="asks for input"):
            await session.request("tools/call", params, received=received)
        assert received == []


async def test_an_input_request_that_its_client_cannot_answer_stays_open_for_other_surfaces(
    gate: GatewayHarness,
) -> None:
    async with (
        gate.open_legacy_session() as session,
        session.open_request("tools/call", {"name": "ask", "arguments": {}}) as frames,
    ):
        question = await frames.read_message("elicitation/create")
        await session.send_error(question)
        pending = await frames.read_response()
    call_id = pending["_meta"]["ringback/callId"]
    call = (await gate.request_rest("GET", f"/v1/calls/{call_id}")).json()
    (key,) = call["input_requests"]
    assert call["status"] == "input_required"
    assert "ringback_answer_call" in pending["content"][0]["text"]
    await gate.request_rest("POST", f"/v1/calls/{call_id}/input", json={"responses": {key: BLUE_ANSWER}})
    assert (await gate.wait_until_ended(call_id))["outcome"] == "result"


async def start_call_and_answer(gate: GatewayHarness) -> tuple[str, Json]:
    """The id of a call that asks, and an answer to it that the question's client of 2025-11-25 would post."""
    question = await start_asking_call(await gate.make_modern_client())
    call_id = question["_meta"]["ringback/callId"]
    (key,) = (await gate.request_rest("GET", f"/v1/calls/{call_id}")).json()["input_requests"]
    answer = {"jsonrpc": "2.0", "id": f"elicit:{call_id}:{key}:00", "result": BLUE_ANSWER}
    return call_id, answer


@pytest.mark.parametrize(("user_agent", "status"), [("node", 503), ("python-httpx/0.28.1", 404)])
async def test_an_answer_that_cannot_be_stored_is_refused_and_can_be_sent_again(
    gate: GatewayHarness, monkeypatch: pytest.MonkeyPatch, user_agent: str, status: int
) -> None:
    """An answer to a question of another node, or of an earlier process, is in no memory here.

    The Python SDK 1.x, which uses httpx, ends at each HTTP error but for 404, with all its requests.
    """
    call_id, answer = await start_call_and_answer(gate)

    async def fail(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("The database cannot be reached.")

    async with gate.open_legacy_session() as session:
        with monkeypatch.context() as outage:
            outage.setattr(InputAnswers, "answer_input", fail)
            outage.setattr(elicitation, "STORE_WAIT_SECONDS", 0.0)
            headers = {**session.headers, "user-agent": user_agent}
            refused = await session.http.post(session.url, json=answer, headers=headers)
        stored = await session.http.post(session.url, json=answer, headers=session.headers)
    assert (refused.status_code, stored.status_code) == (status, 202)
    assert (await gate.wait_until_ended(call_id))["outcome"] == "result"


async def test_an_answer_is_stored_when_the_store_is_back(
    gate: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No SDK sends an answer again, and an HTTP error in response to one ends all requests of a client on the SDK 1.x."""
    call_id, answer = await start_call_and_answer(gate)
    answer_input, attempts = InputAnswers.answer_input, list[str]()

    async def fail_twice(answers: InputAnswers, caller: Caller, asked_id: str, responses: Json) -> InputAnswer:
        attempts.append(asked_id)
        if len(attempts) <= 2:
            raise StoreUnavailable("The database cannot be reached.")
        return await answer_input(answers, caller, asked_id, responses)

    monkeypatch.setattr(InputAnswers, "answer_input", fail_twice)
    async with gate.open_legacy_session() as session:
        stored = await session.http.post(session.url, json=answer, headers=session.headers)
    assert (stored.status_code, len(attempts)) == (202, 3)
    assert (await gate.wait_until_ended(call_id))["outcome"] == "result"


async def test_the_first_answer_wins_on_any_surface(gate: GatewayHarness) -> None:
    async with (
        gate.open_legacy_session() as session,
        session.open_request("tools/call", {"name": "ask", "arguments": {}}) as frames,
    ):
        await frames.read_message("elicitation/create")
        (call,) = [
            call
            for call in (await gate.request_rest("GET", "/v1/calls?status=input_required&tool=ask")).json()["calls"]
            if call["upstream"] == "paint"
        ]
        (key,) = call["input_requests"]
        await gate.request_rest("POST", f"/v1/calls/{call['id']}/input", json={"responses": {key: BLUE_ANSWER}})
        assert (await frames.read_response())["content"][0]["text"] == "painted blue"


async def test_a_request_state_is_valid_only_for_its_principal_and_tool(
    gate: GatewayHarness, modern: ModernClient
) -> None:
    question = await start_asking_call(modern)
    state, (key,) = question["requestState"], question["inputRequests"]
    assert question["_meta"]["ringback/callId"] not in state
    bob = await gate.make_modern_client(principal="bob")
    for client, name, sent in (
        (bob, "ask", state),
        (modern, "count", state),
        (modern, "ask", state[:-8] + "AAAAAAA="),
        (modern, "ask", "nonsense"),
        (modern, "ask", ""),
    ):
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await start_asking_call(client, name, requestState=sent, inputResponses={key: BLUE_ANSWER})
        assert refused.value.code == -32602
    assert (await start_asking_call(modern, requestState=state, inputResponses={key: BLUE_ANSWER}))["content"][0][
        "text"
    ] == "painted blue"


async def test_a_request_that_is_repeated_twice_runs_the_tool_once(gate: GatewayHarness, modern: ModernClient) -> None:
    question = await start_asking_call(modern)
    (key,) = question["inputRequests"]
    again: Json = {"requestState": question["requestState"], "inputResponses": {key: BLUE_ANSWER}}
    first, second = await start_asking_call(modern, **again), await start_asking_call(modern, **again)
    assert first["content"] == second["content"]
    assert len(gate.interop.seen_meta) == 2  # the question, and the answer


async def test_a_client_that_answers_nothing_gets_the_same_input_request_again(modern: ModernClient) -> None:
    question = await start_asking_call(modern)
    again = await start_asking_call(modern, requestState=question["requestState"])
    assert again["inputRequests"] == question["inputRequests"]


async def test_an_input_request_of_an_upstream_task_is_answered_through_the_task(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("tasks")
    count = len(gate.tasks.tasks)
    answer = asyncio.create_task(client.request("tools/call", {"name": "work", "arguments": {}}))
    task = await gate.tasks.wait_for_task(count + 1)
    task.request_input("sure")
    created = await answer
    assert created["resultType"] == "task"
    task.complete_task("done")
    await gate.wait_until_ended(created["taskId"])
