"""Reports over REST: calls that run elsewhere, and adoption of tasks that exist at an upstream."""

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
    response_description="The report is stored, and the call is running.",
    responses={
        200: {"model": StartedCallView, "description": "The report is stored, and the call has ended."},
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
async def report_call(body: ReportBody, services: ServicesDep, caller: CallerDep) -> Response:
    """Report a tool call that runs elsewhere: its start, its progress, its end. Needs the scope `adopt`.

    The call has events, callbacks and resume tokens like any other. A report can be repeated. Progress after the end is
    ignored; an end that differs from the recorded one is rejected.
    """
    started = await services.reports.record_report(caller, body.to_report())
    view = StartedCallView.from_started(started, started.call)
    headers = {"Location": f"/v1/calls/{started.call.id}"}
    return build_result_response(view, None, status_code=200 if started.call.is_final else 202, headers=headers)


@router.post(
    "/adopt",
    status_code=202,
    response_model=StartedCallView,
    response_description="Ringback follows the task from now on.",
    responses={
        200: {"model": StartedCallView, "description": "The task was adopted before, and its call has ended."},
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
async def adopt_task(body: AdoptBody, services: ServicesDep, caller: CallerDep) -> Response:
    """Follow a task that another client has already started at an upstream. Needs the scope `adopt`.

    Adopting a task again returns the same call. An unknown task and a task of another principal get the same response.
    """
    adopted = await services.task_adoption.adopt_task(caller, body.to_request())
    headers = {"Location": f"/v1/calls/{adopted.call.id}"}
    if not adopted.is_new:
        headers["Idempotent-Replayed"] = "true"
    view = StartedCallView.from_started(adopted, adopted.call)
    return build_result_response(view, None, status_code=200 if adopted.call.is_final else 202, headers=headers)
