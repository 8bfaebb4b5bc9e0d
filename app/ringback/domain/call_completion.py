"""What becomes of a call whose runner is gone: dead, stopped, or cut off from the store for too long.

never dispatched             queued again; cancelled if that was asked for
has a handle                 queued again: whoever leases it goes on from there, also to have it cancelled upstream
may be run a second time     queued again, from its beginning
anything else                the truth, which is that nobody knows
"""

from dataclasses import replace
from datetime import datetime
from typing import Final

from ringback.domain.call import (
    CANCELLED_COMPLETION,
    Call,
    CallCompletion,
    CallOutcome,
    CallPhase,
    Handle,
    enter_phase,
    failed_completion,
)
from ringback.domain.inputs import clear_inputs


def recover_call(call: Call, *, now: datetime) -> Call | CallCompletion:
    """The running call as it is queued again, or its ending."""
    if call.dispatched_at is None:
        return CANCELLED_COMPLETION if call.cancel_requested else enter_phase(call, CallPhase.QUEUED, now=now)
    if call.handle is not None:
        return enter_phase(call, CallPhase.QUEUED, now=now)
    if call.rerun_allowed and not call.cancel_requested:
        return replace(enter_phase(clear_inputs(call, now=now), CallPhase.QUEUED, now=now), dispatched_at=None)
    return failed_completion(
        CallOutcome.UNKNOWN,
        "Ringback was stopped, or lost its lease, while the tool ran. The tool may have done its work; it was not run again.",
    )


# Calls that run elsewhere: a server that runs its own tools reports how they go, and nobody at Ringback drives them.
#
# A reported call is parked from its first report to its last, so no runner ever leases it. Until its reporter tells its end there
# is only its deadline, after which nobody knows how it ended.

REPORTED_DRIVER: Final = "reported"
"""Names the handle of a call that is found again with whoever reports it."""
UNREPORTED_COMPLETION: Final = failed_completion(
    CallOutcome.UNKNOWN, "Nobody reported the end of this call before its deadline. The tool may have done its work."
)


def mark_reported(call: Call) -> Call:
    """The new call as one that somebody else runs already."""
    return replace(
        call,
        phase=CallPhase.PARKED,
        handle=Handle(driver=REPORTED_DRIVER, data={}),
        dispatched_at=call.created_at,
        runs=1,
    )


def is_reported(call: Call) -> bool:
    """Whether somebody else runs it; of a call that has ended, nobody asks any more."""
    return call.handle is not None and call.handle.driver == REPORTED_DRIVER
