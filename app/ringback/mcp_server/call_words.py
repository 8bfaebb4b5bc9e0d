"""A call as a model is told of it: the same things as JSON and as a few sentences, and what to do next."""

from collections.abc import Sequence
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.call import Call, Outcome, Status
from ringback.domain.clock import iso
from ringback.domain.event import progress_data
from ringback.mcp_server.task_shapes import asked

QUESTION_LENGTH_MAX: Final = 500
"""Characters of a question in the text; whole it stands in the structured part."""

STOP: Final = (
    "Stop looking: nothing has changed for several looks, and looking does not make it faster. Tell the user that the work "
    "goes on in the background, and end your turn. Come back when you are called back, or when the user asks."
)
_GOES_ON: Final = (
    "It goes on without you. Do something else, or end your turn; ringback_wait_for_call waits for it when there is nothing "
    "else to do."
)
_ASK: Final = "Ask the user, then answer with ringback_answer_call. Until then it waits."
_STOPPING: Final = "It was asked to stop. Look again in a moment to see how it ended."
_OVER: Final = "Nothing more: it is over."
_TAKE: Final = "Nothing more: go on with the result."

_ENDED: Final = {
    Outcome.RESULT: "It is completed; its result follows.",
    Outcome.TOOL_ERROR: "It is completed, and the tool says that it failed; what it said follows.",
    Outcome.UPSTREAM_ERROR: "It failed: the tool's server answered with an error.",
    Outcome.REJECTED: "It failed before it reached the tool's server: nothing was done.",
    Outcome.TIMED_OUT: "It failed: its deadline passed. It may have been carried out in part.",
    Outcome.UNKNOWN: "It failed: the tool was lost on the way. It may have been carried out; check before you repeat it.",
    Outcome.CANCELLED: "It was cancelled.",
}


def call_summary(call: Call) -> dict[str, Any]:
    """A call in a list."""
    return {
        "call_id": call.id,
        "upstream": call.upstream,
        "tool": call.tool,
        "status": str(call.status),
        "outcome": None if call.outcome is None else str(call.outcome),
        "client_session_id": call.client_session_id,
        "correlation_id": call.correlation_id,
        "created_at": iso(call.created_at),
        "updated_at": iso(call.updated_at),
        "finished_at": None if call.finished_at is None else iso(call.finished_at),
    }


def call_details(call: Call, result: bytes | None, *, stop: bool = False) -> dict[str, Any]:
    """One call with all that a client may act on; `result` is its stored CallToolResult."""
    return {
        **call_summary(call),
        "progress": None if call.progress is None else progress_data(call.progress),
        "input_requests": asked(call),
        "cancel_requested": call.cancel_requested,
        **({} if call.error is None else {"error": call.error}),
        **({} if result is None else {"result": jsontext.loads(result)}),
        "next_step": next_step(call, stop=stop),
    }


def next_step(call: Call, *, stop: bool) -> str:
    if call.final:
        return _TAKE if call.status is Status.COMPLETED else _OVER
    if call.status is Status.INPUT_REQUIRED:
        return _ASK
    if stop:
        return STOP
    return _STOPPING if call.cancel_requested else _GOES_ON


def told(call: Call, *, stop: bool = False) -> str:
    """The call in words, for clients that show a model nothing but text."""
    return "\n".join([f"Call {call.id} ({call.upstream}: {call.tool}).", *_state(call), next_step(call, stop=stop)])


def _state(call: Call) -> Sequence[str]:
    if call.outcome is not None:
        error = [str(call.error.get("message", ""))] if call.error else []
        return [_ENDED[call.outcome], *error]
    if call.status is Status.INPUT_REQUIRED:
        return ["It asks:", *(_question(key, request.params) for key, request in call.input_requests.items())]
    return [f"It is {call.status}.{_progress(call)}"]


def _question(key: str, params: Any) -> str:
    return f"- {key}: {str(params.get('message', ''))[:QUESTION_LENGTH_MAX]}"


def _progress(call: Call) -> str:
    if call.progress is None:
        return ""
    of = "" if call.progress.total is None else f" of {call.progress.total:g}"
    message = f": {call.progress.message}" if call.progress.message else ""
    return f" Progress {call.progress.progress:g}{of}{message}"
