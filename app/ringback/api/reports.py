"""Reports over REST: whoever runs tools by itself tells how they go."""

from fastapi import APIRouter, Response

from ringback.api.auth import CallerDep
from ringback.api.context import ServicesDep
from ringback.api.guarded_route import AuthenticatedRoute
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.api.raw_results import build_result_response
from ringback.api.schemas.calls import StartedCallView
from ringback.api.schemas.reports import ReportBody
from ringback.domain import errors

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
