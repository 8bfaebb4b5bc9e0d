"""Types of events over REST: those of upstreams, and those that clients publish."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.domain import errors
from ringback.domain.principal import Scope
from ringback.schemas.fields import Label
from ringback.schemas.published_events import DeclareEventTypeBody, EventTypesView, EventTypeView

router = APIRouter(prefix="/v1/event-types", tags=["events"], route_class=AuthenticatedRoute)

EventTypeName = Annotated[Label, Path(description="The name of your events.", examples=["order.paid"])]


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS))
async def list_event_types(services: ServicesDep, caller: CallerDep) -> EventTypesView:
    """List the types of events besides Ringback's own: those that you publish, and those of upstreams."""
    caller.require_scope(Scope.READ)
    return EventTypesView(
        event_types=[EventTypeView.from_type(each) for each in await services.event_types.list_event_types(caller)]
    )


@router.put(
    "/{name}",
    status_code=201,
    response_description="The type was declared.",
    responses={
        200: {"model": EventTypeView, "description": "The type was declared before, and is as the request says now."},
        **problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.QuotaExceeded),
    },
)
async def declare_event_type(
    name: EventTypeName, body: DeclareEventTypeBody, services: ServicesDep, caller: CallerDep, response: Response
) -> EventTypeView:
    """Declare a type of events that you publish, so that webhooks and MCP clients can subscribe to it before its first event.

    Repeating it replaces the description and the schema. Subscriptions stay: change a schema by addition only, and give an
    incompatible one a new name. `warning` names a change that is no addition.
    """
    declared = await services.event_types.declare_event_type(caller, body.to_declaration(name))
    if not declared.is_new:
        response.status_code = 200
    return EventTypeView.from_type(declared.event_type.to_event_type(), warning=declared.warning)


@router.delete(
    "/{name}",
    status_code=204,
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.InvalidRequest),
)
async def remove_event_type(name: EventTypeName, services: ServicesDep, caller: CallerDep) -> None:
    """Remove the declaration of a type of events that you publish. Its events stay."""
    await services.event_types.remove_event_type(caller, name)
