"""The member `retries` of requests and responses: a named schedule, or one of the owner's own."""

from typing import Annotated, Any, Final, cast

from pydantic import BeforeValidator, Field, Strict

from ringback.domain.retry import OWN_STEP_SECONDS_MAX, OWN_STEPS_MAX, OWN_STEPS_SECONDS_MAX, RetryProfile
from ringback.schemas.fields import RequestBody, ResponseBody
from ringback.services.webhooks.webhook_changes import Retries

LIMITS: Final = (
    f"1 to {OWN_STEPS_MAX} steps of 1 to {OWN_STEP_SECONDS_MAX:,} seconds, at most {OWN_STEPS_SECONDS_MAX:,} seconds (4 days) "
    "together"
)
_PROFILES: Final = frozenset(str(profile) for profile in RetryProfile)


def _require_valid_retries(value: Any) -> Any:
    """One error that says the limits, instead of one for each alternative of the union."""
    if isinstance(value, OwnRetriesBody) or (isinstance(value, str) and value in _PROFILES):
        return value
    members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if set(members) != {"schedule"} or not _is_valid_schedule(members["schedule"]):
        raise ValueError(f'Send "days", "minutes", or {{"schedule": [seconds, …]}} with {LIMITS}.')
    return members


def _is_valid_schedule(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    steps = cast("list[Any]", value)
    return (
        1 <= len(steps) <= OWN_STEPS_MAX
        and all(type(step) is int and 1 <= step <= OWN_STEP_SECONDS_MAX for step in steps)
        and sum(steps) <= OWN_STEPS_SECONDS_MAX
    )


class OwnRetriesBody(RequestBody):
    """A retry schedule of your own, for example to rehearse within a minute what happens when deliveries are given up."""

    schedule: Annotated[
        tuple[Annotated[int, Strict(), Field(ge=1, le=OWN_STEP_SECONDS_MAX)], ...],
        Field(
            min_length=1,
            max_length=OWN_STEPS_MAX,
            description=f"Seconds until each further attempt: {LIMITS}. After the last attempt the delivery is dead.",
            examples=[[5, 10, 20]],
        ),
    ]


RetriesMember = Annotated[RetryProfile | OwnRetriesBody, BeforeValidator(_require_valid_retries)]


class OwnRetriesView(ResponseBody):
    """A retry schedule of the webhook's owner."""

    schedule: list[int] = Field(description="Seconds until each further attempt.")


def retries_from_member(member: RetryProfile | OwnRetriesBody) -> Retries:
    if isinstance(member, OwnRetriesBody):
        return Retries(steps=member.schedule)
    return Retries(profile=member)
