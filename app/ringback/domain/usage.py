"""Counts for quotas and metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from ringback.domain.call import CallStatus
from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import Principal
from ringback.domain.webhook import WebhookState

TOTALS_COUNTED_MAX: Final = 10_000
"""Rows counted for one total. Counting them takes about a millisecond, and an operator acts long before a backlog is larger."""

STORED_BYTES_DEFAULT: Final = 1024**3
"""The default of the quotas of results, arguments and events."""
DELIVERY_BYTES_DEFAULT: Final = 16 * STORED_BYTES_DEFAULT
"""The default of the quota of deliveries: they stay twice as long as calls, and an event may have several, of a KB each."""

QUEUES_VISITED_MAX: Final = 1_000
"""Queues, each of one upstream and principal, whose first call is looked at for the oldest one: some milliseconds. As many
upstreams, whose queued calls are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The part of a principal's quotas that its calls and their callbacks use."""

    open_calls: int
    stored_calls: int
    """Open and ended."""
    result_bytes: int
    """Of the results of all its calls, and of the errors of those without a result."""
    argument_bytes: int
    """Of the arguments and `_meta` of all its calls (`call.count_argument_bytes`)."""
    delivery_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogUsage:
    """The part of a principal's quotas that the events of its log and their deliveries use."""

    event_bytes: int
    """Of the `data` of events that come from outside: published ones, those of upstreams, progress."""
    delivery_bytes: int
    """Of the sealed bodies of deliveries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTotals:
    """Counts over all principals."""

    calls: Mapping[CallStatus, int]
    open_deliveries: Mapping[DeliveryState, int]
    """Deliveries that have not ended; of each state, counted up to `TOTALS_COUNTED_MAX`."""
    failing_webhooks: Mapping[WebhookState, int]
    """Webhooks whose last attempt or challenge failed, by state; together counted up to `TOTALS_COUNTED_MAX`."""
    subscriptions: int
    """Live subscriptions of MCP clients to events."""
    events: int
    """Events ever appended. The count never decreases."""


class UsageRows(Protocol):
    async def get_usage(self, principal: Principal, *, lock: bool = False) -> Usage:
        """Cheap enough for every start of a call: one count for each status is kept as calls change.

        With `lock`, other units that lock the principal's usage wait until the transaction ends.
        """
        ...

    async def get_log_usage(self, principal: Principal) -> LogUsage: ...

    async def count_webhooks(self, principal: Principal, *, limit: int) -> int:
        """Webhooks, counted up to `limit`, except those of one call, which end with the call."""
        ...

    async def count_totals(self) -> StoreTotals: ...

    async def oldest_queued_since(self) -> datetime | None:
        """Since when the call that waits longest for a runner is queued; None if no call is queued.

        Looks at the first call of each upstream and principal, of `QUEUES_VISITED_MAX` principals of an upstream.
        """
        ...

    async def count_queued(self) -> Mapping[str, int]:
        """The calls of all principals that wait for a runner, by upstream; of each, counted up to `TOTALS_COUNTED_MAX`.

        Upstreams without any are left out.
        """
        ...

    async def count_own_queued(self, principal: Principal, upstreams: Sequence[str]) -> Mapping[str, int]:
        """The same for the calls of one principal at these upstreams."""
        ...

    async def first_lease_end(self) -> datetime | None:
        """When the first lease of a running call ends, or ended; None if no call runs."""
        ...
