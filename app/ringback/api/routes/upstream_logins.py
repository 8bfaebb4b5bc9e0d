"""Logins to upstreams over REST: start one, complete it, sign out."""

from fastapi import APIRouter

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.idempotency_keys import refuse_idempotency_key
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.api.routes.upstreams import UpstreamName
from ringback.domain import errors
from ringback.schemas.upstream_logins import (
    CompletedLoginView,
    CompleteLoginBody,
    StartedLoginView,
    StartLoginBody,
)

router = APIRouter(prefix="/v1/upstreams/{name}/login", tags=["upstreams"], route_class=AuthenticatedRoute)

_ERRORS = (*AUTHENTICATED_ERRORS, errors.NotFound, errors.InvalidRequest, errors.LoginNotCompleted, errors.ShuttingDown)
_DEFAULT_BODY = StartLoginBody()


@router.post(
    "",
    status_code=201,
    dependencies=[refuse_idempotency_key()],
    responses=problem_responses(*_ERRORS, *BODY_ERRORS, errors.QuotaExceeded, errors.LoginUnavailable),
)
async def start_login(
    name: UpstreamName,
    services: ServicesDep,
    caller: CallerDep,
    body: StartLoginBody = _DEFAULT_BODY,
) -> StartedLoginView:
    """Begin to sign in to an upstream in a browser (OAuth). Complete it within ten minutes with the same key.

    One login for all principals (`"credentials": "shared"`) needs the scope `admin`, your own needs `calls`. Without
    a front end of your own, send the user to `login_url` of the upstream instead (`GET /v1/upstreams`).
    """
    started = await services.upstream_logins.start_login(caller, name, redirect_uri=body.redirect_uri, scope=body.scope)
    return StartedLoginView.from_started(started)


@router.post(
    "/complete",
    responses=problem_responses(*_ERRORS, *BODY_ERRORS, errors.UnknownLogin, errors.LoginUnavailable),
)
async def complete_login(
    name: UpstreamName, body: CompleteLoginBody, services: ServicesDep, caller: CallerDep
) -> CompletedLoginView:
    """Complete a login with the URL to which the authorization server sent the browser. Only the key that started it can.

    Before a web front end calls this, it checks that the redirect arrived in the session of the user who started the login.
    A login is completed once; one that failed is started again. Calls that waited for it go on.
    """
    completed = await services.upstream_logins.complete_login(caller, name, body.redirected_to.get_secret_value())
    return CompletedLoginView.from_completed(completed)


@router.delete("", status_code=204, responses=problem_responses(*_ERRORS))
async def end_login(name: UpstreamName, services: ServicesDep, caller: CallerDep) -> None:
    """Sign out of an upstream: delete the tokens, and revoke them at the authorization server if it offers that."""
    await services.upstream_logins.sign_out(caller, name)
