"""What commands say about a call: its state, its progress, its question and its end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ringback.amounts import format_amount
from ringback.cli.output import strip_control_characters
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY, login_command

if TYPE_CHECKING:
    from ringback.client import Call

DRAFTED_VALUES_MAX: Final = 10
"""Values of a form that are named in the command that answers it. `ringback calls show` has them all."""


def describe_status(call: Call) -> str:
    """Its status. A call that waits for its start has another one than a call that runs."""
    if call.status != "working" or call.dispatched_at is not None:
        return call.status
    from ringback.domain.wait_words import WAIT_WORDS  # noqa: PLC0415 - most calls do not wait

    return f"working ({WAIT_WORDS.get(call.waits_for or '', 'not started')})"


def describe_state(call: Call) -> str:
    """What the call does, in the few words before its bar: what it waits for, or its last progress."""
    if call.input_requests:
        return "waits for input"
    if call.waits_for is not None:
        from ringback.domain.wait_words import WAIT_WORDS  # noqa: PLC0415 - most calls that are followed run

        return WAIT_WORDS.get(call.waits_for, call.status)
    message = call.progress and call.progress.message
    return strip_control_characters(message or call.status)


def describe_progress(call: Call) -> str:
    """The call's progress as one line: `3/10 reading`; empty without progress."""
    if call.progress is None:
        return ""
    return f"{format_progress(call.progress.progress, call.progress.total)} {call.progress.message or ''}".rstrip()


def format_progress(progress: float, total: float | None) -> str:
    return "/".join(format_amount(amount) for amount in (progress, total) if amount is not None)


def describe_input_request(call: Call, key: str) -> str:
    request = call.input_requests[key]
    message = request.params.get("message") or request.method
    if key == LOGIN_REQUEST_KEY:
        return f"{message}\nOpen in a browser: {request.params.get('url')}\nOr run here: {login_command(call.upstream)}"
    answer = f"ringback calls answer {call.id} --key {key}"
    if request.params.get("mode") == "url":
        return (
            f"The tool asks: {message}\nOpen in a browser: {request.params.get('url')}\nThen: {answer} --accept '{{}}'"
        )
    return f"The tool asks: {message}\nAnswer it: {answer} {_draft_answer(request.params)}"


def _draft_answer(params: Mapping[str, Any]) -> str:
    """Options to be filled in, with the values that the question's form requires, or with all if it requires none."""
    match params.get("requestedSchema"):
        case {"required": [_, *_] as required}:
            names = [str(name) for name in required]
        case {"properties": {**properties}}:
            names = [str(name) for name in properties]
        case _:
            names = []
    if not 0 < len(names) <= DRAFTED_VALUES_MAX:
        return "--accept '{…}'"
    if any("=" in name or not name for name in names):  # --arg ends a name there
        return f"--accept {shlex.quote(json.dumps(dict.fromkeys(names, '…'), ensure_ascii=False))}"
    return " ".join(f"--arg {shlex.quote(f'{name}=…')}" for name in names)


def describe_outcome(call: Call) -> str:
    reason = f": {call.error.message}" if call.error and call.error.message else "."
    return f"{call.id} ended as {call.status} ({call.outcome}){reason}"


def join_advice(call_id: str) -> str:
    return f"Join it: ringback join {call_id}"
