"""Calls that wait because an operator has paused their upstream. `wait_words` has the sentence for it."""

from ringback.domain.call import Call, CallPhase, CallStatus


def waits_while_paused(call: Call) -> bool:
    """Whether a pause of its upstream is what keeps the call from running. A running call continues during a pause."""
    return call.status is CallStatus.WORKING and call.phase is CallPhase.QUEUED
