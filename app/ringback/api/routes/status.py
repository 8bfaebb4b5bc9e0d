"""The status of the service for operators: what `ringback doctor` asks a running service."""

from fastapi import APIRouter, Request

from ringback import __version__
from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep, get_config
from ringback.api.problems import AUTHENTICATED_ERRORS, problem_responses
from ringback.schemas.operations import StatusView
from ringback.schemas.upstreams import UpstreamView

router = APIRouter(tags=["operations"], route_class=AuthenticatedRoute)


@router.get("/v1/status", responses=problem_responses(*AUTHENTICATED_ERRORS))
async def read_status(request: Request, services: ServicesDep, caller: CallerDep) -> StatusView:
    """The checks of this node. It covers all principals, so the key needs the scope `admin`.

    It responds with 200 also while the node accepts no work, and says why.
    """
    checks = await services.insights.check_service(caller)
    config = get_config(request)
    return StatusView(
        version=__version__,
        time=checks.time,
        public_url=config.public_url,
        problem=checks.problem,
        roles=config.roles_ready(),
        failing_workers=sorted(config.failing_workers()),
        failing_endpoints=sorted(config.failing_endpoints()),
        lacks_keys=checks.lacks_keys,
        failing_webhooks=sum(checks.totals.failing_webhooks.values()),
        oldest_due_delivery_age_seconds=checks.oldest_due_age_seconds,
        upstreams=[UpstreamView.from_listed(each) for each in checks.upstreams],
    )
