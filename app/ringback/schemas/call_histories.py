"""The history of a call: its events, deliveries and resumes."""

from typing import Self

from pydantic import Field

from ringback.domain.call_histories import CallHistory, DeliveryHistory
from ringback.domain.call_resumes import ResumeSurface
from ringback.schemas.calls import CallView
from ringback.schemas.deliveries import DeliveryWithAttemptsView
from ringback.schemas.events import EventView
from ringback.schemas.fields import Instant, ResponseBody


class CallResumeView(ResponseBody):
    """When the client came back for the call: it used a resume token, or read the result."""

    resumed_at: Instant
    surface: ResumeSurface = Field(
        description="`rest_resume`: POST /v1/resume; `rest_result`: GET /v1/calls/{id}/result; `mcp_task`, `mcp_resource`, "
        "`tool`: over MCP."
    )
    resumes: int = Field(
        description="How many there were, by this interface, within about a second. The last of 20 also counts all later ones."
    )


class CallHistoryView(ResponseBody):
    """What happened to a call, from its start to the return of its client."""

    call: CallView
    events: list[EventView] = Field(description="The latest 200, oldest first.")
    deliveries: list[DeliveryWithAttemptsView] = Field(
        description="The latest 50, oldest first, each with its latest 20 attempts, newest first."
    )
    resumes: list[CallResumeView] = Field(description="Oldest first. A crash of the service can lose some of them.")
    resume_count: int = Field(description="How often the client came back.")
    truncated: bool = Field(description="Whether the call has more events or deliveries than these.")

    @classmethod
    def from_history(cls, history: CallHistory, *, shows_owner: bool = False) -> Self:
        return cls(
            call=CallView.from_call(history.call, shows_owner=shows_owner),
            events=[EventView.from_event(event) for event in history.events],
            deliveries=[_show_delivery(each, shows_owner=shows_owner) for each in history.deliveries],
            resumes=[CallResumeView.model_validate(resume) for resume in history.resumes],
            resume_count=history.resume_count,
            truncated=history.is_truncated,
        )


def _show_delivery(history: DeliveryHistory, *, shows_owner: bool) -> DeliveryWithAttemptsView:
    return DeliveryWithAttemptsView.from_delivery_and_attempts(
        history.delivery, list(reversed(history.attempts)), shows_owner=shows_owner
    )
