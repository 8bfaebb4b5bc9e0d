"""The port of the store for appends to the logs of principals: ends of calls and other events, with their deliveries.

    lock_leased_calls   for ends of calls: the calls and the heads of their logs are locked, and places in the logs reserved
    reserve_places      for everything else: the heads of the logs
    find_receivers      under the locks of the logs, so a webhook that was registered before is found
    write               the rows of calls, results, events and deliveries

Each method is one statement on PostgreSQL, whatever the number of calls, events, webhooks and principals, because there every
statement is a round trip under the lock of a log. The three cannot be fewer. The rows of deliveries contain what
Python makes of an event and a webhook (bodies, signatures of tokens, encryption), so a statement must read the webhooks
before another one writes. At READ COMMITTED a statement sees what was committed when it began, so the statement that reads the
webhooks begins after the one that waits for the lock of the log.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from ringback.domain.call import Call
from ringback.domain.call_rows import EndedCall
from ringback.domain.delivery import Delivery
from ringback.domain.event import Event
from ringback.domain.event_rows import ReservedPlaces
from ringback.domain.ids import CallId, EventId, WebhookId
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook


class CallLeaseKey(NamedTuple):
    """A call and the lease under which it may be ended."""

    call_id: CallId
    lease_token: str


class LeasedCalls(NamedTuple):
    calls: Mapping[CallId, Call]
    """The running calls whose leases still hold. Their rows are locked."""
    places: Mapping[Principal, ReservedPlaces]
    """One place for each of these calls, in the log of its principal."""


Place = tuple[Principal, int]
"""A log, and a `seq` in it."""


class Receivers(NamedTuple):
    """What the deliveries of new events depend on."""

    webhooks: dict[Place, Sequence[Webhook]]
    """By the places of the events: the candidates of `WebhookRows.find_candidates`, without those that catch up."""
    lowest_open_seqs: dict[WebhookId, int]
    """As `DeliveryRows.lowest_open_seqs`, for these webhooks."""
    earlier_events: dict[Place, EventId]
    """The events right before the lowest open ones, and right before the first new ones. A removed event has no id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAppend:
    """Rows that are written together."""

    ends: Sequence[EndedCall] = ()
    """Each call once. The caller holds the locks of their rows."""
    results: Mapping[CallId, bytes] = field(default_factory=dict[CallId, bytes])
    events: Sequence[Event] = ()
    """The caller has reserved their places."""
    deliveries: Sequence[Delivery] = ()

    def require_all_ended(self, ended: Collection[CallId]) -> None:
        """Raise RuntimeError unless all ends were written: their events are in the logs, so the unit must be rolled back."""
        if len(ended) != len(self.ends):
            raise RuntimeError("The row of a call that ended has changed under the lock of its unit of work.")


NOTHING_ELSE: Final = LogAppend()
"""For events and deliveries alone."""


class LogAppends(Protocol):
    async def lock_leased_calls(self, leases: Sequence[CallLeaseKey]) -> LeasedCalls:
        """Lock these calls in the order of their ids, then the logs of those whose leases hold in the order of principals."""
        ...

    async def reserve_places(self, counts: Mapping[Principal, int]) -> Mapping[Principal, ReservedPlaces]:
        """As `EventRows.reserve_places`, for several principals in their order."""
        ...

    async def find_receivers(self, events: Sequence[Event]) -> Receivers:
        """Read the receivers of new events, and cancel the deliveries of progress that these events supersede.

        The events are in the order of their principals' logs; the caller holds the locks of these.
        """
        ...

    async def write(self, append: LogAppend) -> None:
        """Write these rows. Raises RuntimeError if the row of an ended call has another status or lease."""
        ...
