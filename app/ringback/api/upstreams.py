"""Upstreams over REST: list upstreams and tools, reload the configuration."""

from typing import Annotated

from fastapi import APIRouter, Path

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.problems import AUTHENTICATED_ERRORS, problem_responses
from ringback.domain import errors
from ringback.schemas.fields import Label
from ringback.schemas.upstreams import ReloadedView, ToolsView, UpstreamsView

router = APIRouter(prefix="/v1/upstreams", tags=["upstreams"], route_class=AuthenticatedRoute)


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS))
async def list_upstreams(services: ServicesDep, caller: CallerDep) -> UpstreamsView:
    """List the MCP servers whose tools you can call, with their state."""
    return UpstreamsView.from_infos(services.insights.list_upstreams(caller))


@router.get(
    "/{name}/tools",
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.InvalidRequest, errors.Unavailable),
)
async def list_tools(
    name: Annotated[Label, Path(description="An upstream's name.", examples=["git"])],
    services: ServicesDep,
    caller: CallerDep,
) -> ToolsView:
    """List an upstream's tools."""
    return ToolsView.from_infos(await services.insights.list_tools(caller, name))


@router.post("/reload", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidConfiguration))
async def reload_upstreams(services: ServicesDep, caller: CallerDep) -> ReloadedView:
    """Read the configuration of upstreams again. Running calls continue. Needs the scope `admin`. SIGHUP does the same."""
    return ReloadedView.from_reloaded(await services.administration.reload_upstreams(caller))
