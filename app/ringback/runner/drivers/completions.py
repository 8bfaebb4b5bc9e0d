"""Maps an upstream's response to the completion of its call: a result is kept unchanged, each failure gets its outcome.

The SDK's typed client rejects a result that violates its outputSchema or has a newer content type. A host that builds widgets
from `_meta` needs the whole result.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.shared.dispatcher import ProgressFnT
from pydantic_core import from_json

from ringback.domain import jsontext
from ringback.domain.call import Progress
from ringback.domain.call_outcome import (
    CallCompletion,
    CallOutcome,
    completion_from_result,
    completion_from_upstream_error,
    failed_completion,
    is_own_error,
    unknown_completion,
)
from ringback.domain.ids import is_well_formed_id
from ringback.domain.meta import without_reserved_meta
from ringback.domain.tool_result import (
    PROGRESS_MESSAGE_LENGTH_MAX,
    is_call_tool_result,
    is_storable_error,
    repair_result,
)
from ringback.protocol.errors import (
    InvalidUpstreamResponse,
    LoginRequired,
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    UpstreamError,
    UpstreamUnavailable,
    is_jsonrpc_error,
)
from ringback.protocol.transport_errors import RESULT_BYTES_MAX
from ringback.runner.drivers.driver import CallContext

_PARSER_DEPTH_MAX: Final = 200
"""The nesting limit of pydantic's JSON parser, and so of every client on the MCP SDK."""
RESULT_DEPTH_MAX: Final = 190
"""The nesting limit of a result; the callback or task that carries it adds a few levels."""
_LEVELS_AROUND: Final = jsontext.LEVELS_MAX - RESULT_DEPTH_MAX
_MAY_HAVE_RUN: Final = "The tool may have run: check what it has done before you call it again."
_UPSTREAM_DOES_NOT_KNOW: Final = (
    "The upstream lost its own connection to the tool, and does not know whether the tool has run."
)
_FAILED_WITHOUT_ERROR: Final = "The upstream's task has failed, with an error that is no JSON-RPC error."
_NOT_STORED: Final = "The tool has run, but its result cannot be stored: it"
_ASKS_IN_OTHER_ERA: Final = (
    "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests."
)
"""The error of servers on the SDK 2.x whose tool asks during a request of 2026-07-28 (`ctx.elicit`)."""
_ASKS_IN_FASTMCP: Final = "elicitation via server-initiated requests is unavailable on"
"""In the tool error of a server on FastMCP 4."""
_ASK_IN_LEGACY: Final = (
    'The tool asks as only 2025-11-25 allows: let the operator of Ringback set "protocol": "legacy" for this upstream, in '
    'the "ringback" object of its configuration.'
)
_NOT_AGAIN: Final = "Do not call the tool again for this reason: it would run once more, with the same end."


def failure_to_completion(failure: RequestFailed) -> CallCompletion:
    """The completion of a call whose tools/call failed. Raises `LoginRequired`, which does not end the call."""
    match failure:
        case LoginRequired():
            raise failure
        case RequestNotSent():
            return failed_completion(CallOutcome.REJECTED, str(failure))
        case ResponseLost():
            return failed_completion(CallOutcome.UNKNOWN, str(failure))
        case UpstreamError(error=error):
            return error_to_completion(error)
        case UpstreamUnavailable():
            return failed_completion(CallOutcome.UNKNOWN, f"{failure} {_MAY_HAVE_RUN}")
        case InvalidUpstreamResponse():
            return failed_completion(CallOutcome.UPSTREAM_ERROR, f"{failure} {_MAY_HAVE_RUN}")
        case _:
            return failed_completion(CallOutcome.UPSTREAM_ERROR, str(failure))


def error_to_completion(error: dict[str, Any]) -> CallCompletion:
    """Keeps the upstream's JSON-RPC error object. An unknown outcome that another Ringback reports stays unknown.

    What an operator can do about an error of the SDK is added to its message.
    """
    if _is_unknown_of_ringback(error):
        completion = unknown_completion(_UPSTREAM_DOES_NOT_KNOW, cause=error)
        if is_storable_error(completion.error or {}):
            return completion
        return failed_completion(CallOutcome.UNKNOWN, _UPSTREAM_DOES_NOT_KNOW)
    if not is_jsonrpc_error(error):
        return failed_completion(CallOutcome.UPSTREAM_ERROR, f"{_FAILED_WITHOUT_ERROR} {_MAY_HAVE_RUN}")
    if is_storable_error(error):
        asks_in_other_era = error["message"] == _ASKS_IN_OTHER_ERA and error.keys() <= {"code", "message"}
        advised = {**error, "message": f"{_ASKS_IN_OTHER_ERA} {_ASK_IN_LEGACY}"}
        return completion_from_upstream_error(advised if asks_in_other_era else error)
    return failed_completion(CallOutcome.UPSTREAM_ERROR, "The upstream returned an error that is too large to store.")


def _is_unknown_of_ringback(error: Mapping[str, Any]) -> bool:
    """Whether a Ringback wrote the error about a call with the outcome `unknown`.

    A task has the error of `failed_completion`; the response to tools/call also has the id of the call. Any other error with
    `data.outcome` belongs to the upstream.
    """
    data: object = error.get("data")
    if not isinstance(data, Mapping):
        return False
    members = dict(cast("Mapping[str, Any]", data))
    if "call_id" in members:
        call_id: object = members.pop("call_id")
        if not isinstance(call_id, str) or not is_well_formed_id("call", call_id):
            return False
    return is_own_error({**error, "data": members}, CallOutcome.UNKNOWN)


def result_to_completion(result: dict[str, Any]) -> CallCompletion:
    if (kind := result.get("resultType", "complete")) != "complete":
        text = (
            "asks for input, which the request did not offer"
            if kind == "input_required"
            else "has a resultType that the request did not offer"
        )
        return failed_completion(CallOutcome.UPSTREAM_ERROR, f"The upstream's response {text}.")
    result = repair_result(result)
    if not is_call_tool_result(result):
        return failed_completion(
            CallOutcome.UPSTREAM_ERROR, "The upstream returned a response that is not a CallToolResult."
        )
    result = _advise_era(result)
    try:
        body = _dump_result(without_reserved_meta(result))
    except TypeError:
        return _not_stored(f"has integers of more than {jsontext.INTEGER_DIGITS_MAX} digits or is nested too deeply")
    if body is None:
        return _not_stored(f"is nested deeper than {RESULT_DEPTH_MAX} levels")
    if len(body) > RESULT_BYTES_MAX:
        return _not_stored(f"is larger than {RESULT_BYTES_MAX} bytes")
    return completion_from_result(body, is_error=result.get("isError") is True)


def _advise_era(result: dict[str, Any]) -> dict[str, Any]:
    """The one result that is changed: after the error of a tool that asks as the other era does, what an operator can do."""
    if result.get("isError") is not True:
        return result
    if not any(_ASKS_IN_FASTMCP in str(block.get("text", "")) for block in result["content"]):
        return result
    return {**result, "content": [*result["content"], {"type": "text", "text": _ASK_IN_LEGACY}]}


def _not_stored(reason: str) -> CallCompletion:
    return failed_completion(CallOutcome.UPSTREAM_ERROR, f"{_NOT_STORED} {reason}. {_NOT_AGAIN}")


def _dump_result(result: Mapping[str, Any]) -> bytes | None:
    """The result as JSON; None if it is nested too deeply. Raises TypeError as `jsontext.dumps`.

    Written inside so many lists that the writer refuses one level more, the result needs no parser that counts its levels: that
    would build each value, 0.3 s for 10 MB (measured).
    """
    wrapped: Any = result
    for _ in range(_LEVELS_AROUND):
        wrapped = [wrapped]
    try:
        return jsontext.dumps(wrapped)[_LEVELS_AROUND:-_LEVELS_AROUND]
    except TypeError:
        body = jsontext.dumps(result)
        return None if _is_too_deep(body) else body


def _is_too_deep(body: bytes) -> bool:
    """Whether a parser would reject the result inside a callback or task."""
    around = _PARSER_DEPTH_MAX - RESULT_DEPTH_MAX
    try:
        from_json(b"[" * around + body + b"]" * around)
    except ValueError:
        return True
    return False


def make_progress_callback(context: CallContext) -> ProgressFnT:
    """Reports progress notifications as progress of the call: finite numbers, and a bounded message."""

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if math.isfinite(progress):
            await context.report_progress(
                Progress(
                    progress=progress,
                    total=total if total is not None and math.isfinite(total) else None,
                    message=message[:PROGRESS_MESSAGE_LENGTH_MAX] if message is not None else None,
                )
            )

    return on_progress
