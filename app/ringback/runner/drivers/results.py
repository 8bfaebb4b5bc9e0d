"""What came back from an upstream, as an ending: results kept as they came, failures told apart.

The SDK's typed client throws away what breaks an outputSchema or a newer content type; a host that builds widgets from `_meta`
needs all of it.
"""

import math
from typing import Any, Final

from mcp.shared.dispatcher import ProgressFnT
from pydantic_core import from_json

from ringback.domain import jsontext
from ringback.domain.call import Ending, Outcome, Progress, answered, failed, refused
from ringback.domain.meta import without_reserved_meta
from ringback.domain.results import (
    PROGRESS_MESSAGE_LENGTH_MAX,
    can_be_kept,
    is_call_tool_result,
    without_nulls,
)
from ringback.runner.drivers.base import Desk
from ringback.runner.failures import Lost, NotSent, Refused, RequestFailed
from ringback.runner.transport import RESULT_BYTES_MAX

_READ_LEVELS: Final = 200
"""What the JSON reader of pydantic takes, and with it the MCP SDK: its clients could not read what is deeper."""
NESTING_MAX: Final = 190
"""Of a result; what it is sent in, a callback or a task, stands around it."""


def ending_of_failure(failure: RequestFailed) -> Ending:
    match failure:
        case NotSent():
            return failed(Outcome.REJECTED, str(failure))
        case Lost():
            return failed(Outcome.UNKNOWN, str(failure))
        case Refused(error=error):
            return ending_of_error(error)
        case _:
            return failed(Outcome.UPSTREAM_ERROR, str(failure))


def ending_of_error(error: dict[str, Any]) -> Ending:
    """The upstream's own JSON-RPC error object."""
    if can_be_kept(error):
        return refused(error)
    return failed(Outcome.UPSTREAM_ERROR, "The upstream answered with an error that is too large to keep.")


def ending_of_result(result: dict[str, Any]) -> Ending:
    if (kind := result.get("resultType", "complete")) != "complete":
        told = (
            "asks for input, which was not offered"
            if kind == "input_required"
            else "is of a kind that was not asked for"
        )
        return failed(Outcome.UPSTREAM_ERROR, f"The upstream's answer {told}.")
    result = without_nulls(result)
    if not is_call_tool_result(result):
        return failed(Outcome.UPSTREAM_ERROR, "The upstream answered with something that is no CallToolResult.")
    try:
        body = jsontext.dumps(without_reserved_meta(result))
    except TypeError:
        return failed(
            Outcome.UPSTREAM_ERROR, "The result cannot be kept: integers beyond 64 bits, or too deeply nested."
        )
    if _nests_too_deeply(body):
        return failed(Outcome.UPSTREAM_ERROR, f"The result is nested deeper than {NESTING_MAX} levels.")
    if len(body) > RESULT_BYTES_MAX:
        return failed(Outcome.UPSTREAM_ERROR, f"The result is larger than {RESULT_BYTES_MAX} bytes.")
    return answered(body, is_error=result.get("isError") is True)


def _nests_too_deeply(body: bytes) -> bool:
    """Whether it would not be read any more with a few levels around it."""
    if body.count(b"{") + body.count(b"[") <= NESTING_MAX:
        return False
    around = _READ_LEVELS - NESTING_MAX
    try:
        from_json(b"[" * around + body + b"]" * around)
    except ValueError:
        return True
    return False


def progress_into(desk: Desk) -> ProgressFnT:
    """Progress notifications as progress of the call: bounded, and made of numbers."""

    async def take(progress: float, total: float | None, message: str | None) -> None:
        if math.isfinite(progress):
            await desk.progress(
                Progress(
                    progress=progress,
                    total=total if total is not None and math.isfinite(total) else None,
                    message=message[:PROGRESS_MESSAGE_LENGTH_MAX] if message is not None else None,
                )
            )

    return take
