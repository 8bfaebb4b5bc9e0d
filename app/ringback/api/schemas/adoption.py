"""Tasks that exist upstream, as they are adopted."""

from typing import Annotated, Final

from pydantic import Field

from ringback.api.schemas.calls import OptionalCallback, TimeoutSeconds
from ringback.api.schemas.fields import RequestBody, Label
from ringback.services.adoption import UNKNOWN_TOOL, AdoptTaskRequest
from ringback.services.calls import TIMEOUT_SECONDS_DEFAULT

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
