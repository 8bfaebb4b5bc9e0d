"""What the state holds of one call, as JSON. Any process continues the call from this."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ringback.client.durable.handle import CallHandle
from ringback.client.models import InputRequest, Progress


class RecordPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CallRequest(RecordPart):
    """What was requested. It starts the call again where that is safe."""

    upstream: str | None = None
    tool: str
    arguments: Mapping[str, Any] = Field(default_factory=dict[str, Any], repr=False)
    client_session_id: str | None = None
    correlation_id: str | None = None
    callback: Mapping[str, Any] | None = Field(default=None, repr=False)
    idempotency_key: str = Field(repr=False)
    timeout_seconds: float | None = None
    accepts_input: bool = False

    def fingerprint(self) -> str:
        """Equal for requests that an idempotency key may repeat."""
        same = {
            "upstream": self.upstream,
            "tool": self.tool,
            "arguments": self.arguments,
            "callback": None if self.callback is None else self.callback.get("url"),
        }
        return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()

    def make_tool_call_params(self) -> dict[str, Any]:
        """The params of a tools/call. A Ringback's MCP endpoint and `ringback.extension` read these keys of `_meta`."""
        ids = {
            "ringback/clientSessionId": self.client_session_id,
            "ringback/correlationId": self.correlation_id,
            "ringback/idempotencyKey": self.idempotency_key,
        }
        meta = {key: value for key, value in ids.items() if value is not None}
        return {"name": self.tool, "arguments": dict(self.arguments), "_meta": meta}


class RingbackPosition(RecordPart):
    kind: Literal["ringback"] = "ringback"
    call_id: str
    events_cursor: str | None = None
    """The events before it are known."""


class TaskPosition(RecordPart):
    kind: Literal["task"] = "task"
    task_id: str


class LegacyTaskPosition(RecordPart):
    kind: Literal["legacy_task"] = "legacy_task"
    task_id: str
    session_id: str | None
    """None if any session may read the task."""
    protocol_version: str


class StreamedPosition(RecordPart):
    kind: Literal["stream"] = "stream"
    session_id: str
    protocol_version: str
    request_id: str | int
    event_id: str


class RoundPosition(RecordPart):
    """Between two rounds of a modern call without a task: the server holds nothing."""

    kind: Literal["mrtr"] = "mrtr"
    request_state: str | None
    round: int
    asked: int = 0
    """The rounds in which the tool has asked questions."""


class PlainPosition(RecordPart):
    """The request is about to be sent, or is in flight: only the process that sends it gets the response."""

    kind: Literal["plain"] = "plain"


Position = Annotated[
    RingbackPosition | TaskPosition | LegacyTaskPosition | StreamedPosition | RoundPosition | PlainPosition,
    Field(discriminator="kind"),
]


class Completion(RecordPart):
    """How a call ended."""

    outcome: str
    """result | tool_error | upstream_error | rejected | timed_out | unknown | cancelled"""
    result: Mapping[str, Any] | None = Field(default=None, repr=False)
    error: Mapping[str, Any] | None = Field(default=None, repr=False)


class CallRecord(RecordPart):
    version: Literal[1] = 1
    handle: CallHandle
    request: CallRequest
    fingerprint: str
    """`CallRequest.fingerprint` of the request as it was made. After the start, `request` has no callback any more."""
    position: Position | None = None
    """None before anything was sent."""
    progress: Progress | None = None
    input_requests: Mapping[str, InputRequest] = Field(default_factory=dict[str, InputRequest])
    input_responses: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict[str, Mapping[str, Any]], repr=False)
    """Answers that wait to be sent."""
    answered_keys: tuple[str, ...] = ()
    """A server may still list a question for a moment after its answer has arrived."""
    session_gone_since: float | None = None
    """Seconds since 1970. Since then, each resume of the stream has found that the server does not know its session."""
    completion: Completion | None = None
    lease_holder: str | None = None
    """The caller that sends the request or waits for its response, while only that process can get it."""
    lease_until: float = 0.0
    """Seconds since 1970. The holder renews the lease; after it, the holder is gone."""
    expires_at: float
    """Seconds since 1970."""
