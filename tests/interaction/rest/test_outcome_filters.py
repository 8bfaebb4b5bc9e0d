"""Webhooks that receive the ends of calls with some outcomes only: failures, for example."""

from typing import Any

import httpx
import orjson
import pytest

from ringback.domain.call_outcome import CallCompletion, CallOutcome, completion_from_result, failed_completion
from tests.support.service import CALL_BODY, CALLBACK_URL, RESULT, ServiceUnderTest

pytestmark = pytest.mark.requirement("R17")

FAILURES = ["timed_out", "unknown", "upstream_error"]
TIMED_OUT = failed_completion(CallOutcome.TIMED_OUT, "upstream words")
SUCCESS = completion_from_result(RESULT, is_error=False)


async def register(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post("/v1/webhooks", json={"url": CALLBACK_URL} | body)


async def run_call(service: ServiceUnderTest, client: httpx.AsyncClient, ending: CallCompletion, **body: Any) -> None:
    await service.finish_call((await client.post("/v1/calls", json=CALL_BODY | body)).json()["call_id"], ending)


@pytest.mark.requirement("R33")
async def test_a_webhook_for_failures_receives_no_success_and_each_failure_with_its_error(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await register(alice, outcomes=FAILURES)
    await run_call(service, alice, SUCCESS)
    assert await service.read_deliveries("alice") == []

    await run_call(service, alice, TIMED_OUT)

    (delivery,) = await service.read_deliveries("alice")
    data = orjson.loads(delivery.body)["data"]
    assert (data["outcome"], data["error"]["code"]) == ("timed_out", "timed_out")
    assert "upstream words" not in delivery.body.decode()


async def test_a_callback_without_an_error_has_no_such_member(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await register(alice)
    await run_call(service, alice, SUCCESS)

    (delivery,) = await service.read_deliveries("alice")
    assert "error" not in orjson.loads(delivery.body)["data"]


@pytest.mark.usefixtures("shared_service")
async def test_outcomes_alone_ask_for_ends_of_calls_and_not_for_their_questions(alice: httpx.AsyncClient) -> None:
    registered = (await register(alice, outcomes=["unknown", "timed_out"])).json()

    assert (registered["events"], registered["outcomes"]) == (["call.finished"], ["timed_out", "unknown"])
    assert registered["hears"] == (
        "Receives call.finished with the outcome timed_out or unknown of every call of yours, from now on."
    )


async def test_other_events_are_received_whatever_the_outcomes(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    await register(alice, outcomes=FAILURES, events=["call.finished", "call.input_required"])
    call_id = (await alice.post("/v1/calls", json=CALL_BODY | {"accepts_input": True})).json()["call_id"]

    await service.request_input(call_id, "branch")

    (delivery,) = await service.read_deliveries("alice")
    assert orjson.loads(delivery.body)["name"] == "call.input_required"


async def test_a_start_lists_a_webhook_for_failures_with_its_outcomes(alice: httpx.AsyncClient) -> None:
    await register(alice, outcomes=FAILURES)

    started = (await alice.post("/v1/calls", json=CALL_BODY)).json()

    assert [each["outcomes"] for each in started["webhooks"]] == [FAILURES]


async def test_the_callback_of_one_call_may_be_for_failures_only(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    for session in (None, "session-1"):  # a webhook of the call, and one that calls of a session share
        callback = {"url": CALLBACK_URL, "outcomes": FAILURES}
        await run_call(service, alice, SUCCESS, callback=callback, client_session_id=session)
        assert await service.read_deliveries("alice") == []

    await run_call(service, alice, TIMED_OUT, callback=callback)

    assert len(await service.read_deliveries("alice")) == 1


async def test_the_outcomes_of_a_webhook_can_be_changed_and_removed(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    location = (await register(alice, outcomes=FAILURES)).headers["location"]

    changed = (await alice.patch(location, json={"outcomes": ["result"]})).json()
    kept = (await alice.patch(location, json={"description": "mine"})).json()
    await run_call(service, alice, SUCCESS)
    removed = (await alice.patch(location, json={"outcomes": None})).json()
    await run_call(service, alice, TIMED_OUT)

    assert [each["outcomes"] for each in (changed, kept, removed)] == [["result"], ["result"], None]
    assert len(await service.read_deliveries("alice")) == 2


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("body", [{"outcomes": []}, {"outcomes": ["done"]}])
async def test_outcomes_that_do_not_exist_are_refused(alice: httpx.AsyncClient, body: dict[str, Any]) -> None:
    assert (await register(alice, **body)).status_code == 422


@pytest.mark.usefixtures("shared_service")
async def test_outcomes_without_an_event_that_has_one_are_refused(alice: httpx.AsyncClient) -> None:
    useless = {"outcomes": FAILURES, "events": ["call.progress"]}
    location = (await register(alice, outcomes=FAILURES)).headers["location"]

    answers = [await register(alice, **useless), await alice.patch(location, json={"events": ["call.progress"]})]

    assert [answer.status_code for answer in answers] == [422, 422]
    assert "only call.finished has an outcome" in answers[0].json()["detail"]


async def test_polled_events_carry_the_error_of_their_call(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    for ending in (SUCCESS, TIMED_OUT):
        await run_call(service, alice, ending)

    events = (await alice.get("/v1/events")).json()["events"]

    assert [event["data"].get("error", {}).get("code") for event in events] == [None, "timed_out"]
