"""The plain driver: one tools/call, and whatever comes back.

It knows no handle, so nothing of it survives this process: a call whose upstream was lost is `unknown`, and stays so. Results
are kept as they came. The SDK's typed client throws away what breaks an outputSchema or a newer content type; a host that
builds widgets from `_meta` needs all of it.
"""

import math
from typing import Any, Final, cast

from mcp.shared.dispatcher import ProgressFnT

from ringback.domain import jsontext
from ringback.domain.call import Call, Ending, Outcome, Progress, answered, failed, refused
from ringback.runner.drivers.base import OnProgress, Session
from ringback.runner.failures import Lost, NotSent, Refused, RequestFailed
from ringback.runner.transport import RESULT_BYTES_MAX

RESERVED_META: Final = "io.modelcontextprotocol/"
"""Keys of the wire between two neighbours (spec 2026-07-28, `_meta`); they mean nothing to whoever reads the result later."""
ERROR_BYTES_MAX: Final = 64 * 1024
"""An error object is kept with the call's row, not with the results."""
PROGRESS_MESSAGE_LENGTH_MAX: Final = 1000
"""Progress goes to webhooks and screens: a sentence, not a report."""


class PlainDriver:
    async def run(self, call: Call, session: Session, *, on_progress: OnProgress) -> Ending:
        params: dict[str, Any] = {"name": call.tool, "arguments": call.arguments}
        if call.meta:
            params["_meta"] = call.meta
        try:
            result = await session.request("tools/call", params, on_progress=_bounded(on_progress))
        except RequestFailed as failure:
            return ending_of(failure)
        return _ending_of_result(result)


def ending_of(failure: RequestFailed) -> Ending:
    match failure:
        case NotSent():
            return failed(Outcome.REJECTED, str(failure))
        case Lost():
            return failed(Outcome.UNKNOWN, str(failure))
        case Refused(error=error) if _can_be_kept(error):
            return refused(error)
        case Refused():
            return failed(Outcome.UPSTREAM_ERROR, "The upstream answered with an error that is too large to keep.")
        case _:
            return failed(Outcome.UPSTREAM_ERROR, str(failure))


def _can_be_kept(error: dict[str, Any]) -> bool:
    try:
        return len(jsontext.dumps(error)) <= ERROR_BYTES_MAX
    except TypeError:
        return False


def _ending_of_result(result: dict[str, Any]) -> Ending:
    if (kind := result.get("resultType", "complete")) != "complete":
        return failed(Outcome.UPSTREAM_ERROR, _not_complete(kind))
    if not _is_call_tool_result(result):
        return failed(Outcome.UPSTREAM_ERROR, "The upstream answered with something that is no CallToolResult.")
    try:
        body = jsontext.dumps(_without_reserved_meta(result))
    except TypeError:
        return failed(
            Outcome.UPSTREAM_ERROR, "The result cannot be kept: integers beyond 64 bits, or too deeply nested."
        )
    if len(body) > RESULT_BYTES_MAX:
        return failed(Outcome.UPSTREAM_ERROR, f"The result is larger than {RESULT_BYTES_MAX} bytes.")
    return answered(body, is_error=result.get("isError") is True)


def _not_complete(kind: Any) -> str:
    if kind == "input_required":
        return "The tool asks for input in the middle of the call, which Ringback cannot pass on yet."
    return "The upstream answered with a kind of result that was not asked for."


def _is_call_tool_result(result: dict[str, Any]) -> bool:
    """Only what every reader relies on: a list of typed blocks. New kinds of blocks, and odd structuredContent, pass."""
    content = result.get("content")
    return (
        isinstance(content, list)
        and all(isinstance(block, dict) and "type" in block for block in cast("list[Any]", content))
        and isinstance(result.get("isError", False), bool)
        and isinstance(result.get("_meta", {}), dict)
    )


def _without_reserved_meta(result: dict[str, Any]) -> dict[str, Any]:
    meta = cast("dict[str, Any]", result.get("_meta", {}))
    kept = {key: value for key, value in meta.items() if not key.startswith(RESERVED_META)}
    if len(kept) == len(meta):
        return result
    rest = {key: value for key, value in result.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


def _bounded(on_progress: OnProgress) -> ProgressFnT:
    async def take(progress: float, total: float | None, message: str | None) -> None:
        if math.isfinite(progress):
            await on_progress(
                Progress(
                    progress=progress,
                    total=total if total is not None and math.isfinite(total) else None,
                    message=message[:PROGRESS_MESSAGE_LENGTH_MAX] if message is not None else None,
                )
            )

    return take
