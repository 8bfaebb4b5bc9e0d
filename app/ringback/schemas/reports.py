"""Requests that adopt an upstream's task, or report a call that runs elsewhere."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, Strict, model_validator

from ringback.domain.call import Progress
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion
from ringback.domain.tool_result import PROGRESS_MESSAGE_LENGTH_MAX
from ringback.schemas.call_requests import OptionalCallback, TimeoutSeconds, to_registration
from ringback.schemas.fields import IdempotencyKey, Label, RequestBody
from ringback.services.calls.adoption import UNKNOWN_TOOL, AdoptTaskRequest
from ringback.services.calls.new_calls import TIMEOUT_SECONDS_DEFAULT
from ringback.services.calls.reports import CallReport, parse_error_completion, parse_result_completion

TASK_ID_LENGTH_MAX: Final = 1024
"""The drivers keep task ids of upstreams up to the same length."""


class AdoptBody(RequestBody):
    """A task that another client has already started at an upstream."""

    upstream: Label
    task_id: Annotated[str, Field(min_length=1, max_length=TASK_ID_LENGTH_MAX)]
    tool: Label = Field(default=UNKNOWN_TOOL, description="The tool of the task. The task itself does not name it.")
    client_session_id: Label | None = None
    correlation_id: Label | None = None
    callback: OptionalCallback = None
    timeout_seconds: TimeoutSeconds = Field(
        default=TIMEOUT_SECONDS_DEFAULT,
        description="The call's deadline, in seconds from now. Ringback then cancels the task.",
    )

    def to_request(self) -> AdoptTaskRequest:
        return AdoptTaskRequest(**self.to_arguments(callback=to_registration(self.callback)))


_FINITE: Final = Field(allow_inf_nan=False)

ReportedStatus = Literal["working", "completed", "failed", "cancelled"]


class ProgressBody(RequestBody):
    """MCP's progress."""

    progress: Annotated[float, Strict(), _FINITE]
    total: Annotated[float, Strict(), _FINITE] | None = None
    message: Annotated[str, Field(max_length=PROGRESS_MESSAGE_LENGTH_MAX)] | None = None

    def to_progress(self) -> Progress:
        return Progress(**self.to_arguments())


class ErrorBody(RequestBody):
    """A JSON-RPC error object."""

    code: Annotated[int, Strict()]
    message: str
    data: Any = None


class ReportBody(RequestBody):
    """The state of a tool call that runs elsewhere. The first report of a key creates the call; any report can be the first."""

    key: IdempotencyKey = Field(description="Your own name for the call, the same in every report of it.")
    upstream: Label = Field(
        description="The server that runs the tool: 1 to 24 of a-z, 0-9 and '-'. It need not be configured."
    )
    tool: Label
    arguments: dict[str, Any] | None = Field(default=None, description="The arguments of the tool call.")
    client_session_id: Label | None = None
    correlation_id: Label | None = None
    callback: OptionalCallback = None
    timeout_seconds: TimeoutSeconds = Field(
        default=TIMEOUT_SECONDS_DEFAULT,
        description="In seconds from the first report. A call whose end is not reported by then ends as `unknown`.",
    )
    progress: ProgressBody | None = None
    status: ReportedStatus | None = Field(
        default=None, description="Optional, because the other members imply it; only `cancelled` must be sent."
    )
    result: dict[str, Any] | None = Field(default=None, description="The CallToolResult of a completed call.")
    error: ErrorBody | None = Field(default=None, description="The JSON-RPC error of a failed call.")

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        outcomes = {"completed": self.result, "failed": self.error}
        statuses = [status for status, how in outcomes.items() if how is not None]
        statuses = statuses or ["cancelled" if self.status == "cancelled" else "working"]
        if statuses != [self.status or statuses[0]]:
            raise ValueError(
                "Send `result` for a completed call, `error` for a failed one, `status: cancelled` for a cancelled one, "
                "and none of these while it runs."
            )
        return self

    def to_report(self) -> CallReport:
        values = self.to_arguments(
            callback=to_registration(self.callback),
            progress=self.progress.to_progress() if self.progress else None,
            completion=self._completion(),
        )
        for name in ("status", "result", "error"):
            del values[name]
        return CallReport(**values)

    def _completion(self) -> CallCompletion | None:
        if self.result is not None:
            return parse_result_completion(self.result)
        if self.error is not None:
            return parse_error_completion(self.error.model_dump(exclude_unset=True))
        return CANCELLED_COMPLETION if self.status == "cancelled" else None
