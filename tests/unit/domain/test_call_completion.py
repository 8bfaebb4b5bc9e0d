"""What becomes of a call without its runner: one question after the other, in this order."""

from dataclasses import replace

import pytest

from ringback.domain.call import MRTR_DRIVER, Call, CallPhase, CallStatus, Handle, overdue_completion
from ringback.domain.call_completion import RUNS_MAX, completion_after_runs, recover_call
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion, CallOutcome, failed_completion
from ringback.domain.inputs import request_input
from tests.support.clock import START
from tests.support.examples import CALL

LEASED = replace(CALL, phase=CallPhase.RUNNING, lease_owner="runner-1", lease_token="lease_1", lease_until=START)
DISPATCHED = replace(LEASED, dispatched_at=START, runs=1)
HANDLE = Handle(driver="task", data={"task_id": "1"})
ROUND = Handle(driver=MRTR_DRIVER, data={"request_state": "s", "round": 1})


def queued(call: Call) -> Call:
    recovered = recover_call(call, now=START)
    assert isinstance(recovered, Call)
    assert (recovered.phase, recovered.lease_owner, recovered.lease_token) == (CallPhase.QUEUED, None, None)
    return recovered


def test_an_abandoned_call_that_was_never_dispatched_is_queued_again() -> None:
    assert queued(LEASED).runs == 0


def test_an_abandoned_call_with_a_cancel_request_that_was_never_dispatched_is_cancelled() -> None:
    assert recover_call(replace(LEASED, cancel_requested=True), now=START) == CANCELLED_COMPLETION


@pytest.mark.parametrize("cancel_requested", [False, True])
def test_an_abandoned_call_with_a_handle_is_resumed_also_to_be_cancelled(*, cancel_requested: bool) -> None:
    asked = request_input(DISPATCHED, {"a": {"method": "elicitation/create", "params": {}}}, now=START)
    recovered = queued(replace(asked, handle=HANDLE, cancel_requested=cancel_requested, rerun_allowed=True))

    assert (recovered.handle, recovered.dispatched_at, recovered.runs) == (HANDLE, START, 1)
    assert (recovered.status, list(recovered.input_requests)) == (CallStatus.INPUT_REQUIRED, ["r1.1"])


def test_an_abandoned_call_that_may_be_rerun_starts_again_and_counts_its_runs() -> None:
    asked = request_input(DISPATCHED, {"a": {"method": "elicitation/create", "params": {}}}, now=START)
    recovered = queued(replace(asked, rerun_allowed=True, input_responses={"b": {}}))

    assert (recovered.dispatched_at, recovered.runs, recovered.status) == (None, 1, CallStatus.WORKING)
    assert (recovered.input_requests, recovered.input_responses, recovered.input_round) == ({}, {}, 1)


def test_a_call_whose_runner_died_in_each_of_five_runs_is_not_run_again() -> None:
    """It may be what ends the process, and would end every other one until its deadline."""
    fourth, fifth = [replace(DISPATCHED, rerun_allowed=True, runs=runs) for runs in (RUNS_MAX - 1, RUNS_MAX)]

    assert queued(fourth).runs == RUNS_MAX - 1
    ending = recover_call(fifth, now=START)

    assert isinstance(ending, CallCompletion)
    assert (ending.outcome, "the call itself may be the cause" in str(ending.error)) == (CallOutcome.UNKNOWN, True)


def test_a_round_that_is_sent_again_after_its_runner_died_is_a_run_of_its_call() -> None:
    """It was not counted, so a call that ended each process that ran it did so until its deadline."""
    call = replace(DISPATCHED, rerun_allowed=True, handle=ROUND)
    for runs in range(2, RUNS_MAX + 1):
        recovered = queued(call)
        assert (recovered.runs, recovered.handle, recovered.dispatched_at) == (runs, ROUND, START)
        call = replace(call, runs=recovered.runs)

    handed_back = recover_call(call, now=START, is_handed_back=True)
    cancelled = queued(replace(call, cancel_requested=True))
    ending = recover_call(call, now=START)

    assert isinstance(handed_back, Call)
    assert (handed_back.runs, cancelled.runs) == (RUNS_MAX, RUNS_MAX)
    assert isinstance(ending, CallCompletion)
    assert ending.outcome is CallOutcome.UNKNOWN


def test_a_call_between_two_rounds_that_may_not_run_again_is_queued_without_counting() -> None:
    assert queued(replace(DISPATCHED, handle=ROUND, runs=RUNS_MAX)).runs == RUNS_MAX


def test_a_process_that_stops_in_order_hands_back_a_call_however_often_it_ran() -> None:
    often = replace(DISPATCHED, rerun_allowed=True, runs=RUNS_MAX)

    assert isinstance(recover_call(often, now=START, is_handed_back=True), Call)


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("call", [DISPATCHED, replace(DISPATCHED, rerun_allowed=True, cancel_requested=True)])
def test_any_other_call_ends_as_unknown(call: Call) -> None:
    ending = recover_call(call, now=START)

    assert isinstance(ending, CallCompletion)
    assert ending.outcome is CallOutcome.UNKNOWN
    assert "Ringback was stopped, or stood still" in str(ending.error)


def test_a_call_that_ran_and_was_queued_again_times_out_at_its_deadline() -> None:
    again = queued(replace(DISPATCHED, rerun_allowed=True))

    assert again.dispatched_at is None
    assert overdue_completion(again).outcome is CallOutcome.TIMED_OUT


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        (LEASED, CallOutcome.REJECTED),
        (DISPATCHED, CallOutcome.REJECTED),
        (replace(LEASED, runs=1), CallOutcome.UNKNOWN),
        (replace(DISPATCHED, runs=2), CallOutcome.UNKNOWN),
    ],
    ids=["never sent", "refused at its first dispatch", "not sent again", "refused at its second dispatch"],
)
def test_only_a_call_without_an_earlier_run_is_rejected(call: Call, outcome: CallOutcome) -> None:
    rejected = failed_completion(CallOutcome.REJECTED, "The upstream is away.")

    assert completion_after_runs(call, rejected).outcome is outcome


def test_an_earlier_run_does_not_change_any_other_completion() -> None:
    cancelled = completion_after_runs(replace(DISPATCHED, runs=2), CANCELLED_COMPLETION)

    assert cancelled == CANCELLED_COMPLETION
