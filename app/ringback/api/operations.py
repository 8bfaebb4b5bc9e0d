"""For whoever runs the service, and for whoever met a problem. Nothing here asks for a key."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from ringback.api.context import Behind, config_of
from ringback.api.problems import documented, every_kind, problem_type, status_of
from ringback.api.schemas.upstreams import HealthView, ProblemTypeView, ReadinessView
from ringback.domain import errors

router = APIRouter(tags=["operations"])


@router.get("/healthz", responses=documented())
async def check_health() -> HealthView:
    """Answers while the process lives."""
    return HealthView()


@router.get("/readyz", responses=documented(errors.ShuttingDown, errors.StoreUnavailable))
async def check_readiness(request: Request, behind: Behind) -> ReadinessView:
    """Answers 200 while the service takes work: it is not stopping, its database can be written, its workers live."""
    await behind.insights.require_ready()
    if failing := sorted(config_of(request).failing_workers()):
        raise errors.Unavailable(f"Not ready: {', '.join(failing)} failed and is being restarted.", failing=failing)
    return ReadinessView()


@router.get("/problems/{slug}", responses=documented(errors.NotFound))
async def read_problem_type(
    slug: Annotated[str, Path(description="The last part of a problem's type.", examples=["unknown-tool"])],
) -> ProblemTypeView:
    """What a problem type means."""
    kind = next((kind for kind in every_kind() if kind.slug == slug), None)
    if kind is None:
        raise errors.NotFound("No problem of ours has this type.")
    return ProblemTypeView(type=problem_type(kind), title=kind.title(), status=status_of(kind))
