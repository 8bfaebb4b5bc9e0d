"""What becomes of a call whose runner is gone: dead, stopped, or cut off from the store for too long.

never dispatched             queued again; cancelled if that was asked for
has a handle                 queued again: whoever leases it goes on from there, also to have it cancelled upstream
may be run a second time     queued again, from its beginning
anything else                the truth, which is that nobody knows
"""

from dataclasses import replace
from datetime import datetime

from ringback.domain.call import CANCELLED_COMPLETION, Call, CallCompletion, CallOutcome, CallPhase, enter_phase, failed_completion
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
