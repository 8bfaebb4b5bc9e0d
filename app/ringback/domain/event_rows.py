"""The event log as the store keeps it: one for each principal, read from a place on."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ringback.domain.cursor import Page
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId, EventId
from ringback.domain.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    name: EventName | None = None
    call_id: CallId | None = None
    client_session_id: str | None = None
    correlation_id: str | None = None


class EventRows(Protocol):
    async def reserve_seqs(self, principal: Principal, count: int) -> int:
        """Lock the principal's log until commit and take `count` places; the first of them."""
        ...

    async def insert(self, events: Sequence[Event]) -> None: ...

    async def list_after(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Sequence[Event]:
        """Oldest first, with `event.seq > seq`.

        It reads on until `limit` events were found: for filters that every event it reads matches (none, or `call_id` alone).
        """
        ...

    async def list_page(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Page[Event, int]:
        """The same with any filter, from a bounded look into the log; `seq` is the `next_place` of the previous page."""
        ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        """Remove events made before, and raise the horizon to the last of them."""
        ...


class EventLogRows(Protocol):
    """Places of the same logs: which there are, and what stands where."""

    async def get_head(self, principal: Principal, *, lock: bool = False) -> int:
        """The last place taken; 0 for an empty log. With `lock`, nothing is appended until this transaction ends."""
        ...

    async def get_retention_floor(self, principal: Principal) -> int:
        """The highest place that retention has removed; a cursor before it has missed something."""
        ...

    async def get_event_id(self, principal: Principal, seq: int) -> EventId | None:
        """Of the event at this place; None when there is none, or when retention has removed it."""
        ...

    async def last_seq_before(self, principal: Principal, instant: datetime) -> int:
        """The last place taken before that instant; what retention has removed counts as older.

        In a log whose clock once went back, a place between the first and the last such one.
        """
        ...
