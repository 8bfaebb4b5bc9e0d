"""The driver for modern upstreams without tasks, and tools/call in rounds (MRTR, 2026-07-28), which the task driver shares.

An upstream may return questions instead of a result; the client then sends the same call again with the answers.

    tools/call ──▶ input_required ──▶ parked …hours… ──▶ tools/call + inputResponses + requestState ──▶ input_required, a
                         └── without questions: the upstream needs time ──▶ pause ──┘                   result, or a task

Between two rounds the upstream holds nothing, and the handle holds the whole state. During a round there is no handle: the tool
may be running, so a round that was sent and got no response is not sent again, unless the call may be run again.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from ringback.backoff import ROUND_BACKOFF
from ringback.domain.call import MRTR_DRIVER, Call, Handle
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion, CallOutcome, failed_completion
from ringback.domain.inputs import ACCEPT_INPUT_ADVICE, check_input_requests, require_further_round
from ringback.protocol.errors import RequestFailed, RequestNotSent
from ringback.runner.drivers.completions import failure_to_completion, make_progress_callback, result_to_completion
from ringback.runner.drivers.driver import CallContext, ParkedCall
from ringback.runner.drivers.plain import make_tool_call_params
from ringback.upstreams.session_ports import ELICITATION_CAPABILITY, CallSessionPort

ROUNDS_MAX: Final = 100
"""More rounds of questions than this are taken for an endless loop. The SDK's own client gives up after ten. Rounds without
questions go on until the deadline: the longest pause between two is 5 s, and a tool may need hours."""


def get_client_capabilities(call: Call) -> Mapping[str, Any]:
    """The capabilities to declare on behalf of the client that started the call."""
    return ELICITATION_CAPABILITY if call.accepts_input else {}


async def call_tool_in_rounds(
    session: CallSessionPort, context: CallContext, *, client_capabilities: Mapping[str, Any]
) -> dict[str, Any] | CallCompletion | ParkedCall:
    """The first result that is not `input_required`; a parked call or a completion if there is none."""
    handle = _get_handle(context.call)
    rounds = 0
    while True:
        try:
            result = await _send_round(session, context, handle, client_capabilities)
        except RequestFailed as failure:
            if handle is not None and isinstance(failure, RequestNotSent):
                raise
            return failure_to_completion(failure)
        if result.get("resultType") != "input_required":
            return result
        next_handle = _next_handle(handle, result)
        if isinstance(next_handle, CallCompletion):
            return next_handle
        if requests := result.get("inputRequests"):
            return _park_for_input(context.call, next_handle, requests)
        handle = next_handle
        await context.mark_answers_sent(context.call.input_responses)
        await context.save_handle(handle)
        rounds += 1
        await context.wait_for_answers(ROUND_BACKOFF.pause_seconds(rounds))


async def _send_round(
    session: CallSessionPort, context: CallContext, handle: Handle | None, client_capabilities: Mapping[str, Any]
) -> dict[str, Any]:
    params = make_tool_call_params(context.call)
    if handle is None:
        return await session.send_request(
            "tools/call", params, client_capabilities=client_capabilities, on_progress=make_progress_callback(context)
        )
    if answers := await context.wait_for_answers(0):
        params["inputResponses"] = answers
    if (state := handle.data["request_state"]) is not None:
        params["requestState"] = state
    if not context.call.rerun_allowed:
        await context.save_handle(None)
    try:
        return await session.send_request(
            "tools/call", params, client_capabilities=client_capabilities, on_progress=make_progress_callback(context)
        )
    except RequestNotSent:
        await context.save_handle(handle)
        raise


def _next_handle(handle: Handle | None, result: Mapping[str, Any]) -> Handle | CallCompletion:
    state, asks = result.get("requestState"), bool(result.get("inputRequests"))
    number = 1 if handle is None else handle.data["round"] + 1
    asked = asks + (0 if handle is None else handle.data.get("asked", 0))
    if not isinstance(state, str | None) or (state is None and not asks):
        return failed_completion(
            CallOutcome.UPSTREAM_ERROR,
            "The upstream asks for input without naming it, or with an invalid requestState.",
        )
    if asked > ROUNDS_MAX:
        return failed_completion(
            CallOutcome.UPSTREAM_ERROR, f"The upstream asked for input more than {ROUNDS_MAX} times."
        )
    try:
        return Handle(driver=MRTR_DRIVER, data={"request_state": state, "round": number, "asked": asked})
    except (ValueError, TypeError):
        return failed_completion(CallOutcome.UPSTREAM_ERROR, "The upstream's requestState is too large to store.")


def _park_for_input(call: Call, handle: Handle, requests: Any) -> CallCompletion | ParkedCall:
    if not call.accepts_input:
        return input_not_accepted_completion()
    try:
        check_input_requests(requests)
        require_further_round(call)
    except ValueError as problem:
        return failed_completion(CallOutcome.UPSTREAM_ERROR, str(problem))
    return ParkedCall(handle=handle, input_requests=cast("Mapping[str, Mapping[str, Any]]", requests))


def input_not_accepted_completion() -> CallCompletion:
    return failed_completion(
        CallOutcome.UPSTREAM_ERROR,
        f"The tool asks for input, which this call does not accept. {ACCEPT_INPUT_ADVICE}",
    )


def _get_handle(call: Call) -> Handle | None:
    return call.handle if call.handle is not None and call.handle.driver == MRTR_DRIVER else None


class MrtrDriver:
    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion | ParkedCall:
        result = await call_tool_in_rounds(session, context, client_capabilities=get_client_capabilities(context.call))
        return result_to_completion(result) if isinstance(result, dict) else result

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion:  # noqa: ARG002 - the names of Driver
        """Abandoning the current round cancels it; between two rounds the upstream holds nothing."""
        return CANCELLED_COMPLETION
