"""tools/call in rounds (2026-07-28): an upstream may answer with questions, and wants the same call again with the answers.

    tools/call ──▶ input_required ──▶ parked …hours… ──▶ tools/call + inputResponses + requestState ──▶ input_required, or the
                        └── without questions: the upstream wants a moment ──▶ again ───┘                   result, or a task

Between two rounds the upstream holds nothing, and the handle says all. While a round is under way there is no handle: the tool
may be doing its work just then, so a round that was sent and not answered is not sent again, unless the call may be run again.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from ringback.domain.call import MRTR, Call, Ending, Handle, Outcome, failed
from ringback.domain.inputs import check_requests
from ringback.runner.drivers.base import Desk, Parked, Session
from ringback.runner.drivers.plain import tool_params
from ringback.runner.drivers.results import ending_of_failure, progress_into
from ringback.runner.failures import NotSent, RequestFailed

ELICITATION: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}}
"""Declared with a request whose starter can answer. No sampling and no roots: there is no model and no disk to ask."""
ROUNDS_MAX: Final = 100
"""An upstream that asks more often than that goes round in circles; the SDK's own client gives up after ten."""
MOMENT_SECONDS_MIN: Final = 0.05
MOMENT_SECONDS_MAX: Final = 5.0
"""The pause before a round without questions doubles between these. The SDK's client starts with the first; the second keeps a
tool that takes hours this way from being asked all the time."""


def elicitation_of(call: Call) -> Mapping[str, Any]:
    """What may be declared on behalf of whoever started the call."""
    return ELICITATION if call.accepts_input else {}


async def call_tool(session: Session, desk: Desk, *, declare: Mapping[str, Any]) -> dict[str, Any] | Ending | Parked:
    """The first answer that is not about input; or where the call stands without one."""
    handle = _handle_of(desk.call)
    pause = MOMENT_SECONDS_MIN
    while True:
        try:
            result = await _round(session, desk, handle, declare)
        except RequestFailed as failure:
            if handle is not None and isinstance(failure, NotSent):
                raise
            return ending_of_failure(failure)
        if result.get("resultType") != "input_required":
            return result
        following = _next(handle, result)
        if isinstance(following, Ending):
            return following
        if requests := result.get("inputRequests"):
            return _parked(desk.call, following, requests)
        handle = following
        await desk.passed_on(desk.call.input_responses)
        await desk.keep(handle)
        await desk.answers(pause)
        pause = min(2 * pause, MOMENT_SECONDS_MAX)


async def _round(session: Session, desk: Desk, handle: Handle | None, declare: Mapping[str, Any]) -> dict[str, Any]:
    params = tool_params(desk.call)
    if handle is None:
        return await session.request("tools/call", params, declare=declare, on_progress=progress_into(desk))
    if answers := await desk.answers(0):
        params["inputResponses"] = answers
    if (state := handle.data["request_state"]) is not None:
        params["requestState"] = state
    if not desk.call.rerun_allowed:
        await desk.keep(None)
    try:
        return await session.request("tools/call", params, declare=declare, on_progress=progress_into(desk))
    except NotSent:
        await desk.keep(handle)
        raise


def _next(handle: Handle | None, result: Mapping[str, Any]) -> Handle | Ending:
    state = result.get("requestState")
    number = 1 if handle is None else handle.data["round"] + 1
    if not isinstance(state, str | None) or (state is None and not result.get("inputRequests")):
        return failed(
            Outcome.UPSTREAM_ERROR, "The upstream asks for input without saying what, or with a broken state."
        )
    if number > ROUNDS_MAX:
        return failed(Outcome.UPSTREAM_ERROR, f"The upstream asked for input more than {ROUNDS_MAX} times.")
    try:
        return Handle(driver=MRTR, data={"request_state": state, "round": number})
    except (ValueError, TypeError):
        return failed(Outcome.UPSTREAM_ERROR, "The upstream's requestState is too large to keep.")


def _parked(call: Call, handle: Handle, requests: Any) -> Ending | Parked:
    if not call.accepts_input:
        return cannot_answer()
    try:
        check_requests(requests)
    except ValueError as problem:
        return failed(Outcome.UPSTREAM_ERROR, str(problem))
    return Parked(handle=handle, requests=cast("Mapping[str, Mapping[str, Any]]", requests))


def cannot_answer() -> Ending:
    return failed(
        Outcome.UPSTREAM_ERROR,
        "The tool asks for input, which it was not offered. Start the call with accepts_input if you can answer.",
    )


def _handle_of(call: Call) -> Handle | None:
    return call.handle if call.handle is not None and call.handle.driver == MRTR else None
