"""Maps a server's response to the end of its call, as the service does: a result stays as it is, a failure gets an outcome."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from mcp.shared.dispatcher import ProgressFnT

from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import Completion
from ringback.client.models import Progress
from ringback.protocol.errors import (
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    UpstreamError,
    UpstreamUnavailable,
    is_jsonrpc_error,
)

CANCELLED: Final = Completion(outcome="cancelled")
MESSAGE_LENGTH_MAX: Final = 1000
"""The characters of a progress message that are kept."""
_INTERNAL_ERROR: Final = -32603
_FAILED_WITHOUT_ERROR: Final = "The server returned an error that is no JSON-RPC error. The tool may have run."
_RESULT_NOT_JSON: Final = (
    "The tool has run, but its result has a number that JSON does not have (NaN or infinity). Do not call the tool again for "
    "this reason: it would run once more, with the same end."
)


def completion_from_result(result: Mapping[str, Any]) -> Completion:
    if result.get("content") is None and result.get("structuredContent") is not None:
        result = {**result, "content": []}  # some servers save the text with the same data
    if result.get("resultType", "complete") != "complete" or not isinstance(result.get("content"), list):
        return failed_completion("upstream_error", "The server returned a response that is not a CallToolResult.")
    if not _is_json(result):
        return failed_completion("upstream_error", _RESULT_NOT_JSON)
    return Completion(outcome="tool_error" if result.get("isError") is True else "result", result=result)


def completion_from_failure(failure: RequestFailed) -> Completion:
    match failure:
        case RequestNotSent():
            return failed_completion("rejected", str(failure))
        case ResponseLost():
            return failed_completion("unknown", str(failure))
        case UpstreamUnavailable():
            return failed_completion("unknown", f"{failure} The tool may have run.")
        case UpstreamError(error=error) if is_jsonrpc_error(error) and _is_json(error):
            return Completion(outcome="upstream_error", error=error)
        case UpstreamError():
            return failed_completion("upstream_error", _FAILED_WITHOUT_ERROR)
        case _:
            return failed_completion("upstream_error", str(failure))


def _is_json(value: Mapping[str, Any]) -> bool:
    """The SDK's parser accepts NaN, and reads numbers beyond doubles as infinity. A state would have null in their place."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def failed_completion(outcome: str, message: str) -> Completion:
    return Completion(
        outcome=outcome, error={"code": _INTERNAL_ERROR, "message": message, "data": {"outcome": outcome}}
    )


def make_progress_callback(call: LocalCall) -> ProgressFnT:
    """Reports progress notifications: finite numbers, and a bounded message."""

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if math.isfinite(progress):
            call.report_progress(
                Progress(
                    progress=progress,
                    total=total if total is not None and math.isfinite(total) else None,
                    message=None if message is None else message[:MESSAGE_LENGTH_MAX],
                )
            )

    return on_progress
