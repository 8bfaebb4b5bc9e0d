"""Reports over REST: whoever runs tools by itself tells how they go."""

from fastapi import APIRouter, Response

from ringback.api.auth import Asking
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.problems import GUARDED, WITH_BODY, documented
from ringback.api.raw_results import with_result
from ringback.api.schemas.calls import StartedCallView
from ringback.api.schemas.reports import ReportBody
from ringback.domain import errors

router = APIRouter(prefix="/v1/calls", tags=["calls"], route_class=GuardedRoute)


@router.post(
    "/report",
    status_code=202,
    response_model=StartedCallView,
    response_description="What you told is written down, and the call goes on.",
    responses={
        200: {"model": StartedCallView, "description": "What you told is written down, and the call has ended."},
        **documented(
            *GUARDED,
            *WITH_BODY,
            errors.InvalidCallbackUrl,
            errors.IdempotencyConflict,
            errors.CallEnded,
            errors.CallExpired,
            errors.QuotaExceeded,
            errors.ShuttingDown,
        ),
    },
)
async def report_call(body: ReportBody, behind: Behind, caller: Asking) -> Response:
    """Report a tool call that runs elsewhere: that it runs, how far it is, how it ended. Takes the scope `adopt`.

    The call is like any other then: events, callbacks, resume tokens. The same report may be sent again. Progress after the end
    is ignored; an end that differs from the one that is known is refused.
    """
    started = await behind.reports.report(caller, body.report())
    view = StartedCallView.of(started, started.call)
    headers = {"Location": f"/v1/calls/{started.call.id}"}
    return with_result(view, None, status_code=200 if started.call.final else 202, headers=headers)
