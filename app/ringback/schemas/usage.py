"""Quotas and their use."""

from collections.abc import Sequence
from typing import Self

from pydantic import Field

from ringback.schemas.fields import PrincipalQueryParams, ResponseBody
from ringback.services.insights.insights import LimitScope, UsedLimit


class UsageQuery(PrincipalQueryParams):
    """A principal only."""


class UsedLimitView(ResponseBody):
    """One quota, and how much of it is used."""

    name: str = Field(
        description="A request above it gets 429 with this name as `quota`. Names of your key begin with `key_`."
    )
    limit: int
    used: int
    scope: LimitScope = Field(description="`service`: counted over all nodes. `node`: each node counts for itself.")


class UsageView(ResponseBody):
    limits: list[UsedLimitView]

    @classmethod
    def from_limits(cls, limits: Sequence[UsedLimit]) -> Self:
        return cls(limits=[UsedLimitView.model_validate(each) for each in limits])
