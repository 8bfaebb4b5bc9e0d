"""Resume over REST: a token from a callback becomes the call, its result and the events since."""

from fastapi import APIRouter, Response

from ringback.api.auth import Asking
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.problems import GUARDED, WITH_BODY, documented
from ringback.api.raw_results import with_result
from ringback.api.schemas.events import ResumeBody, ResumedView
from ringback.domain import errors

router = APIRouter(prefix="/v1", tags=["calls"], route_class=GuardedRoute)


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
