"""Questions and answers of a call: whose key is whose, and what is too much."""

from dataclasses import replace
from typing import Any

import pytest

from ringback.domain import inputs
from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.inputs import INPUT_BYTES_MAX, INPUT_REQUESTS_MAX
from tests.support.clock import START
from tests.support.examples import CALL

RUNNING = replace(CALL, phase=CallPhase.RUNNING, dispatched_at=START, lease_token="lease_1", accepts_input=True)
YES = {"action": "accept"}


def requests(*names: str) -> dict[str, dict[str, Any]]:
    return {name: {"method": "elicitation/create", "params": {"message": name}} for name in names}


def ask(call: Call, *names: str) -> Call:
    return inputs.request_input(call, requests(*names), now=START)


def keys_of(call: Call) -> dict[str, str]:
    return {key: request.name for key, request in call.input_requests.items()}


def test_asking_the_same_again_changes_nothing() -> None:
    asked = ask(RUNNING, "a", "b")

    assert ask(asked, "b", "a") is asked
    assert ask(RUNNING) is RUNNING


def test_what_is_asked_later_gets_a_new_key_and_what_is_not_asked_any_more_loses_its_own() -> None:
    asked = ask(ask(RUNNING, "a", "b"), "b", "c")

    assert keys_of(asked) == {"r1.2": "b", "r2.1": "c"}


def test_a_name_that_is_used_again_gets_another_key() -> None:
    answered = inputs.answer_input(ask(RUNNING, "a"), {"r1.1": YES}, now=START).call
    again = ask(inputs.remove_sent_responses(answered, {"a"}), "a")

    assert keys_of(again) == {"r2.1": "a"}


def test_what_was_answered_and_not_yet_passed_on_is_not_asked_again() -> None:
    answered = inputs.answer_input(ask(RUNNING, "a", "b"), {"r1.1": YES}, now=START).call

    assert keys_of(ask(answered, "a", "b")) == {"r1.2": "b"}
    assert answered.input_responses == {"a": YES}


@pytest.mark.parametrize(("phase", "then"), [(CallPhase.PARKED, CallPhase.QUEUED), (CallPhase.RUNNING, CallPhase.RUNNING)])
def test_the_last_answer_sets_the_call_to_work_again(phase: CallPhase, then: CallPhase) -> None:
    asked = replace(ask(RUNNING, "a", "b"), phase=phase)

    some = inputs.answer_input(asked, {"r1.2": YES}, now=START).call
    all_of_them = inputs.answer_input(some, {"r1.1": YES}, now=START).call

    assert (some.status, some.phase) == (CallStatus.INPUT_REQUIRED, phase)
    assert (all_of_them.status, all_of_them.phase) == (CallStatus.WORKING, then)


@pytest.mark.parametrize(
    "asked",
    [
        requests(*(str(number) for number in range(INPUT_REQUESTS_MAX + 1))),
        {"a": {"method": "sampling/createMessage", "params": {}}},
        {"a": {"method": "elicitation/create", "params": []}},
        {"a": {"params": {}}},
        {"a": {"method": "elicitation/create", "params": {"message": "x" * INPUT_BYTES_MAX}}},
        {"a": {"method": "elicitation/create", "params": {"n": 2**80}}},
    ],
    ids=["many", "sampling", "shape", "nothing", "large", "wide"],
)
def test_what_was_not_offered_or_cannot_be_kept_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="The upstream"):
        inputs.request_input(RUNNING, asked, now=START)
