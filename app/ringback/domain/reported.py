"""Calls that run elsewhere: a server that runs its own tools reports how they go, and nobody at Ringback drives them.

A reported call is parked from its first report to its last, so no runner ever leases it. Until its reporter tells its end there
is only its deadline, after which nobody knows how it ended.
"""

from dataclasses import replace
from typing import Final

from ringback.domain.call import Call, Handle, CallOutcome, CallPhase, failed_completion

REPORTED_DRIVER: Final = "reported"
"""Names the handle of a call that is found again with whoever reports it."""
UNREPORTED_COMPLETION: Final = failed_completion(
    CallOutcome.UNKNOWN, "Nobody reported the end of this call before its deadline. The tool may have done its work."
)


def mark_reported(call: Call) -> Call:
    """The new call as one that somebody else runs already."""
    return replace(
        call, phase=CallPhase.PARKED, handle=Handle(driver=REPORTED_DRIVER, data={}), dispatched_at=call.created_at, runs=1
    )


def is_reported(call: Call) -> bool:
    """Whether somebody else runs it; of a call that has ended, nobody asks any more."""
    return call.handle is not None and call.handle.driver == REPORTED_DRIVER
