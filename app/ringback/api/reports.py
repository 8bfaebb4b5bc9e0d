"""Reports over REST: whoever runs tools by itself tells how they go."""

from fastapi import APIRouter, Response

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.api.responses import build_result_response
from ringback.domain import errors
from ringback.schemas.calls import StartedCallView
from ringback.schemas.reports import AdoptBody, ReportBody

router = APIRouter(prefix="/v1/calls", tags=["calls"], route_class=AuthenticatedRoute)


@router.post(
    "/report",
    status_code=202,
    response_model=StartedCallView,
    response_description="What you told is written down, and the call goes on.",
    responses={
        200: {"model": StartedCallView, "description": "What you told is written down, and the call has ended."},
        **problem_responses(
            *AUTHENTICATED_ERRORS,
            *BODY_ERRORS,
            errors.InvalidCallbackUrl,
            errors.IdempotencyConflict,
            errors.CallEnded,
            errors.CallExpired,
            errors.QuotaExceeded,
            errors.ShuttingDown,
        ),
    },
)
async def report_call(body: ReportBody, behind: ServicesDep, caller: CallerDep) -> Response:
    """Report a tool call that runs elsewhere: that it runs, how far it is, how it ended. Takes the scope `adopt`.

    The call is like any other then: events, callbacks, resume tokens. The same report may be sent again. Progress after the end
    is ignored; an end that differs from the one that is known is refused.
    """
    started = await behind.reports.record_report(caller, body.to_report())
    view = StartedCallView.from_started(started, started.call)
    headers = {"Location": f"/v1/calls/{started.call.id}"}
    return build_result_response(view, None, status_code=200 if started.call.is_final else 202, headers=headers)


# Adoption over REST: a task that exists upstream becomes a call.


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
