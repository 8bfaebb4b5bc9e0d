"""Modern calls (2026-07-28): one tools/call, whose response is a task, questions, or the result.

tools/call ──▶ task              its id is saved; `tasks` follows it
          ├──▶ input_required    parked until the answers are there; then tools/call again, with them
          ├──▶ input_required    without questions: the server needs time; then tools/call again
          └──▶ the result
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from ringback.backoff import ROUND_BACKOFF
from ringback.client.durable.direct.completions import (
    completion_from_failure,
    completion_from_result,
    failed_completion,
    make_progress_callback,
)
from ringback.client.durable.direct.connection import DirectConnection
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import Completion, PlainPosition, RoundPosition, TaskPosition
from ringback.client.models import InputRequest
from ringback.protocol.errors import InvalidUpstreamResponse, RequestFailed, RequestNotSent
from ringback.protocol.tasks import TASKS_EXTENSION, find_created_task_id

ROUNDS_MAX: Final = 100
"""More rounds of questions than this are taken for an endless loop, as in the service."""
_ELICITATION: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}}
_NOT_ACCEPTED: Final = (
    "The tool asks for input, which this call does not accept. Request it with accepts_input=True if you can answer."
)
_INPUT_REQUESTS: Final = TypeAdapter(dict[str, InputRequest])


def client_capabilities(call: LocalCall, *, uses_tasks: bool = True) -> Mapping[str, Any]:
    """The capabilities to declare with each request of a modern call."""
    elicitation = _ELICITATION if call.record.request.accepts_input else {}
    return {**elicitation, "extensions": {TASKS_EXTENSION: {}} if uses_tasks else {}}


async def run_rounds(
    connection: DirectConnection, call: LocalCall, tool: Mapping[str, Any] | None, *, uses_tasks: bool = True
) -> None:
    """Send tools/call until the call is a task, asks for input, or has ended. Raises `RequestNotSent`."""
    capabilities = client_capabilities(call, uses_tasks=uses_tasks)
    while True:
        state = await _run_round(connection, call, tool, capabilities)
        if state is None:
            return
        await call.save_position(state)
        await call.clock.sleep(ROUND_BACKOFF.pause_seconds(state.round + 1))


async def _run_round(
    connection: DirectConnection, call: LocalCall, tool: Mapping[str, Any] | None, capabilities: Mapping[str, Any]
) -> RoundPosition | None:
    """The position from which the next round begins without input; None if there is none, or if another process runs it."""
    record = call.record
    previous = record.position if isinstance(record.position, RoundPosition) else None
    params = record.request.make_tool_call_params()
    if previous is not None:
        params |= {"requestState": previous.request_state} if previous.request_state is not None else {}
        params |= {"inputResponses": dict(record.input_responses)} if record.input_responses else {}
    if not await call.acquire_lease(position=PlainPosition(), input_responses={}):
        return None
    try:
        result = await connection.send_request(
            "tools/call",
            params,
            client_capabilities=capabilities,
            tool_input_schema=None if tool is None else tool.get("inputSchema"),
            on_progress=make_progress_callback(call),
        )
        return await _apply_result(call, previous, result)
    except RequestNotSent:
        await call.save_position(previous or PlainPosition(), input_responses=record.input_responses)
        raise
    except RequestFailed as failure:
        await call.complete(completion_from_failure(failure))
        return None


async def _apply_result(
    call: LocalCall, previous: RoundPosition | None, result: Mapping[str, Any]
) -> RoundPosition | None:
    if (task_id := find_created_task_id(result)) is not None:
        await call.save_position(TaskPosition(task_id=task_id))
    elif result.get("resultType") != "input_required":
        await call.complete(completion_from_result(result))
    else:
        return await _park(call, previous, result)
    return None


async def _park(call: LocalCall, previous: RoundPosition | None, result: Mapping[str, Any]) -> RoundPosition | None:
    state, requests = result.get("requestState"), result.get("inputRequests")
    asked = bool(requests) + (0 if previous is None else previous.asked)
    if (problem := _find_problem(call, state, requests, asked)) is not None:
        await call.complete(problem)
        return None
    position = RoundPosition(request_state=state, round=1 if previous is None else previous.round + 1, asked=asked)
    if not requests:
        return position
    await call.save_position(position, input_requests=parse_input_requests(requests))
    return None


def _find_problem(call: LocalCall, state: Any, requests: Any, asked: int) -> Completion | None:
    if requests and not call.record.request.accepts_input:
        return failed_completion("upstream_error", _NOT_ACCEPTED)
    if not isinstance(state, str | None) or (state is None and not requests):
        return failed_completion("upstream_error", "The server asks for input without naming it.")
    if asked > ROUNDS_MAX:
        return failed_completion("upstream_error", f"The server asked for input more than {ROUNDS_MAX} times.")
    return None


def parse_input_requests(requests: Any) -> dict[str, InputRequest]:
    try:
        return _INPUT_REQUESTS.validate_python(requests)
    except ValidationError:
        raise InvalidUpstreamResponse("The server asks for input in a form that is not MCP's.") from None
