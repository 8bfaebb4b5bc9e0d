"""Resume over REST: a token from a callback becomes the call, its result and the events since; and fresh tokens."""

from fastapi import APIRouter, Response

from ringback.api.auth import Asking
from ringback.api.calls import CallIdPath
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.problems import GUARDED, WITH_BODY, documented
from ringback.api.raw_results import with_result
from ringback.api.schemas.events import ResumeBody, ResumedView, ResumeTokenBody, ResumeTokenView
from ringback.domain import errors

router = APIRouter(prefix="/v1", tags=["calls"], route_class=GuardedRoute)

_NOTHING_REVOKED = ResumeTokenBody()


@router.post(
    "/resume",
    response_model=ResumedView,
    responses=documented(*GUARDED, *WITH_BODY, errors.NotFound, errors.ResumeTokenExpired, errors.CallExpired),
)
async def resume_call(body: ResumeBody, behind: Behind, caller: Asking) -> Response:
    """Rejoin a call from anywhere. A resume token names a call; it does not identify you: send your API key too.

    With `wait_seconds`, answers once the call has ended or that time is over.
    """
    resumed = await behind.resume.resume(caller, body.resume_token, wait_seconds=body.wait_seconds)
    return with_result(ResumedView.of(resumed), resumed.result)


@router.post(
    "/calls/{call_id}/resume-token",
    responses=documented(*GUARDED, *WITH_BODY, errors.NotFound, errors.CallExpired),
)
async def issue_resume_token(
    call_id: CallIdPath, behind: Behind, caller: Asking, body: ResumeTokenBody = _NOTHING_REVOKED
) -> ResumeTokenView:
    """Get a fresh resume token for a call; with `revoke_older`, the only one that still works.

    Revoking reaches the tokens in callbacks too, also in those that are still on their way.
    """
    return ResumeTokenView(resume_token=await behind.resume.issue(caller, call_id, revoke_older=body.revoke_older))
