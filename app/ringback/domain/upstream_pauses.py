"""Calls that wait because an operator has paused their upstream, and the words for it, which every surface uses."""

from ringback.domain.call import Call, CallPhase, CallStatus


def waits_while_paused(call: Call) -> bool:
    """Whether a pause of its upstream is what keeps the call from running. A running call continues during a pause."""
    return call.status is CallStatus.WORKING and call.phase is CallPhase.QUEUED


def describe_pause(upstream: str) -> str:
    """Why a call of a paused upstream does not run: one sentence. It names nothing but the call's own upstream."""
    return f"The call waits because an operator has paused its upstream, {upstream}."
