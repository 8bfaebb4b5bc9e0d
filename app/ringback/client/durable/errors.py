"""The errors of durable calls. All are `ClientError`s, and each text says what to do.

DurableCallError
├── CallNotStarted        the tool has not run, and will not
├── StartUnknown          the request may have started the call: repeat it with the same idempotency key, or join its handle
├── IdempotencyConflict   the idempotency key belongs to a different request
├── UnknownHandle         the state does not hold this call: forgotten, expired, or held elsewhere
├── NotRejoinable         the server does not keep the call for another connection
├── InputRequired         the tool asks for input; answer, then join again
├── CallFailed            the call ended without a result
│   └── CallCancelled     it was cancelled
├── StateConflict         other processes changed the state of the call again and again
└── StateUnavailable      the file or the Redis of the state did not work; it may work later
"""

from collections.abc import Mapping
from typing import Any

from ringback.client.durable.handle import CallHandle
from ringback.client.models import InputRequest
from ringback.client.problems import ClientError
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY


class DurableCallError(ClientError):
    """The base class of the errors of durable calls."""


class CallNotStarted(DurableCallError):
    """The tool has not run, and will not: it is safe to request the call again."""


class StartUnknown(DurableCallError):
    """It is unknown whether the call has started. Joining `handle` finds out, and starts it if it has not."""

    def __init__(self, message: str, handle: CallHandle) -> None:
        super().__init__(message)
        self.handle = handle


class IdempotencyConflict(DurableCallError):
    """The idempotency key belongs to a request with another tool or other arguments."""


class UnknownHandle(DurableCallError):
    """The state does not hold this call."""


class NotRejoinable(DurableCallError):
    """The server does not keep the call for another connection."""


class InputRequired(DurableCallError):
    """The tool asks for input. Answer with `DurableCaller.answer_call_tool`, then join again.

    With the key `ringback/login`, the server requires a login: the user opens the URL, and the call goes on by itself.
    """

    def __init__(self, handle: CallHandle, input_requests: Mapping[str, InputRequest]) -> None:
        super().__init__(_describe_requests(input_requests))
        self.handle = handle
        self.input_requests = input_requests
        """By key: MCP requests, which ElicitResults answer."""


def _describe_requests(input_requests: Mapping[str, InputRequest]) -> str:
    if (login := input_requests.get(LOGIN_REQUEST_KEY)) is not None:
        return f"The server requires a login: open {login.params.get('url')} and sign in. Then join again."
    keys = ", ".join(sorted(input_requests))
    return (
        f"The tool asks for input ({keys}). Answer: await caller.answer_call_tool(handle, "
        '{key: {"action": "accept", "content": {…}}}). Then join again.'
    )


class CallFailed(DurableCallError):
    """The call ended without a result. A tool's own error is no failure: it is a result with `isError`."""

    def __init__(self, handle: CallHandle, outcome: str, error: Mapping[str, Any] | None) -> None:
        message = "" if error is None else f" {error.get('message', '')}".rstrip()
        super().__init__(f"The call of {handle.tool!r} ended as {outcome}.{message}")
        self.handle = handle
        self.outcome = outcome
        """upstream_error | rejected (the tool has not run) | timed_out | unknown (the tool may have run) | cancelled"""
        self.error = error
        """Of an MCP server the JSON-RPC error. Ringback's has a `code` (the outcome), a `message`, and it in `jsonrpc`."""


class CallCancelled(CallFailed):
    """The call was cancelled."""


class StateUnavailable(DurableCallError):
    """The state of calls cannot be read or written. The text says why, and what to do; the cause is the store's own error."""


class StateConflict(DurableCallError):
    """Other processes changed the state of the call again and again. Try again."""
