"""The sentences for what a call waits for (`Call.waits_for`), which the dashboard and the MCP tools use."""

from typing import Final

from ringback.domain.call import Call, WaitCause
from ringback.domain.clock import format_iso

UNSENT_REASON: Final = "Its turn has come, and it is sent once its upstream can be reached and takes it."
"""About a call that a runner has leased and not sent."""


def describe_wait(call: Call) -> str | None:
    """What keeps the call from running, as far as its row says it; None if nothing does."""
    match call.waits_for:
        case WaitCause.NOT_BEFORE:
            return f"The call has not started: it starts at {_describe_time(call)}."
        case WaitCause.QUEUE:
            return "The call waits in the queue for its turn."
        case WaitCause.UPSTREAM:
            return f"The call has not started. {UNSENT_REASON}"
        case None:
            return None


def _describe_time(call: Call) -> str:
    return "its time" if call.not_before is None else format_iso(call.not_before)
