"""Parses a verified body: a callback or a control envelope (mcp-events §8).

A top-level `type` marks a control envelope; a body without it is an event. Unknown members are ignored, so that senders may add
some. Known members must have the right type, those of `data` in the events of calls.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast

from ringback.receiver.outcomes import CallNotFinished, ResultNotIncluded, build_failure, read_value

CALL_FINISHED: Final = "call.finished"
CALL_INPUT_REQUIRED: Final = "call.input_required"
_CALL_EVENTS: Final = frozenset({CALL_FINISHED, CALL_INPUT_REQUIRED, "call.progress"})
"""Ringback's events of calls. In the data of any other event, also another server's `call.ended`, members of the same names may
have any type."""


class MalformedBody(Exception):
    """The body is neither a callback nor a control envelope. The text says why, and may be sent to the sender."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """An event of a call: the whole `data` of the body, and its most used members as attributes."""

    subscription_id: str | None
    """The webhook that this callback was sent for: `data.subscription_id`. If the sender does not name it there, the header
    `x-mcp-subscription-id`, which the signature does not cover."""
    event_id: str
    name: str
    timestamp: datetime
    cursor: str | None
    """Every event at or before this cursor has been delivered or given up."""
    call_id: str | None
    status: str | None
    outcome: str | None
    upstream: str | None
    tool: str | None
    correlation_id: str | None
    client_session_id: str | None
    resume_token: str | None = field(repr=False)
    resume_url: str | None
    data: Mapping[str, Any] = field(repr=False)

    @property
    def result(self) -> Mapping[str, Any] | None:
        """The CallToolResult, if the webhook includes results (`include_result`) and it fits into the body."""
        result = self.data.get("result")
        return cast("Mapping[str, Any]", result) if isinstance(result, Mapping) else None

    def value_or_raise(self) -> Any:
        """What the tool returned: its structured content, else its text, else its content blocks.

        Raises `OutcomeError`, by outcome `ToolFailed`, `UpstreamFailed`, `CallRejected`, `CallTimedOut`, `OutcomeUnknown` or
        `OutcomeCancelled`; `CallNotFinished` if this callback does not report an end, and `ResultNotIncluded` if the result
        must be fetched.
        """
        if self.name != CALL_FINISHED:
            raise CallNotFinished(f"{self.call_id or self.event_id}: {self.name} does not report the end of a call.")
        if self.outcome != "result":
            raise build_failure(self.data)
        if self.result is None:
            raise ResultNotIncluded(
                f"{self.call_id}: the callback does not contain the result. {_how_to_fetch(self)}, or register the webhook "
                "with include_result, for results that fit into a callback."
            )
        return read_value(self.result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The sender's challenge. The receiver proves that it wants callbacks by returning the challenge unchanged."""

    challenge: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Deliveries were given up. Read the event log from the cursor to get their events."""

    subscription_id: str | None
    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminated:
    """The subscription has ended; no further callbacks are sent."""

    subscription_id: str | None
    code: int
    message: str
    data: Mapping[str, Any] | None = None
    """Why, for programs: `{"kind": "event"}` if the event type does not exist any more."""


def parse(body: bytes, *, subscription_id: str | None = None) -> Callback | Verification | Gap | Terminated:
    """Parse a body that `verify` has accepted. Raises `MalformedBody`.

    `subscription_id` is that of the header, for a body that names none.
    """
    envelope = _require_object(_parse_json(body), "The body")
    match envelope.get("type"):
        case None:
            return _parse_callback(envelope, subscription_id)
        case "verification":
            return Verification(challenge=_require_text(envelope, "challenge"))
        case "gap":
            return Gap(subscription_id=subscription_id, cursor=_require_text(envelope, "cursor"))
        case "terminated":
            return _parse_terminated(_require_object(envelope.get("error"), "error"), subscription_id)
        case _:
            raise MalformedBody("This receiver does not know this type of control envelope.")


def _how_to_fetch(callback: Callback) -> str:
    if callback.resume_token is not None:
        return "Fetch it with the resume token (POST /v1/resume)"
    return f"Fetch it with your API key (GET /v1/calls/{callback.call_id}/result)"


def _parse_callback(envelope: Mapping[str, Any], subscription_id: str | None) -> Callback:
    data = _require_object(envelope.get("data"), "data")
    name = _require_text(envelope, "name")
    read_text = _optional_text if name in _CALL_EVENTS else find_text
    return Callback(
        subscription_id=read_text(data, "subscription_id") or subscription_id,
        event_id=_require_text(envelope, "eventId"),
        name=name,
        timestamp=_parse_instant(_require_text(envelope, "timestamp")),
        cursor=_optional_text(envelope, "cursor"),
        call_id=read_text(data, "call_id"),
        status=read_text(data, "status"),
        outcome=read_text(data, "outcome"),
        upstream=read_text(data, "upstream"),
        tool=read_text(data, "tool"),
        correlation_id=read_text(data, "correlation_id"),
        client_session_id=read_text(data, "client_session_id"),
        resume_token=read_text(data, "resume_token"),
        resume_url=read_text(data, "resume_url"),
        data=data,
    )


def _parse_terminated(error: Mapping[str, Any], subscription_id: str | None) -> Terminated:
    code = error.get("code")
    if type(code) is not int:  # a bool is an int to isinstance
        raise MalformedBody("code must be an integer.")
    data = error.get("data")
    return Terminated(
        subscription_id=subscription_id,
        code=code,
        message=_require_text(error, "message"),
        data=cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else None,
    )


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise MalformedBody("The body is not JSON.") from None


def _require_object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MalformedBody(f"{what} must be a JSON object.")
    return value  # pyright: ignore[reportUnknownVariableType] - a JSON object has string keys


def _require_text(members: Mapping[str, Any], name: str) -> str:
    value = _optional_text(members, name)
    if value is None:
        raise MalformedBody(f"{name} is missing.")
    return value


def _optional_text(members: Mapping[str, Any], name: str) -> str | None:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise MalformedBody(f"{name} must be a string.")
    if value is not None and not _is_unicode(value):
        raise MalformedBody(f"{name} must be Unicode text.")
    return value


def find_text(members: Mapping[str, Any], name: str) -> str | None:
    """The member, if it is a text: in the data of events that are not of calls, it may be anything."""
    value = members.get(name)
    return value if isinstance(value, str) and _is_unicode(value) else None


def _is_unicode(text: str) -> bool:
    """Whether the text can be written anywhere: JSON may contain half of a surrogate pair, which files and databases refuse."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parse_instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise MalformedBody("timestamp must be an ISO 8601 date and time.") from None
    if instant.tzinfo is None:
        raise MalformedBody("timestamp must have an offset, such as Z.")
    return instant
