"""Upstreams over REST: list upstreams and tools, decide which calls they take, restart them, reload the configuration."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep, get_config
from ringback.api.operator_access import AdminCallerDep
from ringback.api.problems import AUTHENTICATED_ERRORS, problem_responses
from ringback.domain import errors
from ringback.domain.login_urls import login_page_url
from ringback.domain.upstream_rows import UpstreamIntake
from ringback.schemas.fields import Label
from ringback.schemas.upstreams import (
    ReloadedView,
    ToolsView,
    UpstreamIntakeView,
    UpstreamRestartView,
    UpstreamsView,
)

router = APIRouter(prefix="/v1/upstreams", tags=["upstreams"], route_class=AuthenticatedRoute)

UpstreamName = Annotated[Label, Path(description="An upstream's name.", examples=["git"])]
_CONTROL_ERRORS = (*AUTHENTICATED_ERRORS, errors.NotFound, errors.InvalidRequest)


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS))
async def list_upstreams(services: ServicesDep, caller: CallerDep) -> UpstreamsView:
    """List the MCP servers whose tools you can call, with their state."""
    return UpstreamsView.from_listed(await services.insights.list_upstreams(caller))


@router.get(
    "/{name}/tools",
    responses=problem_responses(
        *AUTHENTICATED_ERRORS, errors.NotFound, errors.SignInRequired, errors.InvalidRequest, errors.Unavailable
    ),
)
async def list_tools(
    name: UpstreamName,
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
) -> ToolsView:
    """List an upstream's tools. 409 `login-required` names in `login_url` where a user signs in to the upstream first."""
    try:
        return ToolsView.from_infos(await services.insights.list_tools(caller, name))
    except errors.SignInRequired as required:
        login_url = login_page_url(get_config(request).public_url, name)
        raise errors.SignInRequired(required.detail, **required.extra, login_url=login_url) from None


@router.post("/reload", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidConfiguration))
async def reload_upstreams(services: ServicesDep, caller: AdminCallerDep) -> ReloadedView:
    """Read the configuration of upstreams again. Running calls continue. Needs the scope `admin`. SIGHUP does the same.

    An entry that cannot be served is in `skipped`, and the others are applied. If its upstream is served now, it stays as it
    was, and the entry is in `kept`. 422: the file is invalid as a whole, and nothing was changed.
    """
    return ReloadedView.from_reloaded(await services.upstream_reloads.reload_upstreams(caller))


@router.post("/{name}/pause", responses=problem_responses(*_CONTROL_ERRORS))
async def pause_upstream(name: UpstreamName, services: ServicesDep, caller: AdminCallerDep) -> UpstreamIntakeView:
    """Keep calls of an upstream queued: new ones are accepted, and none begins until it is resumed. Running calls continue.

    It holds for all nodes and after a restart. The deadlines of queued calls go on. Needs the scope `admin`.
    """
    return await _set_intake(services, caller, name, UpstreamIntake.PAUSED)


@router.post("/{name}/drain", responses=problem_responses(*_CONTROL_ERRORS))
async def drain_upstream(name: UpstreamName, services: ServicesDep, caller: AdminCallerDep) -> UpstreamIntakeView:
    """Refuse new calls of an upstream until it is resumed. Queued and running calls continue.

    It holds for all nodes, within a second, and after a restart. Needs the scope `admin`.
    """
    return await _set_intake(services, caller, name, UpstreamIntake.DRAINING)


@router.post("/{name}/resume", responses=problem_responses(*_CONTROL_ERRORS))
async def resume_upstream(name: UpstreamName, services: ServicesDep, caller: AdminCallerDep) -> UpstreamIntakeView:
    """Accept and run calls of an upstream again. Calls that were queued meanwhile begin. Needs the scope `admin`."""
    return await _set_intake(services, caller, name, UpstreamIntake.OPEN)


@router.post("/{name}/restart", responses=problem_responses(*_CONTROL_ERRORS))
async def restart_upstream(name: UpstreamName, services: ServicesDep, caller: AdminCallerDep) -> UpstreamRestartView:
    """End the connections to an upstream, with its child processes, and open them again. Needs the scope `admin`.

    Calls that wait for its response end as `unknown`, because their tools may have run. Calls that can be resumed (tasks,
    resumable streams) go on, and queued ones begin. With several nodes, the node that answers does it for itself only. A
    repeated request is another restart.
    """
    return UpstreamRestartView.from_restarted(name, await services.upstream_reloads.restart_upstream(caller, name))


async def _set_intake(
    services: ServicesDep, caller: AdminCallerDep, name: str, intake: UpstreamIntake
) -> UpstreamIntakeView:
    await services.upstream_controls.set_intake(caller, name, intake)
    return UpstreamIntakeView.from_intake(name, intake, skipped=services.upstream_controls.find_skipped(name))
