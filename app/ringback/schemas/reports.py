"""Tasks that exist upstream, as they are adopted."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, Strict, model_validator

from ringback.domain.call import CANCELLED_COMPLETION, CallCompletion, Progress
from ringback.domain.tool_result import PROGRESS_MESSAGE_LENGTH_MAX
from ringback.schemas.calls import OptionalCallback, TimeoutSeconds
from ringback.schemas.fields import Label, RequestBody
from ringback.services.adoption import UNKNOWN_TOOL, AdoptTaskRequest
from ringback.services.calls import TIMEOUT_SECONDS_DEFAULT
from ringback.services.reports import CallReport, parse_error_completion, parse_result_completion

TASK_ID_LENGTH_MAX: Final = 1024
"""As much as the drivers keep of an upstream's own."""


class AdoptBody(RequestBody):
    """A task that somebody already started upstream."""

    upstream: Label
    task_id: Annotated[str, Field(min_length=1, max_length=TASK_ID_LENGTH_MAX)]
    tool: Label = Field(default=UNKNOWN_TOOL, description="What was called: the task itself does not say.")
    client_session_id: Label | None = None
    correlation_id: Label | None = None
    callback: OptionalCallback = None
    timeout_seconds: TimeoutSeconds = Field(
        default=TIMEOUT_SECONDS_DEFAULT,
        description="The call's deadline, from now. The task is cancelled then.",
    )

    def to_request(self) -> AdoptTaskRequest:
        return AdoptTaskRequest(
            upstream=self.upstream,
            task_id=self.task_id,
            tool=self.tool,
            client_session_id=self.client_session_id,
            correlation_id=self.correlation_id,
            callback=self.callback.to_registration() if self.callback else None,
            timeout_seconds=self.timeout_seconds,
        )


# Calls that run elsewhere, as they are reported.

KEY_LENGTH_MAX: Final = 256
"""As for an Idempotency-Key: room for several UUIDs, or for the reporter's own name of the work."""
_FINITE: Final = Field(allow_inf_nan=False)

ReportedStatus = Literal["working", "completed", "failed", "cancelled"]


class ProgressBody(RequestBody):
    """MCP's progress."""

    progress: Annotated[float, Strict(), _FINITE]
    total: Annotated[float, Strict(), _FINITE] | None = None
    message: Annotated[str, Field(max_length=PROGRESS_MESSAGE_LENGTH_MAX)] | None = None

    def to_progress(self) -> Progress:
        return Progress(progress=self.progress, total=self.total, message=self.message)


class ErrorBody(RequestBody):
    """A JSON-RPC error object."""

    code: Annotated[int, Strict()]
    message: str
    data: Any = None


class ReportBody(RequestBody):
    """What is known of a tool call that runs elsewhere. Every report may be the first: it makes the call then."""

    key: Annotated[str, Field(min_length=1, max_length=KEY_LENGTH_MAX, pattern=r"^[\x20-\x7e]+$")] = Field(
        description="Your own name for the call, the same in every report of it."
    )
    upstream: Label = Field(description="What runs the tool: 1 to 24 of a-z, 0-9 and '-'. It need not be configured.")
    tool: Label
    arguments: dict[str, Any] | None = Field(default=None, description="What the tool was called with.")
    client_session_id: Label | None = None
    correlation_id: Label | None = None
    callback: OptionalCallback = None
    timeout_seconds: TimeoutSeconds = Field(
        default=TIMEOUT_SECONDS_DEFAULT,
        description="From the first report on: a call whose end was not reported by then ends as `unknown`.",
    )
    progress: ProgressBody | None = None
    status: ReportedStatus | None = Field(default=None, description="Follows from the rest, but for `cancelled`.")
    result: dict[str, Any] | None = Field(default=None, description="The CallToolResult of a call that has ended.")
    error: ErrorBody | None = Field(default=None, description="The JSON-RPC error of a call that has failed.")

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
        return CallReport(
            key=self.key,
            upstream=self.upstream,
            tool=self.tool,
            arguments=self.arguments,
            client_session_id=self.client_session_id,
            correlation_id=self.correlation_id,
            callback=self.callback.to_registration() if self.callback else None,
            timeout_seconds=self.timeout_seconds,
            progress=self.progress.to_progress() if self.progress else None,
            completion=self._completion(),
        )

    def _completion(self) -> CallCompletion | None:
        if self.result is not None:
            return parse_result_completion(self.result)
        if self.error is not None:
            return parse_error_completion(self.error.model_dump(exclude_unset=True))
        return CANCELLED_COMPLETION if self.status == "cancelled" else None
