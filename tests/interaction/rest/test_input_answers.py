"""Answers to a call's questions: partial, repeated, late and unauthorised ones."""

import asyncio
from typing import Any

import httpx
import pytest

from ringback.domain.call import CallPhase
from ringback.domain.errors import InvalidRequest
from ringback.domain.inputs import INPUT_BYTES_MAX
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal, Scope
from ringback.services.calls.input_answers import INPUT_RESPONSES_MAX
from tests.support.limits import WAIT_SECONDS
from tests.support.service import CALL_BODY, ServiceUnderTest

pytestmark = pytest.mark.usefixtures("shared_service")

ACCEPTED_ANSWER: dict[str, Any] = {"action": "accept", "content": {"sure": True}}
DECLINED_ANSWER: dict[str, Any] = {"action": "decline"}


async def start_asking_call(service: ServiceUnderTest, client: httpx.AsyncClient, *names: str) -> str:
    started = await client.post("/v1/calls", json=CALL_BODY | {"accepts_input": True})
    call_id: str = started.json()["call"]["id"]
    await service.request_input(call_id, *(names or ("name", "age")))
    return call_id


async def answer(client: httpx.AsyncClient, call_id: str, responses: Any) -> httpx.Response:
    return await client.post(f"/v1/calls/{call_id}/input", json={"responses": responses})


@pytest.mark.requirement("R32")
async def test_a_call_shows_its_input_requests(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = await start_asking_call(service, alice)

    call = (await alice.get(f"/v1/calls/{call_id}")).json()
    events = (await alice.get("/v1/events", params={"call_id": call_id})).json()["events"]

    assert (call["status"], call["accepts_input"]) == ("input_required", True)
    assert call["input_requests"] == {
        "r1.1": {"method": "elicitation/create", "params": {"message": "name?"}},
        "r1.2": {"method": "elicitation/create", "params": {"message": "age?"}},
    }
    assert [(event["name"], event["data"]["input_keys"]) for event in events] == [
        ("call.input_required", ["r1.1", "r1.2"])
    ]


@pytest.mark.requirement("R32")
async def test_answers_may_be_partial_and_repeated(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = await start_asking_call(service, alice)

    first = (await answer(alice, call_id, {"r1.2": ACCEPTED_ANSWER, "r7.1": ACCEPTED_ANSWER})).json()
    again = (await answer(alice, call_id, {"r1.2": DECLINED_ANSWER})).json()
    last = (await answer(alice, call_id, {"r1.1": DECLINED_ANSWER})).json()

    assert (first["accepted"], first["ignored"], first["call"]["status"]) == (["r1.2"], ["r7.1"], "input_required")
    assert list(first["call"]["input_requests"]) == ["r1.1"]
    assert (again["accepted"], again["ignored"]) == ([], ["r1.2"])
    assert (last["accepted"], last["call"]["status"], last["call"]["input_requests"]) == (["r1.1"], "working", {})
    assert (await service.read_call(call_id)).input_responses == {"age": ACCEPTED_ANSWER, "name": DECLINED_ANSWER}


async def test_a_waiting_client_gets_the_input_request_and_the_answer(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = await start_asking_call(service, alice, "name")
    waiting = asyncio.create_task(alice.get(f"/v1/calls/{call_id}", params={"wait_seconds": 30}))
    await asyncio.sleep(0)

    await answer(alice, call_id, {"r1.1": ACCEPTED_ANSWER})

    assert (await asyncio.wait_for(waiting, WAIT_SECONDS)).json()["status"] == "working"


@pytest.mark.requirement("R32")
async def test_an_answer_to_a_call_that_has_ended_is_refused_with_a_reason(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = await start_asking_call(service, alice)
    await service.finish_call(call_id)

    refused = await answer(alice, call_id, {"r1.1": ACCEPTED_ANSWER})

    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/call-ended")
    assert "completed" in refused.json()["detail"]


@pytest.mark.requirement("R25")
async def test_a_foreign_call_is_answered_like_an_unknown_one(
    service: ServiceUnderTest, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    call_id = await start_asking_call(service, alice)

    foreign = await answer(bob, call_id, {"r1.1": ACCEPTED_ANSWER})
    unknown = await answer(bob, "call_01KAGZ8A000000000000000000", {"r1.1": ACCEPTED_ANSWER})

    assert foreign.status_code == unknown.status_code == 404
    assert foreign.content == unknown.content
    assert (await service.read_call(call_id)).input_responses == {}


async def test_answering_takes_the_scope_of_calls(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    call_id = await start_asking_call(service, alice)
    reader = await service.create_client("alice", scopes=frozenset({Scope.READ}))

    assert (await answer(reader, call_id, {"r1.1": ACCEPTED_ANSWER})).status_code == 403


@pytest.mark.parametrize(
    "responses",
    [
        {},
        {"r1.1": None},
        {"r1.1": "yes"},
        {"r1.1": {}},
        {"r1.1": {"action": "maybe"}},
        {"r1.1": {"action": ["accept"]}},
        {"r1.1": {"action": "accept", "content": "yes"}},
        {"r1.1": {"action": "accept", "content": {"text": "x" * INPUT_BYTES_MAX}}},
        {"r1.1": {"action": "accept", "content": {"numbers": [0] * 20_000}}},
        dict.fromkeys((f"r1.{number}" for number in range(INPUT_RESPONSES_MAX + 1)), DECLINED_ANSWER),
    ],
    ids=["none", "null", "text", "empty", "action", "actions", "content", "large", "values", "many"],
)
async def test_an_invalid_answer_is_refused_and_changes_nothing(
    service: ServiceUnderTest, alice: httpx.AsyncClient, responses: Any
) -> None:
    call_id = await start_asking_call(service, alice)
    before = await service.read_call(call_id)

    refused = await answer(alice, call_id, responses)

    assert refused.status_code in {413, 422}
    assert await service.read_call(call_id) == before


async def test_an_answer_of_another_form_is_named_with_the_form_that_it_must_have(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = await start_asking_call(service, alice, "name")

    refused = await answer(alice, call_id, {"r1.1": {"name": "Ada"}})

    assert (refused.status_code, refused.json()["key"]) == (422, "r1.1")
    assert 'The answer \'r1.1\' must be an object like {"action": "accept"' in refused.json()["detail"]


async def test_answers_are_bounded_before_their_call_is_read(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    """The transaction that reads it compares the answers with their questions."""
    call_id = await start_asking_call(service, alice)
    large = {"r9.9": {"action": "accept", "content": {"text": "x" * INPUT_BYTES_MAX}}}
    caller = Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES)

    with pytest.raises(InvalidRequest, match=f"at most {INPUT_BYTES_MAX} bytes"):
        await service.services.input_answers.answer_input(caller, call_id, large)


NAME_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("accepted", "pointer"),
    [
        ({"content": {"name": 5}}, "#/responses/r1.2/content/name"),
        ({"content": {"name": "Ada", "age": "old"}}, "#/responses/r1.2/content/age"),
        ({"content": {}}, "#/responses/r1.2/content"),
        ({}, "#/responses/r1.2/content"),
    ],
)
async def test_a_question_whose_answer_does_not_match_its_schema_stays_open(
    service: ServiceUnderTest, alice: httpx.AsyncClient, accepted: dict[str, Any], pointer: str
) -> None:
    started = await alice.post("/v1/calls", json=CALL_BODY | {"accepts_input": True})
    call_id = started.json()["call"]["id"]
    before = await service.request_input(call_id, "one", "two", schema=NAME_SCHEMA)

    refused = await answer(alice, call_id, {"r1.1": DECLINED_ANSWER, "r1.2": {"action": "accept"} | accepted})

    assert (refused.status_code, [error["pointer"] for error in refused.json()["errors"]]) == (422, [pointer])
    assert pointer in refused.json()["detail"]
    assert refused.json()["requested_schemas"] == {"r1.2": NAME_SCHEMA}
    assert await service.read_call(call_id) == before
    named = {"action": "accept", "content": {"name": "Ada", "more": 1}}
    taken = (await answer(alice, call_id, {"r1.1": DECLINED_ANSWER, "r1.2": named, "r9.1": named})).json()
    assert (taken["accepted"], taken["call"]["status"]) == (["r1.1", "r1.2"], "working")


@pytest.mark.parametrize("schema", [3, {"type": 3}, {"$ref": "#"}, {"properties": {"name": {"pattern": "(?=x)"}}}])
async def test_a_requested_schema_that_cannot_be_used_refuses_no_answer(
    service: ServiceUnderTest, alice: httpx.AsyncClient, schema: Any
) -> None:
    started = await alice.post("/v1/calls", json=CALL_BODY | {"accepts_input": True})
    call_id = started.json()["call"]["id"]
    await service.request_input(call_id, "one", schema=schema)

    assert (await answer(alice, call_id, {"r1.1": ACCEPTED_ANSWER})).json()["accepted"] == ["r1.1"]


async def test_cancelling_a_call_that_was_answered_and_is_queued_ends_it_at_once(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = await start_asking_call(service, alice, "name")
    await answer(alice, call_id, {"r1.1": ACCEPTED_ANSWER})
    assert (await service.read_call(call_id)).phase is CallPhase.QUEUED

    cancelled = (await alice.post(f"/v1/calls/{call_id}/cancel")).json()

    assert (cancelled["status"], cancelled["cancel_requested"]) == ("cancelled", True)


async def test_cancelling_a_call_that_waits_for_answers_ends_it_at_once(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call_id = await start_asking_call(service, alice)

    cancelled = (await alice.post(f"/v1/calls/{call_id}/cancel")).json()

    assert (cancelled["status"], cancelled["cancel_requested"], cancelled["input_requests"]) == ("cancelled", True, {})
