"""A call as models read it: as JSON and as sentences, both with the next step."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ringback.amounts import format_amount
from ringback.domain import jsontext
from ringback.domain.call import Call, CallStatus, Progress, WaitCause, call_resource_uri
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_waits import UNSENT_REASON, describe_wait
from ringback.domain.clock import format_iso
from ringback.domain.event import progress_data
from ringback.domain.login_waits import awaits_login, find_login_url
from ringback.domain.upstreams import LOGIN_REQUIRED_PROBLEM, TOKENS_UNREADABLE_PROBLEM, UpstreamInfo
from ringback.domain.wait_words import describe_pause
from ringback.protocol.upstream_logins import login_command

INPUT_MESSAGE_LENGTH_MAX: Final = 500
"""Characters of a question in the text; the structured content has all of it."""

_STOP_POLLING: Final = (
    "Several polls have found no change, and polling does not make the call faster. Tell the user that it {state}, and end "
    "your turn; come back when the user asks, or after a callback if one is registered. If you need the result in this turn, "
    "call ringback_wait_for_call with a larger wait_seconds, up to 45: it returns when the call ends."
)
_STEP_RUNNING: Final = "The call continues in the background."
_STEP_NOTHING_NEEDED: Final = "It needs nothing from you."
_STEP_LEAVE: Final = "Do something else, or end your turn."
_STEP_WAIT: Final = "If you have nothing else to do, call ringback_wait_for_call with this call_id."
_STEP_INPUT_REQUIRED: Final = "Ask the user, then answer with ringback_answer_call. The call waits until then."
_STEP_PAUSED: Final = (
    "It starts once the operator resumes the upstream. Polling does not make that sooner. Tell the user, and end your "
    "turn."
)
_STEP_CANCELLING: Final = "Cancellation is requested. Get the call again in a moment to see how it ended."

_OUTCOME_TEXTS: Final = {
    CallOutcome.RESULT: "Status: completed. The tool's result precedes this line.",
    CallOutcome.TOOL_ERROR: "Status: completed. The tool reports an error, which precedes this line.",
    CallOutcome.UPSTREAM_ERROR: "Status: failed. The tool's server returned an error.",
    CallOutcome.REJECTED: "Status: failed. The call did not reach the tool's server; the tool did not run.",
    CallOutcome.TIMED_OUT: "Status: failed. The deadline passed. The tool may have run in part.",
    CallOutcome.UNKNOWN: "Status: failed. The outcome is unknown and the tool may have run. Check before you repeat the call.",
    CallOutcome.CANCELLED: "Status: cancelled.",
}


_FINAL_STEPS: Final[Mapping[CallOutcome | None, str]] = {
    CallOutcome.RESULT: "Use the result.",
    CallOutcome.TOOL_ERROR: "The tool reports an error. Correct the cause before you call the tool again.",
    CallOutcome.UPSTREAM_ERROR: (
        "Correct what the error says before you call the tool again. Do not call it again for an error that says that the "
        "tool has run."
    ),
    CallOutcome.REJECTED: "You may call the tool again: it did not run.",
    CallOutcome.TIMED_OUT: "Check what the tool has done before you call it again; it may need a longer timeout.",
    CallOutcome.UNKNOWN: "Check what the tool has done before you call it again. Tell the user if you cannot check it.",
    CallOutcome.CANCELLED: "Call the tool again only if its result is still needed. It may have run in part.",
}


def summarize_call(call: Call) -> dict[str, Any]:
    """A call as a list shows it."""
    return {
        "call_id": call.id,
        "upstream": call.upstream,
        "tool": call.tool,
        "status": str(call.status),
        **({} if call.waits_for is None else {"waits_for": str(call.waits_for)}),
        "outcome": None if call.outcome is None else str(call.outcome),
        "client_session_id": call.client_session_id,
        "correlation_id": call.correlation_id,
        "created_at": format_iso(call.created_at),
        **({} if call.not_before is None else {"not_before": format_iso(call.not_before)}),
        "updated_at": format_iso(call.updated_at),
        "finished_at": None if call.finished_at is None else format_iso(call.finished_at),
    }


def describe_call(
    call: Call, result: bytes | None, *, poll_limit_reached: bool = False, is_paused: bool = False
) -> dict[str, Any]:
    """One call with all fields; `result` is its stored CallToolResult. `is_paused`: it waits for its paused upstream."""
    return {
        **summarize_call(call),
        "progress": None if call.progress is None else progress_data(call.progress),
        "input_requests": serialize_input_requests(call),
        "cancel_requested": call.cancel_requested,
        **({} if call.error is None else {"error": call.error}),
        **({} if result is None else {"result": jsontext.loads(result)}),
        "next_step": get_next_step(call, poll_limit_reached=poll_limit_reached, is_paused=is_paused),
    }


def serialize_input_requests(call: Call) -> dict[str, Any]:
    """The open questions by the keys that their answers use."""
    return {key: {"method": each.method, "params": each.params} for key, each in call.input_requests.items()}


def get_login_step(upstream: str, login_url: str) -> str:
    """What to do about a call that waits until the user signs in to its upstream."""
    return (
        f"{ask_for_login(upstream, login_url)} The call goes on by itself after the login; it needs no answer. "
        "If the user refuses, cancel it with ringback_cancel_call."
    )


def ask_for_login(upstream: str, login_url: str) -> str:
    return (
        f"Ask the user to open {login_url} and to sign in to '{upstream}'. If Ringback runs on the user's own machine, "
        f"the user can run `{login_command(upstream)}` in a terminal instead. If the sign-in is refused because a key lacks "
        "the scope 'admin', all users share the login: ask the operator of Ringback to sign in."
    )


def get_next_step(call: Call, *, poll_limit_reached: bool, is_paused: bool = False) -> str:
    if call.is_final:
        return _FINAL_STEPS[call.outcome]
    if (login_url := find_login_url(call)) is not None:
        return get_login_step(call.upstream, login_url)
    if call.status is CallStatus.INPUT_REQUIRED:
        return _STEP_INPUT_REQUIRED
    if is_paused:
        return f"{describe_pause(call.upstream)} {_STEP_PAUSED}"
    if poll_limit_reached:
        return _STOP_POLLING.format(state="continues in the background" if call.waits_for is None else "waits")
    return _STEP_CANCELLING if call.cancel_requested else _get_working_step(call)


def _get_working_step(call: Call) -> str:
    match call.waits_for:
        case WaitCause.NOT_BEFORE:
            steps = (_STEP_NOTHING_NEEDED, _STEP_LEAVE)
        case WaitCause.QUEUE:
            steps = (_STEP_NOTHING_NEEDED, _STEP_LEAVE, _STEP_WAIT)
        case _:  # a call that waits for its upstream may need a login
            steps = (_STEP_LEAVE, _STEP_WAIT)
    return " ".join([describe_wait(call) or _STEP_RUNNING, *steps])


def render_call_text(call: Call, *, poll_limit_reached: bool = False, is_paused: bool = False) -> str:
    """The call as text, for clients that show a model only text."""
    return "\n".join(
        [
            f"Call {call.id} ({call.upstream}: {call.tool}).",
            *_render_status_lines(call),
            get_next_step(call, poll_limit_reached=poll_limit_reached, is_paused=is_paused),
        ]
    )


def _render_status_lines(call: Call) -> Sequence[str]:
    if call.outcome is not None:
        error = [str(call.error.get("message", ""))] if call.error else []
        return [_OUTCOME_TEXTS[call.outcome], *error]
    if call.status is CallStatus.INPUT_REQUIRED:
        return [
            "Status: input_required. Questions:",
            *(_render_input_request(key, request.params) for key, request in call.input_requests.items()),
        ]
    return [f"Status: {call.status}.{_render_progress(call)}"]


def _render_input_request(key: str, params: Any) -> str:
    return f"- {key}: {str(params.get('message', ''))[:INPUT_MESSAGE_LENGTH_MAX]}"


def _render_progress(call: Call) -> str:
    if call.progress is None:
        return ""
    message = f": {call.progress.message}" if call.progress.message else ""
    return f" Progress {_render_amount(call.progress)}{message}"


def progress_text(progress: Progress) -> str:
    """The upstream's own message, or else its numbers: `3 of 10`."""
    return progress.message or _render_amount(progress)


def _render_amount(progress: Progress) -> str:
    return " of ".join(format_amount(amount) for amount in (progress.progress, progress.total) if amount is not None)


def render_failure_advice(call: Call) -> str:
    """What follows an error of Ringback's own in the response to tools/call: the call's id, and the next step."""
    return f"Call {call.id}: {get_next_step(call, poll_limit_reached=False)} ringback_get_call shows the call."


def get_labels(call: Call) -> dict[str, str]:
    """The client's own names for the call, as far as it has them."""
    labels = {"client_session_id": call.client_session_id, "correlation_id": call.correlation_id}
    return {name: label for name, label in labels.items() if label is not None}


def get_pending_step(call: Call) -> str:
    """The next step of a pending result, which may be all that a model sees: it names the tool and its argument."""
    argument = jsontext.dumps({"call_id": call.id}).decode()
    if (login_url := find_login_url(call)) is not None:
        return (
            f"{get_login_step(call.upstream, login_url)} Get the result with ringback_wait_for_call {argument}. "
            f"Do not call '{call.tool}' again."
        )
    if call.status is CallStatus.INPUT_REQUIRED:
        return (
            f"The tool asks a question: read it with ringback_get_call {argument}, ask the user, and answer with "
            f"ringback_answer_call. Do not call '{call.tool}' again."
        )
    state = "has run" if call.is_final else "is queued" if call.dispatched_at is None else "runs"
    return (
        f"Get the result with ringback_wait_for_call {argument}. Do not call '{call.tool}' again: it {state} already."
    )


def render_pending_text(call: Call, upstream: UpstreamInfo | None, *, is_paused: bool = False) -> str:
    """The text of a pending result. `upstream` is the state of the call's upstream; None if it is not configured."""
    ids = ", ".join(f"{name} {value}" for name, value in {"call_id": call.id, **get_labels(call)}.items())
    return (
        f"{_render_pending_state(call, upstream, is_paused=is_paused)} ({ids}).\n"
        f"{get_pending_step(call)}\n"
        f"The MCP resource {call_resource_uri(call)} holds the result too, once there is one. You need not wait: the call "
        "continues if you end your turn, and a callback, if one is registered, reports its end."
    )


def _render_pending_state(call: Call, upstream: UpstreamInfo | None, *, is_paused: bool) -> str:
    """What the call does now. A sentence without its full stop, because the ids follow."""
    name = f"The tool '{call.tool}' of '{call.upstream}'"
    if awaits_login(call):
        return f"{name} waits until the user signs in to '{call.upstream}'"
    if call.is_final:
        return f"{name} has finished. Its result is stored, and not shown here, because earlier results were not read"
    if is_paused:
        state = "started" if call.dispatched_at is None else "finished"
        return f"{name} has not {state}. {describe_pause(call.upstream).removesuffix('.')}"
    if call.dispatched_at is not None:
        return f"{name} has not finished. It runs in the background"
    return f"{name} has not started. {_render_queue_reason(call, upstream)}"


def _render_queue_reason(call: Call, upstream: UpstreamInfo | None) -> str:
    match None if upstream is None else upstream.state:
        case None:
            return f"'{call.upstream}' is not configured now; the call waits until it is"
        case "failing":
            return _render_failure(call, "" if upstream is None else upstream.last_error or "")
        case "idle" | "connecting":
            return f"'{call.upstream}' is being started or connected; the call waits for it"
        case _ if call.runs == 0 and call.progress is not None and call.progress.message:
            # No tool has reported it: the runner says what the call waits for before it is sent.
            return call.progress.message.removesuffix(".")
        case _ if call.waits_for is WaitCause.UPSTREAM:
            return UNSENT_REASON.removesuffix(".")
        case _:
            return "The call waits in the queue for its turn"


def _render_failure(call: Call, problem: str) -> str:
    if problem == LOGIN_REQUIRED_PROBLEM:
        return f"'{call.upstream}' requires a login, for which the call waits; ringback_login says where to sign in"
    if problem == TOKENS_UNREADABLE_PROBLEM:
        return f"This node cannot read the login to '{call.upstream}'; the call waits for a node that has its key"
    shown = problem.replace("_", " ")
    return f"'{call.upstream}' cannot be reached now ({shown}); if that lasts, the call ends as rejected"
