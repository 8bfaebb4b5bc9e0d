"""Completions of calls without a runner: calls whose lease was lost, and calls that a reporter runs elsewhere.

`recover_call` decides about a running call whose runner died, stopped or lost its lease:

    never dispatched       queued again; cancelled if a cancellation was requested
    has a handle           queued again; the next runner resumes or cancels it upstream
    may run again          queued again, from its beginning or its last round, until its runner died in `RUNS_MAX` runs
    anything else          failed with the outcome `unknown`
"""

from dataclasses import replace
from datetime import datetime
from typing import Final

from ringback.domain.call import MRTR_DRIVER, Call, CallPhase, Handle, enter_phase
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion, CallOutcome, failed_completion
from ringback.domain.inputs import clear_inputs

RUNS_MAX: Final = 5
"""Runs of a call that may run again. If its runner died in each, the call may be the cause, and it would end every process that
runs it until its deadline. Runs that a stopping process hands back count, and never end the call."""


def recover_call(call: Call, *, now: datetime, is_handed_back: bool = False) -> Call | CallCompletion:
    """The call, queued again, or its completion. `is_handed_back` says that its runner stopped in order."""
    if call.dispatched_at is None:
        return CANCELLED_COMPLETION if call.cancel_requested else enter_phase(call, CallPhase.QUEUED, now=now)
    if call.handle is not None:
        return _recover_call_with_handle(call, now=now, is_handed_back=is_handed_back)
    if call.rerun_allowed and not call.cancel_requested:
        if call.runs >= RUNS_MAX and not is_handed_back:
            return _RAN_TOO_OFTEN
        return replace(enter_phase(clear_inputs(call, now=now), CallPhase.QUEUED, now=now), dispatched_at=None)
    return failed_completion(
        CallOutcome.UNKNOWN,
        "Ringback was stopped, or stood still, while the tool ran. The tool may have done its work; it was not run again.",
    )


def _recover_call_with_handle(call: Call, *, now: datetime, is_handed_back: bool) -> Call | CallCompletion:
    """Only a call that may run again keeps its handle while a round of it runs (MRTR), which the next runner sends again."""
    queued = enter_phase(call, CallPhase.QUEUED, now=now)
    runs_again = call.handle is not None and call.handle.driver == MRTR_DRIVER and call.rerun_allowed
    if not runs_again or call.cancel_requested or is_handed_back:
        return queued
    return _RAN_TOO_OFTEN if call.runs >= RUNS_MAX else replace(queued, runs=call.runs + 1)


_RAN_TOO_OFTEN: Final = failed_completion(
    CallOutcome.UNKNOWN,
    f"The tool was started {RUNS_MAX} times or more, and each time Ringback was stopped, or stood still, while it ran. It was "
    "not run again: the call itself may be the cause. The tool may have done its work.",
)


def completion_after_runs(call: Call, completion: CallCompletion) -> CallCompletion:
    """The completion of a call that may have had an earlier run: `rejected` says that the tool did not run.

    A call whose runner died during its run is queued again if it may run again. If it then cannot be sent, its outcome is
    `unknown`.
    """
    has_earlier_run = call.runs > (call.dispatched_at is not None)
    if completion.outcome is not CallOutcome.REJECTED or not has_earlier_run:
        return completion
    reason = (completion.error or {}).get("message", "The call could not be sent again.")
    return failed_completion(
        CallOutcome.UNKNOWN, f"{reason} An earlier run of this call was lost: its tool may have done its work."
    )


# Reported calls: a server runs its own tools and reports their state. A reported call is parked from its first report to its
# last, so no runner leases it. If the last report does not arrive before the deadline, the outcome is `unknown`.

REPORTED_DRIVER: Final = "reported"
"""The driver of calls that a reporter runs."""
REPORTED_KEY_PREFIX: Final = "report\n"
"""Prefix of a reporter's key. An Idempotency-Key header has no line break, so reports and starts never share a key."""
UNREPORTED_COMPLETION: Final = failed_completion(
    CallOutcome.UNKNOWN,
    "No report of the end of this call arrived before its deadline. The tool may have done its work.",
)


def mark_reported(call: Call) -> Call:
    """The new call, as dispatched by its reporter."""
    return replace(
        call,
        phase=CallPhase.PARKED,
        handle=Handle(driver=REPORTED_DRIVER, data={}),
        dispatched_at=call.created_at,
        runs=1,
    )


def is_reported(call: Call) -> bool:
    """Whether a reporter runs the call. An ended call has no handle and returns False."""
    return call.handle is not None and call.handle.driver == REPORTED_DRIVER
