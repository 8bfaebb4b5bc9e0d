"""Why a call ended, and what it ended with.

completed   result          the tool answered
tool_error      the tool answered with isError
failed      upstream_error  the upstream answered with a JSON-RPC error or with an invalid response
rejected        the call never reached the upstream
timed_out       its deadline passed
unknown         the upstream or the runner was lost after the dispatch: the tool may have run
cancelled   cancelled
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

INTERNAL_ERROR: Final = -32603
"""JSON-RPC internal error: the code of every error object that Ringback writes into a failed call."""


class CallOutcome(StrEnum):
    RESULT = "result"
    TOOL_ERROR = "tool_error"
    UPSTREAM_ERROR = "upstream_error"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"
    UNKNOWN = "unknown"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCompletion:
    """How a call ended: with a result, with a JSON-RPC error, or with neither (cancelled)."""

    outcome: CallOutcome
    result: bytes | None = field(default=None, repr=False)
    """The CallToolResult as JSON, byte for byte as stored and returned."""
    error: dict[str, Any] | None = field(default=None, repr=False)


def completion_from_result(result: bytes, *, is_error: bool) -> CallCompletion:
    return CallCompletion(outcome=CallOutcome.TOOL_ERROR if is_error else CallOutcome.RESULT, result=result)


def completion_from_upstream_error(error: dict[str, Any]) -> CallCompletion:
    """The upstream's JSON-RPC error object, stored unchanged."""
    return CallCompletion(outcome=CallOutcome.UPSTREAM_ERROR, error=error)


def is_upstream_error(completion: CallCompletion) -> bool:
    """Whether the error object is the upstream's, and not one that Ringback wrote about an invalid response."""
    our_data = {"outcome": str(completion.outcome)}
    return completion.outcome is CallOutcome.UPSTREAM_ERROR and (completion.error or {}).get("data") != our_data


def failed_completion(outcome: CallOutcome, message: str) -> CallCompletion:
    """A failure with a message of Ringback's. `data` repeats the outcome for MCP clients."""
    return CallCompletion(
        outcome=outcome,
        error={"code": INTERNAL_ERROR, "message": message, "data": {"outcome": str(outcome)}},
    )


CANCELLED_COMPLETION: Final = CallCompletion(outcome=CallOutcome.CANCELLED)
