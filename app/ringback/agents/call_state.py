"""How an agent's call stands: the tool's result, an error for the model, or questions for a person. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, cast

from ringback.client import Call

RESULT_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of a result that enters an agent's history: several images of the size that model providers accept. Of a larger one the model
gets its size and its place."""
ERROR_CHARACTERS_MAX: Final = 4000
"""Of an error's text. A model learns nothing from a longer stack trace."""


class CallStateKind(StrEnum):
    WORKING = "working"
    """The tool runs, or waits for its turn."""
    INPUT_REQUIRED = "input_required"
    """The tool has asked questions, which a person answers."""
    RESULT = "result"
    TOOL_ERROR = "tool_error"
    """The tool ran and reported an error."""
    FAILED = "failed"
    """The tool gave neither a result nor an error: the server failed, the time was over, or the call was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallState:
    """How a call stood when Ringback was asked."""

    kind: CallStateKind
    call_id: str
    """Empty if the call had expired when it was parked again."""
    upstream: str = ""
    """Empty if the call has expired, as is `tool`."""
    tool: str = ""
    client_session_id: str | None = None
    """The framework's own name of the conversation or thread."""
    tool_call_id: str | None = None
    """The framework's own name of the tool call; the call's correlation_id."""
    result: Mapping[str, Any] | None = field(default=None, repr=False)
    """The CallToolResult of a RESULT or TOOL_ERROR. None if it was not read."""
    text: str = field(default="", repr=False)
    """What a model reads of a TOOL_ERROR whose result was read, or of a FAILED."""
    input_requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]], repr=False)
    """The open questions of INPUT_REQUIRED: by key, an MCP request with `method` and `params`."""
    changed_at: datetime | None = None
    """When it ended, or else when it changed last, such as by asking. For an expired call the earliest time there is."""
    is_expired: bool = False
    """Whether Ringback has forgotten the call, so that nothing else is known of it."""

    @property
    def is_final(self) -> bool:
        return self.kind not in {CallStateKind.WORKING, CallStateKind.INPUT_REQUIRED}


def build_call_state(call: Call, result: Mapping[str, Any] | None = None) -> CallState:
    """The state of a call. `result` is its CallToolResult, if it was read; only one that `has_readable_result` is."""
    kind = _find_kind(call)
    if _has_result(call) and not has_readable_result(call):
        result = _describe_large_result(call)
    return CallState(
        kind=kind,
        call_id=call.id,
        upstream=call.upstream,
        tool=call.tool,
        client_session_id=call.client_session_id,
        tool_call_id=call.correlation_id,
        result=result,
        text=_find_text(kind, call, result),
        input_requests={
            key: {"method": request.method, "params": dict(request.params)}
            for key, request in call.input_requests.items()
        },
        changed_at=call.finished_at or call.updated_at,
    )


def has_readable_result(call: Call) -> bool:
    """Whether the call has a result that is small enough for an agent's history."""
    return _has_result(call) and (call.result_bytes or 0) <= RESULT_BYTES_MAX


def _has_result(call: Call) -> bool:
    return call.final and call.outcome in {"result", "tool_error"}


def read_texts(result: Mapping[str, Any]) -> str:
    """The text of a CallToolResult: its text blocks, or its structured content."""
    blocks = cast("Sequence[Mapping[str, Any]]", result.get("content") or ())
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    if texts:
        return "\n".join(texts)
    structured = result.get("structuredContent")
    return "" if structured is None else json.dumps(structured, ensure_ascii=False)


def _find_kind(call: Call) -> CallStateKind:
    if call.final:
        return CallStateKind(call.outcome) if _has_result(call) else CallStateKind.FAILED
    return CallStateKind.INPUT_REQUIRED if call.input_requests else CallStateKind.WORKING


def _find_text(kind: CallStateKind, call: Call, result: Mapping[str, Any] | None) -> str:
    if kind is CallStateKind.TOOL_ERROR:
        text = (
            "" if result is None else read_texts(result) or f"The tool '{call.tool}' reported an error without a text."
        )
    elif kind is CallStateKind.FAILED:
        text = _describe_failure(call)
    else:
        return ""
    return text if len(text) <= ERROR_CHARACTERS_MAX else f"{text[:ERROR_CHARACTERS_MAX]}…"


def _describe_failure(call: Call) -> str:
    """Our sentence for a model. An upstream's own words follow it where they help the model to do better."""
    tool = f"The tool '{call.tool}'"
    message = "" if call.error is None else call.error.message
    match call.outcome:
        case "upstream_error":
            return f"{tool} failed on its server: {message}"
        case "rejected":
            return f"{tool} was not called: {message}"
        case "timed_out":
            return f"{tool} did not end within its time limit, and was stopped. It may have done part of its work."
        case "cancelled":
            return f"The call of {tool[0].lower()}{tool[1:]} was cancelled."
        case _:
            return f"{tool} may have done its work, but its outcome is unknown. Check before you call it again."


def _describe_large_result(call: Call) -> dict[str, Any]:
    text = (
        f"The result of the tool '{call.tool}' has {call.result_bytes} bytes, more than the {RESULT_BYTES_MAX} that an agent's "
        f"history takes. It is stored: GET /v1/calls/{call.id}/result"
    )
    return {"content": [{"type": "text", "text": text}]}
