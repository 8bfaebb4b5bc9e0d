"""How much there is of what: for quotas, and for whoever watches the service."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ringback.domain.call import Status
from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What of a principal's quotas is taken by rows."""

    open_calls: int
    result_bytes: int
    webhooks: int
    """Without those that were given along with a call: they end with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How much there is of everything, over all principals."""

    calls: Mapping[Status, int]
    open_deliveries: Mapping[DeliveryState, int]
    events: int
    """Ever appended; it never goes down."""


class UsageRows(Protocol):
    """How much there is. Cheap enough to be asked with every call that is started."""

    async def of(self, principal: Principal) -> Usage: ...

    async def totals(self) -> Totals: ...
