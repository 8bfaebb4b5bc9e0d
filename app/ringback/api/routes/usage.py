"""Quotas and their use over REST."""

from typing import Annotated

from fastapi import APIRouter, Query

from ringback.api.authentication import AuthenticatedRoute
from ringback.api.context import ServicesDep
from ringback.api.operator_access import OwnerCallerDep
from ringback.api.problems import AUTHENTICATED_ERRORS, problem_responses
from ringback.domain import errors
from ringback.schemas.usage import UsageQuery, UsageView

router = APIRouter(prefix="/v1/usage", tags=["usage"], route_class=AuthenticatedRoute)


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest))
async def read_usage(
    _query: Annotated[UsageQuery, Query()], services: ServicesDep, caller: OwnerCallerDep
) -> UsageView:
    """Read your quotas and how much of each is used; with the scope `admin`, those of another principal."""
    return UsageView.from_limits(await services.insights.list_limits(caller))
