"""Why a call ended, and what it ended with.

completed   result          the tool answered
tool_error      the tool answered with isError
failed      upstream_error  the upstream answered with a JSON-RPC error or with an invalid response
rejected        the call never reached the upstream
timed_out       its deadline passed
unknown         the upstream or the runner was lost after the dispatch: the tool may have run
cancelled   cancelled
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, cast

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


UNSUCCESSFUL_OUTCOMES: Final = frozenset(CallOutcome) - {CallOutcome.RESULT}
"""The outcomes of calls that ended without a result, or with an error of their tool."""

ERROR_MESSAGES: Final[dict[CallOutcome, str]] = {
    CallOutcome.TOOL_ERROR: "The tool returned an error. Its text is in the result.",
    CallOutcome.UPSTREAM_ERROR: "The upstream returned an error, or a response that is no result. The call has the details.",
    CallOutcome.REJECTED: "The call did not reach its upstream, so the tool did not run. The call has the reason.",
    CallOutcome.TIMED_OUT: "The call's deadline passed before the tool returned. The tool may have run.",
    CallOutcome.UNKNOWN: "The upstream or Ringback was lost while the tool ran. The tool may have done its work.",
    CallOutcome.CANCELLED: "The call was cancelled.",
}
"""For each outcome that is no result. Callbacks have no other message, because a stored one can be the upstream's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallError:
    """Why a call ended without a result, or that its tool returned an error."""

    code: CallOutcome
    message: str
    jsonrpc: dict[str, Any] | None = field(default=None, repr=False)
    """The JSON-RPC error object of a failed call: the upstream's, or Ringback's with `data.outcome`."""


def describe_error(outcome: CallOutcome | None) -> CallError | None:
    """The error of a call with this outcome, without any text of an upstream; None for a result or an open call."""
    if outcome is None or outcome is CallOutcome.RESULT:
        return None
    return CallError(code=outcome, message=ERROR_MESSAGES[outcome])


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
    return completion.outcome is CallOutcome.UPSTREAM_ERROR and not is_own_error(
        completion.error or {}, completion.outcome
    )


def failed_completion(outcome: CallOutcome, message: str) -> CallCompletion:
    """A failure with a message of Ringback's. `data` repeats the outcome for MCP clients."""
    return CallCompletion(
        outcome=outcome,
        error={"code": INTERNAL_ERROR, "message": message, "data": {"outcome": str(outcome)}},
    )


def unknown_completion(message: str, *, cause: dict[str, Any]) -> CallCompletion:
    """The outcome `unknown`, which another Ringback has reported. `cause` is its JSON-RPC error object, kept in `data`."""
    data = {"outcome": str(CallOutcome.UNKNOWN), "cause": cause}
    return CallCompletion(outcome=CallOutcome.UNKNOWN, error={"code": INTERNAL_ERROR, "message": message, "data": data})


def is_own_error(error: Mapping[str, Any], outcome: CallOutcome | None) -> bool:
    """Whether the error object has the shape of those that Ringback writes about a call with this outcome."""
    data: object = error.get("data")
    if not isinstance(data, Mapping) or error.get("code") != INTERNAL_ERROR:
        return False
    members = dict(cast("Mapping[str, Any]", data))
    if outcome is CallOutcome.UNKNOWN and isinstance(members.get("cause"), Mapping):
        del members["cause"]
    return members == {"outcome": str(outcome)}


CANCELLED_COMPLETION: Final = CallCompletion(outcome=CallOutcome.CANCELLED)
