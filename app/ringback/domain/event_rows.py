"""Ports of the store for the event log. Each principal has one log."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from ringback.domain.cursor import EventTime, Page
from ringback.domain.event import Event
from ringback.domain.ids import CallId, EventId
from ringback.domain.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    name: str | None = None
    call_id: CallId | None = None
    client_session_id: str | None = None
    correlation_id: str | None = None
    topic: str | None = None
    """`Event.topic`; the empty text matches only events without one."""
    upstream: str | None = None
    tool: str | None = None
    resource_uris: frozenset[str | None] | None = None
    """Only events whose `data.uri` is one of these; None stands for an event without. A page with this filter may be short."""

    def matches(self, event: Event) -> bool:
        """Whether a store with this filter returns the event."""
        return (
            _matches(self.name, event.name)
            and _matches(self.call_id, event.call_id)
            and _matches(self.client_session_id, event.client_session_id)
            and _matches(self.correlation_id, event.correlation_id)
            and _matches(self.upstream, event.upstream)
            and _matches(self.tool, event.tool)
            and _matches(self.topic, event.topic or "")
            and (self.resource_uris is None or event.data.get("uri") in self.resource_uris)
        )


def _matches(expected: str | None, actual: str | None) -> bool:
    return expected is None or expected == actual


class ReservedPlaces(NamedTuple):
    first_seq: int
    created_at: datetime


class EventRows(Protocol):
    async def reserve_seqs(self, principal: Principal, count: int) -> int:
        """Lock the principal's log until the commit and reserve `count` positions. Return the first."""
        ...

    async def reserve_places(self, principal: Principal, count: int) -> ReservedPlaces:
        """As `reserve_seqs`, with the instant at which the events are created. It is never before that of an earlier event.

        Only an event of a clock that was far ahead (`clock_confirmation`) has a later one than those after it.
        """
        ...

    async def insert(self, events: Sequence[Event]) -> None: ...

    async def find_known_ids(
        self, principal: Principal, event_ids: Collection[EventId], *, topic: str | None
    ) -> Collection[EventId]:
        """Those of these ids that external events of this log with this topic have. The caller holds the lock of the log."""
        ...

    async def list_after(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Sequence[Event]:
        """Oldest first, with `event.seq > seq`.

        Reads until `limit` events match. Use it only without a filter or with `call_id` alone: then every event
        read matches.
        """
        ...

    async def list_page(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Page[Event, int]:
        """The same with any filter and a bounded read. `seq` is the `next_position` of the previous page.

        Fewer than `limit` events if their data is large, as in each page of events.
        """
        ...

    async def list_latest(
        self, where: EventFilter, *, position: EventTime | None, limit: int
    ) -> Page[Event, EventTime]:
        """Events of all principals, newest first by their time. `position` is the `next_position` of the previous page."""
        ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        """Remove events from before `cutoff` and raise the retention floor to the last of them.

        Fewer than `limit` if they are large.
        """
        ...


class LogBounds(NamedTuple):
    """Where a log begins and ends at one moment."""

    retention_floor: int
    """The highest position that retention has removed. A cursor before it has missed events."""
    head: int
    """The last reserved position; 0 for an empty log."""


class EventLogRows(Protocol):
    """Positions of the same logs."""

    async def get_head(self, principal: Principal, *, lock: bool = False) -> int:
        """The last reserved position; 0 for an empty log. With `lock`, no event is appended until the transaction ends."""
        ...

    async def get_retention_floor(self, principal: Principal) -> int:
        """The highest position that retention has removed. A cursor before it has missed events."""
        ...

    async def get_bounds(self, principal: Principal) -> LogBounds:
        """Both in one statement, so that they belong together."""
        ...

    async def get_event_ids(self, principal: Principal, seqs: Collection[int]) -> Mapping[int, EventId]:
        """The ids of the events at these positions; positions whose events are removed or not written yet are left out."""
        ...

    async def get_event_id(self, principal: Principal, seq: int) -> EventId | None:
        """The id of the event at this position; None if there is none or retention has removed it."""
        ...

    async def last_seq_before(self, principal: Principal, instant: datetime) -> int:
        """The last position before the instant. Removed events count as older.

        If the clock once went back, the result is between the first and the last such position.
        """
        ...

    async def list_before(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Page[Event, int]:
        """Events before this position, newest first. `seq` is the `next_position` of the previous page.

        `topic` and `resource_uris` of the filter do not count.
        """
        ...

    async def find_event(self, principal: Principal, event_id: str, *, after_seq: int, until_seq: int) -> Event | None:
        """The event with this id at one of these positions. An external event is found at any position.

        Visits each of these positions at most, because events have no index of their ids.
        """
        ...
