"""A call as a model is told of it: the same things as JSON and as a few sentences, and what to do next."""

from collections.abc import Sequence
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.call import Call, CallOutcome, CallStatus
from ringback.domain.clock import format_iso
from ringback.domain.event import progress_data
from ringback.mcp_server.task_serializer import serialize_input_requests

INPUT_MESSAGE_LENGTH_MAX: Final = 500
"""Characters of a question in the text; whole it stands in the structured part."""

STOP_POLLING: Final = (
    "Stop looking: nothing has changed for several looks, and looking does not make it faster. Tell the user that the work "
    "goes on in the background, and end your turn. Come back when you are called back, or when the user asks."
)
_STEP_RUNNING: Final = (
    "It goes on without you. Do something else, or end your turn; ringback_wait_for_call waits for it when there is nothing "
    "else to do."
)
_STEP_INPUT_REQUIRED: Final = "Ask the user, then answer with ringback_answer_call. Until then it waits."
_STEP_CANCELLING: Final = "It was asked to stop. Look again in a moment to see how it ended."
_STEP_FAILED: Final = "Nothing more: it is over."
_STEP_COMPLETED: Final = "Nothing more: go on with the result."

_OUTCOME_TEXTS: Final = {
    CallOutcome.RESULT: "It is completed; its result follows.",
    CallOutcome.TOOL_ERROR: "It is completed, and the tool says that it failed; what it said follows.",
    CallOutcome.UPSTREAM_ERROR: "It failed: the tool's server answered with an error.",
    CallOutcome.REJECTED: "It failed before it reached the tool's server: nothing was done.",
    CallOutcome.TIMED_OUT: "It failed: its deadline passed. It may have been carried out in part.",
    CallOutcome.UNKNOWN: "It failed: the tool was lost on the way. It may have been carried out; check before you repeat it.",
    CallOutcome.CANCELLED: "It was cancelled.",
}


def summarize_call(call: Call) -> dict[str, Any]:
    """A call in a list."""
    return {
        "call_id": call.id,
        "upstream": call.upstream,
        "tool": call.tool,
        "status": str(call.status),
        "outcome": None if call.outcome is None else str(call.outcome),
        "client_session_id": call.client_session_id,
        "correlation_id": call.correlation_id,
        "created_at": format_iso(call.created_at),
        "updated_at": format_iso(call.updated_at),
        "finished_at": None if call.finished_at is None else format_iso(call.finished_at),
    }


def describe_call(call: Call, result: bytes | None, *, poll_limit_reached: bool = False) -> dict[str, Any]:
    """One call with all that a client may act on; `result` is its stored CallToolResult."""
    return {
        **summarize_call(call),
        "progress": None if call.progress is None else progress_data(call.progress),
        "input_requests": serialize_input_requests(call),
        "cancel_requested": call.cancel_requested,
        **({} if call.error is None else {"error": call.error}),
        **({} if result is None else {"result": jsontext.loads(result)}),
        "next_step": get_next_step(call, poll_limit_reached=poll_limit_reached),
    }


def get_next_step(call: Call, *, poll_limit_reached: bool) -> str:
    if call.is_final:
        return _STEP_COMPLETED if call.status is CallStatus.COMPLETED else _STEP_FAILED
    if call.status is CallStatus.INPUT_REQUIRED:
        return _STEP_INPUT_REQUIRED
    if poll_limit_reached:
        return STOP_POLLING
    return _STEP_CANCELLING if call.cancel_requested else _STEP_RUNNING


def render_call_text(call: Call, *, poll_limit_reached: bool = False) -> str:
    """The call in words, for clients that show a model nothing but text."""
    return "\n".join(
        [
            f"Call {call.id} ({call.upstream}: {call.tool}).",
            *_render_status_lines(call),
            get_next_step(call, poll_limit_reached=poll_limit_reached),
        ]
    )


def _render_status_lines(call: Call) -> Sequence[str]:
    if call.outcome is not None:
        error = [str(call.error.get("message", ""))] if call.error else []
        return [_OUTCOME_TEXTS[call.outcome], *error]
    if call.status is CallStatus.INPUT_REQUIRED:
        return [
            "It asks:",
            *(_render_input_request(key, request.params) for key, request in call.input_requests.items()),
        ]
    return [f"It is {call.status}.{_render_progress(call)}"]


def _render_input_request(key: str, params: Any) -> str:
    return f"- {key}: {str(params.get('message', ''))[:INPUT_MESSAGE_LENGTH_MAX]}"


def _render_progress(call: Call) -> str:
    if call.progress is None:
        return ""
    total = "" if call.progress.total is None else f" of {call.progress.total:g}"
    message = f": {call.progress.message}" if call.progress.message else ""
    return f" Progress {call.progress.progress:g}{total}{message}"
