"""The requests with which an agent parks a call, reads how it stands, and answers its questions."""

from typing import Any

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st

from ringback.agents import (
    AgentCalls,
    CallStateKind,
    derive_idempotency_key,
    read_call_state,
    read_call_states,
    refuse_if_early,
)
from ringback.agents.agent_calls import REFUSALS
from ringback.agents.wake_up import current_time
from ringback.client import Conflict, InvalidArgument, InvalidRequest, RingbackClient
from ringback.schemas import examples
from tests.support.mocked_requests import get_last_request, list_requests, parse_body

CALL = examples.WORKING_CALL
CALL_PATH = f"/v1/calls/{examples.CALL_ID}"
PROBLEM = {"content-type": "application/problem+json"}


def started(call: dict[str, Any]) -> httpx.Response:
    return httpx.Response(202, json={"call": call, "resume_token": "token", "webhooks": []})


async def test_a_parked_call_carries_the_frameworks_own_ids(calls: AgentCalls, service: respx.MockRouter) -> None:
    route = service.post("/v1/calls").mock(return_value=started(CALL))

    state = await calls.park("git_log", {"max_count": 10}, client_session_id="session-7", tool_call_id="weekly-report")

    assert parse_body(get_last_request(route)) == {
        "upstream": "git",
        "tool": "git_log",
        "arguments": {"max_count": 10},
        "client_session_id": "session-7",
        "correlation_id": "weekly-report",
    }
    assert (state.kind, state.is_final, state.call_id) == (CallStateKind.WORKING, False, examples.CALL_ID)
    assert (state.client_session_id, state.tool_call_id) == ("session-7", "weekly-report")


async def test_parking_twice_uses_the_same_idempotency_key(calls: AgentCalls, service: respx.MockRouter) -> None:
    route = service.post("/v1/calls").mock(return_value=started(CALL))

    for _ in range(2):
        await calls.park("git_log", {}, client_session_id="s", tool_call_id="t")

    first, second = (request.headers["idempotency-key"] for request in list_requests(route))
    assert first == second


CONFLICT = {"type": "/problems/idempotency-conflict", "status": 409, "detail": "This Idempotency-Key was used."}


async def test_parking_again_finds_the_call_although_the_agent_has_another_callback_url_now(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    """LangGraph parks again at each wake, and the agent may have moved meanwhile."""
    service.post("/v1/calls").mock(return_value=httpx.Response(409, json=CONFLICT, headers=PROBLEM))
    listing = service.get("/v1/calls").respond(json={"calls": [CALL], "next_cursor": None})
    calls = AgentCalls(client, "git", {"callback": {"url": "https://new.example/callbacks"}})

    state = await calls.park("git_log", {}, client_session_id="s", tool_call_id="t")

    assert (state.kind, state.call_id) == (CallStateKind.WORKING, examples.CALL_ID)
    assert dict(get_last_request(listing).url.params) == {
        "client_session_id": "s",
        "correlation_id": "t",
        "upstream": "git",
        "tool": "git_log",
    }


@pytest.mark.parametrize("listed", [[], [CALL, CALL]], ids=["none", "several"])
async def test_a_conflict_whose_call_is_not_certain_is_raised(
    calls: AgentCalls, service: respx.MockRouter, listed: list[dict[str, Any]]
) -> None:
    service.post("/v1/calls").mock(return_value=httpx.Response(409, json=CONFLICT, headers=PROBLEM))
    service.get("/v1/calls").respond(json={"calls": listed, "next_cursor": None})

    with pytest.raises(Conflict):
        await calls.park("git_log", {}, client_session_id="s", tool_call_id="t")


async def test_options_go_with_every_call(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.post("/v1/calls").mock(return_value=started(CALL))
    callback = {"url": "https://agent.example/callbacks"}
    calls = AgentCalls(client, "git", {"callback": {"url": callback["url"]}, "accepts_input": True})

    await calls.park("git_log", {}, client_session_id="s", tool_call_id="t")

    body = parse_body(get_last_request(route))
    assert (body["callback"], body["accepts_input"]) == (callback, True)


async def test_a_call_that_has_ended_at_its_start_brings_its_result(
    calls: AgentCalls, service: respx.MockRouter
) -> None:
    service.post("/v1/calls").mock(return_value=started(examples.FINISHED_CALL))
    service.get(f"{CALL_PATH}/result").respond(json=examples.RESULT)

    state = await calls.park("git_log", {}, client_session_id="s", tool_call_id="t")

    assert (state.kind, state.result) == (CallStateKind.RESULT, examples.RESULT)


async def test_a_refused_start_has_a_text_for_the_model(calls: AgentCalls, service: respx.MockRouter) -> None:
    problem = {"type": "/problems/invalid-arguments", "status": 422, "detail": "below: 'x' is not an integer"}
    service.post("/v1/calls").mock(return_value=httpx.Response(422, json=problem, headers=PROBLEM))

    with pytest.raises(InvalidRequest, match="is not an integer"):
        await calls.park("git_log", {"below": "x"}, client_session_id="s", tool_call_id="t")


async def test_arguments_that_are_not_json_have_a_text_for_the_model(
    calls: AgentCalls, service: respx.MockRouter
) -> None:
    with pytest.raises(REFUSALS, match="`arguments` cannot be sent as JSON"):
        await calls.park("git_log", {"below": float("nan")}, client_session_id="s", tool_call_id="t")

    assert not service.calls


async def test_options_that_are_not_json_are_refused_at_once_and_not_shown_to_a_model(client: RingbackClient) -> None:
    """Only the developer can correct them, and a model would read about them after each of its calls."""
    with pytest.raises(InvalidArgument, match="`timeout_seconds` cannot be sent as JSON"):
        AgentCalls(client, "git", {"timeout_seconds": float("nan")})


async def test_the_state_of_a_working_call_needs_one_request(client: RingbackClient, service: respx.MockRouter) -> None:
    service.get(CALL_PATH).respond(json=CALL)

    assert (await read_call_state(client, examples.CALL_ID)).kind is CallStateKind.WORKING


async def test_an_expired_call_has_failed(client: RingbackClient, service: respx.MockRouter) -> None:
    problem = {"type": "/problems/call-expired", "status": 410, "detail": "The call has expired."}
    service.get(CALL_PATH).mock(return_value=httpx.Response(410, json=problem, headers=PROBLEM))

    state = await read_call_state(client, examples.CALL_ID)

    assert (state.kind, state.is_final, state.is_expired) == (CallStateKind.FAILED, True, True)
    assert "has expired" in state.text
    refuse_if_early(state, current_time())  # its agent is not about to store it


WAIT_PATH = "/v1/calls/wait"
OTHER_ID = "call_other"


async def test_the_states_of_several_calls_need_one_request_while_one_of_them_works(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    calls = [{**CALL, "id": OTHER_ID}, examples.FINISHED_CALL]
    route = service.post(WAIT_PATH).respond(json={"calls": calls, "done": False})

    states = await read_call_states(client, [OTHER_ID, examples.CALL_ID])

    assert [state.kind for state in states.values()] == [CallStateKind.WORKING, CallStateKind.RESULT]
    assert states[examples.CALL_ID].result is None
    body = parse_body(get_last_request(route))
    assert (body["call_ids"], body["wait_seconds"]) == ([OTHER_ID, examples.CALL_ID], 0)


async def test_the_results_of_several_calls_are_read_once_all_have_ended(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    calls = [examples.FINISHED_CALL, {**examples.FINISHED_CALL, "id": OTHER_ID}]
    service.post(WAIT_PATH).respond(json={"calls": calls, "done": True})
    service.get(f"{CALL_PATH}/result").respond(json=examples.RESULT)
    service.get(f"/v1/calls/{OTHER_ID}/result").respond(json={"content": []})

    states = await read_call_states(client, [examples.CALL_ID, OTHER_ID])

    assert {call_id: state.result for call_id, state in states.items()} == {
        examples.CALL_ID: examples.RESULT,
        OTHER_ID: {"content": []},
    }


async def test_an_expired_call_among_several_has_failed(client: RingbackClient, service: respx.MockRouter) -> None:
    problem = {"type": "/problems/call-expired", "status": 410, "detail": "The call has expired."}
    gone = httpx.Response(410, json=problem, headers=PROBLEM)
    service.post(WAIT_PATH).mock(return_value=gone)
    service.get(f"/v1/calls/{OTHER_ID}").mock(return_value=gone)
    service.get(CALL_PATH).respond(json=examples.FINISHED_CALL)
    service.get(f"{CALL_PATH}/result").respond(json=examples.RESULT)

    states = await read_call_states(client, [OTHER_ID, examples.CALL_ID])

    assert "has expired" in states[OTHER_ID].text
    assert states[examples.CALL_ID].result == examples.RESULT


async def test_more_calls_than_one_request_takes_are_read_in_several(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        calls = [{**CALL, "id": call_id} for call_id in parse_body(request)["call_ids"]]
        return httpx.Response(200, json={"calls": calls, "done": False})

    route = service.post(WAIT_PATH).mock(side_effect=respond)
    ids = [f"call_{number}" for number in range(101)]

    states = await read_call_states(client, ids)

    assert list(states) == ids
    assert [len(parse_body(request)["call_ids"]) for request in list_requests(route)] == [100, 1]


async def test_no_calls_need_no_request(client: RingbackClient, service: respx.MockRouter) -> None:
    assert not service.routes
    assert await read_call_states(client, []) == {}


async def test_a_state_that_is_read_without_its_result_needs_one_request(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.get(CALL_PATH).respond(json=examples.FINISHED_CALL)

    state = await read_call_state(client, examples.CALL_ID, with_result=False)

    assert (state.kind, state.result) == (CallStateKind.RESULT, None)


async def test_parking_a_call_again_after_its_result_has_expired_starts_nothing(
    calls: AgentCalls, service: respx.MockRouter
) -> None:
    problem = {"type": "/problems/call-expired", "status": 410, "detail": "The call has expired."}
    service.post("/v1/calls").mock(return_value=httpx.Response(410, json=problem, headers=PROBLEM))

    state = await calls.park("git_log", {}, client_session_id="s", tool_call_id="t")

    assert (state.kind, state.is_final) == (CallStateKind.FAILED, True)
    assert "has expired" in state.text


async def test_unknown_tool_names_are_listed_with_the_known_ones(calls: AgentCalls, service: respx.MockRouter) -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("git_log", "git_diff")]
    service.get("/v1/upstreams/git/tools").respond(json={"tools": tools})

    assert [tool.name for tool in await calls.list_tools(["git_diff"])] == ["git_diff"]
    with pytest.raises(ValueError, match=r"no tool git_lgo\. It has: git_log, git_diff"):
        await calls.list_tools(["git_lgo"])


ARGUMENTS = st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()))


@given(session=st.text(), tool_call=st.text(), tool=st.text(), arguments=ARGUMENTS)
def test_every_idempotency_key_is_a_valid_header(
    session: str, tool_call: str, tool: str, arguments: dict[str, Any]
) -> None:
    key = derive_idempotency_key(session, tool_call, "git", tool, arguments)

    assert key.isascii()
    assert key.isprintable()
    assert len(key) <= 256


@given(arguments=ARGUMENTS)
def test_the_order_of_arguments_does_not_change_the_key(arguments: dict[str, Any]) -> None:
    reordered = dict(reversed(arguments.items()))

    assert derive_idempotency_key("s", "t", "git", "log", arguments) == derive_idempotency_key(
        "s", "t", "git", "log", reordered
    )


@pytest.mark.parametrize(
    "other",
    [
        ("other", "t", "git", "log", {}),
        ("s", "other", "git", "log", {}),
        ("s", "t", "other", "log", {}),
        ("s", "t", "git", "other", {}),
        ("s", "t", "git", "log", {"other": 1}),
    ],
)
def test_another_session_tool_call_tool_or_argument_has_another_key(
    other: tuple[str, str, str, str, dict[str, Any]],
) -> None:
    assert derive_idempotency_key(*other) != derive_idempotency_key("s", "t", "git", "log", {})
