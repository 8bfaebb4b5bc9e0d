"""Erasure over REST: of a call, of a client session, of a principal; and how far an erasure is."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Response

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.operator_access import AdminCallerDep, OwnerCallerDep
from ringback.api.problems import AUTHENTICATED_ERRORS, problem_responses
from ringback.domain import errors
from ringback.domain.erasure import Erasure, ErasureState
from ringback.schemas import examples
from ringback.schemas.erasures import ErasePrincipalQuery, EraseQuery, ErasureView

router = APIRouter(prefix="/v1", tags=["erasures"], route_class=AuthenticatedRoute)

_ACCEPTED: Final[dict[int | str, dict[str, Any]]] = {
    202: {
        "model": ErasureView,
        "description": "More is left to erase, or a call has to end first. It continues by itself.",
    }
}
_ERASE_ERRORS: Final = (
    *AUTHENTICATED_ERRORS,
    errors.CallRunning,
    errors.InvalidRequest,
    errors.ShuttingDown,
)


@router.delete(
    "/calls/{call_id}",
    response_description="Everything is erased.",
    responses={**_ACCEPTED, **problem_responses(*_ERASE_ERRORS, errors.NotFound, errors.CallExpired)},
)
async def erase_call(
    call_id: Annotated[str, Path(description="A call's id.", examples=[examples.CALL_ID])],
    query: Annotated[EraseQuery, Query()],
    services: ServicesDep,
    caller: OwnerCallerDep,
    response: Response,
) -> ErasureView:
    """Erase a call that has ended: arguments, result, deliveries with their bodies, and what its events say.

    Its undelivered callbacks are not sent. Its events stay in the log as empty stubs (`erased: true`), so that every cursor
    stays valid. From then on, its id and its idempotency key get 410.
    """
    return _respond(response, await services.erasures.erase_call(caller, call_id, cancel=query.cancel))


@router.delete(
    "/sessions/{client_session_id:path}",
    response_description="Everything is erased.",
    responses={**_ACCEPTED, **problem_responses(*_ERASE_ERRORS)},
)
async def erase_session(
    client_session_id: Annotated[str, Path(description="Your name for the session.", examples=["session-7"])],
    query: Annotated[EraseQuery, Query()],
    services: ServicesDep,
    caller: OwnerCallerDep,
    response: Response,
) -> ErasureView:
    """Erase all your calls with this client_session_id, as DELETE /v1/calls/{id}, with its webhooks and portal links.

    If there are webhooks registered for it, the scope `webhooks` is needed too. What is newer than the request stays.
    A key that is limited to upstreams cannot do this.
    """
    return _respond(response, await services.erasures.erase_session(caller, client_session_id, cancel=query.cancel))


@router.delete(
    "/principals/{principal:path}",
    response_description="Everything is erased.",
    responses={**_ACCEPTED, **problem_responses(*_ERASE_ERRORS)},
)
async def erase_principal(
    principal: Annotated[str, Path(description="The owner of the data.", examples=["reports-team"])],
    query: Annotated[ErasePrincipalQuery, Query()],
    services: ServicesDep,
    caller: AdminCallerDep,
    response: Response,
) -> ErasureView:
    """Erase everything of a principal: calls, results, events, deliveries, webhooks, MCP sessions, API keys. Needs `admin`.

    Its API keys are refused from then on, and event streams that are open end within 15 minutes. Its event log continues after
    the last place. Tombstones of its calls stay as long as those of expired calls.
    """
    return _respond(response, await services.erasures.erase_principal(caller, principal, cancel=query.cancel))


@router.get("/erasures/{erasure_id}", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound))
async def read_erasure(
    erasure_id: Annotated[str, Path(description="An erasure's id.", examples=[examples.ERASURE_ID])],
    services: ServicesDep,
    caller: CallerDep,
) -> ErasureView:
    """Read how far an erasure is. It can be read as long as the tombstones of erased calls."""
    erasure = await services.erasures.get_erasure(caller, erasure_id)
    if erasure.principal != caller.principal:
        services.operators.require_admin(
            caller, operation="read_erasure", principal=erasure.principal, target=erasure.id
        )
    return ErasureView.from_erasure(erasure)


def _respond(response: Response, erasure: Erasure) -> ErasureView:
    response.headers["Location"] = f"/v1/erasures/{erasure.id}"
    response.status_code = 200 if erasure.state is ErasureState.FINISHED else 202
    return ErasureView.from_erasure(erasure)
