"""Adoption over REST: a task that exists upstream becomes a call."""

from fastapi import APIRouter, Response

from ringback.api.auth import Asking
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.problems import GUARDED, WITH_BODY, documented
from ringback.api.raw_results import with_result
from ringback.api.schemas.adoption import AdoptBody
from ringback.api.schemas.calls import StartedCallView
from ringback.domain import errors

router = APIRouter(prefix="/v1/calls", tags=["calls"], route_class=GuardedRoute)


@router.post(
    "/adopt",
    status_code=202,
    response_model=StartedCallView,
    response_description="The task is followed from now on.",
    responses={
        200: {"model": StartedCallView, "description": "It was adopted before, and has ended."},
        **documented(
            *GUARDED,
            *WITH_BODY,
            errors.UnknownUpstream,
            errors.NotFound,
            errors.InvalidCallbackUrl,
            errors.IdempotencyConflict,
            errors.QuotaExceeded,
            errors.ShuttingDown,
            errors.Unavailable,
        ),
    },
)
async def adopt_task(body: AdoptBody, behind: Behind, caller: Asking) -> Response:
    """Follow a task that somebody already started upstream, and be rung when it ends. Takes the scope `adopt`.

    The same task again is the same call. A task that the upstream does not know and one that is another's look the same.
    """
    adopted = await behind.adoption.adopt(caller, body.request())
    headers = {"Location": f"/v1/calls/{adopted.call.id}"}
    if not adopted.created:
        headers["Idempotent-Replayed"] = "true"
    view = StartedCallView.of(adopted, adopted.call)
    return with_result(view, None, status_code=200 if adopted.call.final else 202, headers=headers)
