"""Adoption over REST: a task that exists upstream becomes a call."""

from fastapi import APIRouter, Response

from ringback.api.auth import CallerDep
from ringback.api.context import ServicesDep
from ringback.api.guarded_route import AuthenticatedRoute
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.api.raw_results import build_result_response
from ringback.api.schemas.adoption import AdoptBody
from ringback.api.schemas.calls import StartedCallView
from ringback.domain import errors

router = APIRouter(prefix="/v1/calls", tags=["calls"], route_class=AuthenticatedRoute)


@router.post(
    "/adopt",
    status_code=202,
    response_model=StartedCallView,
    response_description="The task is followed from now on.",
    responses={
        200: {"model": StartedCallView, "description": "It was adopted before, and has ended."},
        **problem_responses(
            *AUTHENTICATED_ERRORS,
            *BODY_ERRORS,
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
async def adopt_task(body: AdoptBody, behind: ServicesDep, caller: CallerDep) -> Response:
    """Follow a task that somebody already started upstream, and be rung when it ends. Takes the scope `adopt`.

    The same task again is the same call. A task that the upstream does not know and one that is another's look the same.
    """
    adopted = await behind.task_adoption.adopt_task(caller, body.to_request())
    headers = {"Location": f"/v1/calls/{adopted.call.id}"}
    if not adopted.is_new:
        headers["Idempotent-Replayed"] = "true"
    view = StartedCallView.from_started(adopted, adopted.call)
    return build_result_response(view, None, status_code=200 if adopted.call.is_final else 202, headers=headers)
