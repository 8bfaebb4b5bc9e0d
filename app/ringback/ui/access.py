"""The caller of a list or of one object.

A viewer with the scope `admin` reads the rows of all principals, and acts for the owner of an object. Each such request has a
line in the audit log (`services.access.operators`).
"""

from starlette.requests import Request

from ringback.domain.principal import ALL_PRINCIPALS, Caller
from ringback.services.access.operators import Operators
from ringback.ui.call_filters import read_principal
from ringback.ui.context import UiContext
from ringback.ui.viewer import Viewer


def view_rows(
    operators: Operators, viewer: Viewer, request: Request, *, operation: str, repeats: bool = False
) -> Caller:
    """The caller of a list: for an operator all principals, or the one that the query parameter `principal` names.

    `repeats`: an open page repeats the request by itself. Raises `InvalidRequest` for what no principal can be called.
    """
    if not viewer.is_operator:
        return viewer.caller
    principal = read_principal(request.query_params) or ALL_PRINCIPALS
    return operators.view_principal(viewer.caller, principal, operation=operation, repeats=repeats)


def shows_owner(context: UiContext, viewer: Viewer) -> bool:
    """Whether lists may have rows of several principals. Without authentication there is only one."""
    return viewer.is_operator and context.requires_key


async def act_for_owner(
    operators: Operators, viewer: Viewer, target: str, *, operation: str, repeats: bool = False
) -> Caller:
    """The caller of an operation on one object; `repeats` as for `view_rows`.

    Raises `NotFound` if no principal has an object with this id.
    """
    if not viewer.is_operator:
        return viewer.caller
    return await operators.act_for_owner(
        viewer.caller, ALL_PRINCIPALS, operation=operation, target=target, repeats=repeats
    )
