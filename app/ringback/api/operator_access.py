"""The query parameter `principal`, with which an operator reads other principals' rows or acts for their owner."""

from typing import Annotated

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
    if target is None or "name" in request.path_params:
        if principal == ALL_PRINCIPALS:
            raise InvalidRequest(
                f"Each principal has its own names and its own event log. Name one principal instead of '{ALL_PRINCIPALS}'."
            )
        return services.operators.view_principal(caller, principal, operation=operation)
    return await services.operators.act_for_owner(caller, principal, operation=operation, target=target)


def _operation(request: Request) -> str:
    """The operation's id in the OpenAPI document."""
    return str(request.scope["route"].name)


ListCallerDep = Annotated[Caller, Depends(view_principals)]
"""The parameter of a list that an operator may read for all principals."""

OwnerCallerDep = Annotated[Caller, Depends(act_for_owner)]
"""The parameter of an operation that an operator may run for the owner of its object."""
