"""Resume over REST: exchange a token for the call, its result and its events; issue fresh tokens."""

from fastapi import APIRouter, Request, Response

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.api.responses import build_result_response
from ringback.api.routes.calls import CallIdPath
from ringback.domain import errors
from ringback.domain.call_resumes import ResumeSurface
from ringback.schemas.events import ResumeBody, ResumedView, ResumeTokenBody, ResumeTokenView
from ringback.services.limits.unread_responses import find_response_memory

router = APIRouter(prefix="/v1", tags=["calls"], route_class=AuthenticatedRoute)

_DEFAULT_TOKEN_BODY = ResumeTokenBody()


@router.post(
    "/resume",
    response_model=ResumedView,
    responses=problem_responses(
        *AUTHENTICATED_ERRORS,
        *BODY_ERRORS,
        errors.NotFound,
        errors.ResumeTokenExpired,
        errors.CallExpired,
        errors.QuotaExceeded,
        errors.Unavailable,
    ),
)
async def resume_call(body: ResumeBody, request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Rejoin a call from any process. A resume token names a call but does not authenticate you: send your API key too.

    With `wait_seconds`, the response waits until the call has ended or that time has passed.
    """
    memory = find_response_memory(request.scope["state"])
    resumed = await services.call_resumption.resume_call(
        caller,
        body.resume_token,
        wait_seconds=body.wait_seconds,
        reserve=lambda call: memory.reserve(caller.principal, call.result_bytes or 0),
    )
    services.call_resumes.record_resume(resumed.call, ResumeSurface.REST_RESUME)
    return build_result_response(ResumedView.from_resumed(resumed), resumed.result)


@router.post(
    "/calls/{call_id}/resume-token",
    responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.CallExpired),
)
async def issue_resume_token(
    call_id: CallIdPath, services: ServicesDep, caller: CallerDep, body: ResumeTokenBody = _DEFAULT_TOKEN_BODY
) -> ResumeTokenView:
    """Issue a fresh resume token for a call. With `revoke_older`, all other tokens of the call become invalid.

    Revoking includes the tokens in callbacks, also in those that have not been sent yet.
    """
    return ResumeTokenView(
        resume_token=await services.call_resumption.issue_token(caller, call_id, revoke_previous=body.revoke_older)
    )
