"""How much there is of what: for quotas, and for whoever watches the service."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ringback.domain.call import CallStatus
from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What of a principal's quotas is taken by rows."""

    open_calls: int
    result_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTotals:
    """How much there is of everything, over all principals."""

    calls: Mapping[CallStatus, int]
    open_deliveries: Mapping[DeliveryState, int]
    events: int
    """Ever appended; it never goes down."""


class UsageRows(Protocol):
    """How much there is."""

    async def get_usage(self, principal: Principal) -> Usage:
        """Cheap enough to be asked with every call that is started: counted as it changes, a row for each status."""
        ...

    async def count_webhooks(self, principal: Principal, *, limit: int) -> int:
        """Registered ones, counted one by one up to `limit`. Those that came with a call end with it, and count as calls."""
        ...

    async def count_totals(self) -> StoreTotals: ...
