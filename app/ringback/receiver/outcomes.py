"""What a finished call has to say: its value, or an exception that names how it ended.

    OutcomeError            code, message, call_id
    ├── ToolFailed          tool_error: the tool answered with isError
    ├── UpstreamFailed      upstream_error: the upstream answered with an error, or with something invalid
    ├── CallRejected        rejected: the call never reached the upstream
    ├── CallTimedOut        timed_out: the call's deadline passed
    ├── OutcomeUnknown      unknown: the tool may have run
    └── OutcomeCancelled    cancelled
    NoValue                 this callback has no value, and the call did not fail
    ├── CallNotFinished     a progress, a question, a test
    └── ResultNotIncluded   the call has a result, and the callback is thin

`ringback.client.durable` has exceptions of its own, `CallFailed` and `CallCancelled`: there a tool's error is a result.

A call that failed and a tool that returned nothing must not look alike, so no outcome is None.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, cast

TOOL_MESSAGE_LENGTH_MAX: Final = 1_000
"""A tool's error text in an exception, in characters. `ToolFailed.result` has all of it."""


class OutcomeError(Exception):
    """The call ended without a value."""

    outcome: ClassVar[str] = "failed"
    default_message: ClassVar[str] = "The call failed."

    def __init__(self, call_id: str | None, code: str | int | None = None, message: str | None = None) -> None:
        super().__init__(call_id, code, message)
        self.call_id = call_id
        self.code: str | int = self.outcome if code is None else code
        """The `error.code` of the callback, or the outcome if the sender gives no code."""
        self.message: str = message or self.default_message

    def __str__(self) -> str:
        return f"{self.call_id}: {self.message} ({self.code})"


class ToolFailed(OutcomeError):
    """The tool ran and reported an error. The text of `message` is the tool's, if the callback includes the result."""

    outcome = "tool_error"
    default_message = "The tool reported an error. Its text is in the call's result."
    result: Mapping[str, Any] | None = None
    """The CallToolResult, if the callback includes it."""


class UpstreamFailed(OutcomeError):
    outcome = "upstream_error"
    default_message = "The upstream answered with an error, or with an invalid response."


class CallRejected(OutcomeError):
    outcome = "rejected"
    default_message = "The call never reached the upstream. It is safe to start it again."


class CallTimedOut(OutcomeError):
    outcome = "timed_out"
    default_message = "The call's deadline passed. The tool may still be running."


class OutcomeUnknown(OutcomeError):
    outcome = "unknown"
    default_message = "The outcome is unknown, and the tool may have run. Check before you repeat the call."


class OutcomeCancelled(OutcomeError):
    outcome = "cancelled"
    default_message = "The call was cancelled."


class NoValue(Exception):
    """The callback has no value, and the call has not failed."""


class CallNotFinished(NoValue):
    """The callback does not report the end of a call."""


class ResultNotIncluded(NoValue):
    """The call has a result, and the callback does not contain it."""


FAILURES: Final = {
    kind.outcome: kind
    for kind in (ToolFailed, UpstreamFailed, CallRejected, CallTimedOut, OutcomeUnknown, OutcomeCancelled)
}


def build_failure(data: Mapping[str, Any]) -> OutcomeError:
    """The exception for the `data` of a `call.finished` callback; `OutcomeError` itself for an outcome of a later version."""
    kind = FAILURES.get(str(data.get("outcome")), OutcomeError)
    code, message = _read_error(data.get("error"))
    failure = kind(data.get("call_id"), code or data.get("outcome"), message)
    result = data.get("result")
    if isinstance(failure, ToolFailed) and isinstance(result, Mapping):
        failure.result = cast("Mapping[str, Any]", result)
        failure.message = read_text(failure.result)[:TOOL_MESSAGE_LENGTH_MAX] or failure.message
    return failure


def read_value(result: Mapping[str, Any]) -> Any:
    """The value of a CallToolResult: its structured content, else its text if it has only text, else its content blocks."""
    structured = result.get("structuredContent")
    if structured is not None:
        return structured
    blocks = _content_blocks(result)
    return read_text(result) if all(block.get("type") == "text" for block in blocks) else list(blocks)


def read_text(result: Mapping[str, Any]) -> str:
    """The text blocks of a CallToolResult, one a line."""
    return "\n".join(str(block.get("text", "")) for block in _content_blocks(result) if block.get("type") == "text")


def _content_blocks(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    content = result.get("content")
    if not isinstance(content, Sequence):
        return []
    return [cast("Mapping[str, Any]", block) for block in cast("Sequence[Any]", content) if isinstance(block, Mapping)]


def _read_error(error: Any) -> tuple[str | int | None, str | None]:
    """Code and message of a callback's `error` member, which older senders leave out."""
    if not isinstance(error, Mapping):
        return None, None
    members = cast("Mapping[str, Any]", error)
    code, message = members.get("code"), members.get("message")
    return code if isinstance(code, str | int) else None, message if isinstance(message, str) else None
