"""Upstreams over REST: what can be called, and having the configuration read again."""

from typing import Annotated

from fastapi import APIRouter, Path

from ringback.api.auth import Asking
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.problems import GUARDED, documented
from ringback.api.schemas.fields import Label
from ringback.api.schemas.upstreams import ReloadedView, ToolsView, UpstreamsView
from ringback.domain import errors

router = APIRouter(prefix="/v1/upstreams", tags=["upstreams"], route_class=GuardedRoute)


@router.get("", responses=documented(*GUARDED))
async def list_upstreams(behind: Behind, caller: Asking) -> UpstreamsView:
    """List the MCP servers whose tools you can call, and how they are doing."""
    return UpstreamsView.of(behind.insights.upstreams(caller))


@router.get("/{name}/tools", responses=documented(*GUARDED, errors.NotFound, errors.InvalidRequest, errors.Unavailable))
async def list_tools(
    name: Annotated[Label, Path(description="An upstream's name.", examples=["git"])], behind: Behind, caller: Asking
) -> ToolsView:
    """List an upstream's tools."""
    return ToolsView.of(await behind.insights.tools(caller, name))


@router.post("/reload", responses=documented(*GUARDED, errors.InvalidConfiguration))
async def reload_upstreams(behind: Behind, caller: Asking) -> ReloadedView:
    """Read the file with the upstreams again, without dropping calls. Takes the scope `admin`. SIGHUP does the same."""
    return ReloadedView.of(await behind.upkeep.reload_upstreams(caller))
