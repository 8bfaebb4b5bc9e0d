"""Questions and answers of a call: whose key is whose, and what is too much."""

from dataclasses import replace
from typing import Any

import pytest

from ringback.domain import inputs
from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.inputs import INPUT_BYTES_MAX, INPUT_REQUESTS_MAX, INPUT_ROUNDS_MAX
from tests.support.clock import START
from tests.support.examples import CALL

RUNNING = replace(CALL, phase=CallPhase.RUNNING, dispatched_at=START, lease_token="lease_1", accepts_input=True)
ACCEPTED_ANSWER = {"action": "accept"}


def requests(*names: str) -> dict[str, dict[str, Any]]:
    return {name: {"method": "elicitation/create", "params": {"message": name}} for name in names}


def request_input(call: Call, *names: str) -> Call:
    return inputs.request_input(call, requests(*names), now=START)


def list_keys(call: Call) -> dict[str, str]:
    return {key: request.name for key, request in call.input_requests.items()}


def test_requesting_the_same_input_again_changes_nothing() -> None:
    asked = request_input(RUNNING, "a", "b")

    assert request_input(asked, "b", "a") is asked
    assert request_input(RUNNING) is RUNNING


def test_a_request_is_kept_without_the_keys_of_the_connection_that_it_came_on() -> None:
    """Modern clients got them: a related task, for example, that only the upstream and Ringback know."""
    meta = {"io.modelcontextprotocol/related-task": {"taskId": "t1"}, "progressToken": 1, "example.com/icon": "lock"}
    asked: dict[str, Any] = {"a": {"method": "elicitation/create", "params": {"message": "a", "_meta": meta}}}

    (request,) = inputs.request_input(RUNNING, asked, now=START).input_requests.values()

    assert request.params == {"message": "a", "_meta": {"example.com/icon": "lock"}}


def test_a_new_input_request_gets_a_new_key_and_a_withdrawn_one_loses_its_key() -> None:
    asked = request_input(request_input(RUNNING, "a", "b"), "b", "c")

    assert list_keys(asked) == {"r1.2": "b", "r2.1": "c"}


def test_a_name_that_is_used_again_gets_another_key() -> None:
    answered = inputs.answer_input(request_input(RUNNING, "a"), {"r1.1": ACCEPTED_ANSWER}, now=START).call
    again = request_input(inputs.remove_sent_responses(answered, {"a"}), "a")

    assert list_keys(again) == {"r2.1": "a"}


def test_an_answered_request_that_was_not_forwarded_is_not_requested_again() -> None:
    answered = inputs.answer_input(request_input(RUNNING, "a", "b"), {"r1.1": ACCEPTED_ANSWER}, now=START).call

    assert list_keys(request_input(answered, "a", "b")) == {"r1.2": "b"}
    assert answered.input_responses == {"a": ACCEPTED_ANSWER}


def test_an_upstream_may_not_ask_without_end() -> None:
    last = request_input(replace(RUNNING, input_round=INPUT_ROUNDS_MAX - 1), "a", "b")

    assert list(list_keys(request_input(last, "b")).values()) == ["b"]
    with pytest.raises(ValueError, match="asked for input more than"):
        request_input(last, "b", "c")


@pytest.mark.parametrize(
    ("phase", "then"), [(CallPhase.PARKED, CallPhase.QUEUED), (CallPhase.RUNNING, CallPhase.RUNNING)]
)
def test_the_last_answer_sets_the_call_to_work_again(phase: CallPhase, then: CallPhase) -> None:
    asked = replace(request_input(RUNNING, "a", "b"), phase=phase)

    some = inputs.answer_input(asked, {"r1.2": ACCEPTED_ANSWER}, now=START).call
    all_of_them = inputs.answer_input(some, {"r1.1": ACCEPTED_ANSWER}, now=START).call

    assert (some.status, some.phase) == (CallStatus.INPUT_REQUIRED, phase)
    assert (all_of_them.status, all_of_them.phase) == (CallStatus.WORKING, then)


@pytest.mark.parametrize(("method", "kind"), [("sampling/createMessage", "sampling"), ("roots/list", "roots")])
def test_sampling_and_roots_are_refused_with_their_name(method: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"asks for {kind}, which Ringback refuses"):
        inputs.request_input(RUNNING, {"a": {"method": method, "params": {}}}, now=START)


@pytest.mark.parametrize(
    "asked",
    [
        requests(*(str(number) for number in range(INPUT_REQUESTS_MAX + 1))),
        {"a": {"method": "sampling/createMessage", "params": {}}},
        {"a": {"method": "elicitation/create", "params": []}},
        {"a": {"params": {}}},
        {"a": {"method": ["sampling/createMessage"]}},
        {"a": {"method": "elicitation/create", "params": {"message": "x" * INPUT_BYTES_MAX}}},
        {"a": {"method": "elicitation/create", "params": {"default": [0] * 20_000}}},
        {"a": {"method": "elicitation/create", "params": {"n": 10**400}}},
        {"a": "elicitation/create"},
        {"a": None},
        ["elicitation/create"],
        "elicitation/create",
        7,
    ],
    ids=[
        "many",
        "sampling",
        "shape",
        "nothing",
        "list",
        "large",
        "values",
        "wide",
        "name",
        "null",
        "names",
        "text",
        "number",
    ],
)
def test_input_requests_that_are_unsupported_or_cannot_be_stored_are_refused(asked: Any) -> None:
    with pytest.raises(ValueError, match="The upstream"):
        inputs.request_input(RUNNING, asked, now=START)
