"""What operators may do over REST, each of it with a line in the audit log.

They read other principals' rows or act for their owner, with the query parameter `principal`; and they run the operations that
need the scope `admin`.
"""

from typing import Annotated, Final

from fastapi import Depends, Query, Request
from pydantic import AfterValidator

from ringback.api.authentication import CallerDep
from ringback.api.context import ServicesDep
from ringback.domain.errors import InvalidRequest
from ringback.domain.principal import ALL_PRINCIPALS, PRINCIPAL_LENGTH_MAX, Caller
from ringback.domain.validation import require_printable
from ringback.schemas.fields import PRINCIPAL_DESCRIPTION

PrincipalParam = Annotated[
    str | None,
    Query(min_length=1, max_length=PRINCIPAL_LENGTH_MAX, description=PRINCIPAL_DESCRIPTION, examples=["alice", "*"]),
    AfterValidator(lambda name: None if name is None else require_printable(name)),
]

_OWN_NAMES: Final = frozenset({"name", "client_session_id"})
"""Parameters of a path that principals choose: each may have an object of the same name."""


async def view_principals(
    request: Request, services: ServicesDep, caller: CallerDep, principal: PrincipalParam = None
) -> Caller:
    """The caller of a list, which may cover all principals."""
    if principal is None:
        return caller
    return services.operators.view_principal(caller, principal, operation=_operation(request))


async def act_for_owner(
    request: Request, services: ServicesDep, caller: CallerDep, principal: PrincipalParam = None
) -> Caller:
    """The caller of an operation on one object, or on one principal's log."""
    if principal is None:
        return caller
    target = next(iter(request.path_params.values()), None)
    operation = _operation(request)
    if target is None or not _OWN_NAMES.isdisjoint(request.path_params):
        if principal == ALL_PRINCIPALS:
            raise InvalidRequest(
                f"Name one principal instead of '{ALL_PRINCIPALS}': names, sessions and event logs belong to one principal, "
                "and an operation on many objects acts for one."
            )
        return services.operators.view_principal(caller, principal, operation=operation)
    return await services.operators.act_for_owner(caller, principal, operation=operation, target=target)


async def require_admin(request: Request, services: ServicesDep, caller: CallerDep) -> Caller:
    """The caller of an operation that only operators may run. Its path names the object, or the principal."""
    principal = request.path_params.get("principal") or request.query_params.get("principal")
    target = next((value for name, value in request.path_params.items() if name != "principal"), None)
    services.operators.require_admin(caller, operation=_operation(request), principal=principal, target=target)
    return caller


def _operation(request: Request) -> str:
    """The operation's id in the OpenAPI document."""
    return str(request.scope["route"].name)


ListCallerDep = Annotated[Caller, Depends(view_principals)]
"""The parameter of a list that an operator may read for all principals."""

OwnerCallerDep = Annotated[Caller, Depends(act_for_owner)]
"""The parameter of an operation that an operator may run for the owner of its object."""

AdminCallerDep = Annotated[Caller, Depends(require_admin)]
"""The parameter of an operation that needs the scope `admin`."""
