"""Events: the log, polled."""

from collections.abc import Sequence
from dataclasses import dataclass

from ringback.domain.clock import Clock
from ringback.domain.cursor import decode_seq, encode_seq
from ringback.domain.event import Event
from ringback.domain.ports import EventFilter, Store, Transaction, appended
from ringback.domain.principal import Caller, Principal, Scope
from ringback.services.lifecycle import Lifecycle
from ringback.services.waiting import look_until


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    events: Sequence[Event]
    cursor: str
    """Poll with it to get what comes after this page."""
    truncated: bool
    """Whether events between the cursor asked with and the first one here have been removed by retention."""
    has_more: bool


class Events:
    def __init__(self, *, store: Store, clock: Clock, lifecycle: Lifecycle) -> None:
        self._store = store
        self._clock = clock
        self._lifecycle = lifecycle

    async def poll(
        self, caller: Caller, where: EventFilter, *, cursor: str | None, limit: int, wait_seconds: float = 0.0
    ) -> EventPage:
        """Events after the cursor, oldest first; without a cursor, from the oldest that is kept."""
        caller.require(Scope.READ)
        after = decode_seq(cursor) if cursor else None
        return await look_until(
            lambda: self._store.read(lambda tx: read_page(tx, caller.principal, where, after=after, limit=limit)),
            lambda page: bool(page.events),
            signals=self._store.signals,
            topic=appended(caller.principal),
            wait_seconds=wait_seconds,
            clock=self._clock,
            lifecycle=self._lifecycle,
        )


async def read_page(
    tx: Transaction, principal: Principal, where: EventFilter, *, after: int | None, limit: int
) -> EventPage:
    head = await tx.events.head(principal)
    horizon = await tx.events.horizon(principal)
    # A cursor ahead of the log is one of a log that is no more; it goes on from the end of this one.
    start = horizon if after is None else min(after, head)
    found = await tx.events.after(principal, start, where, limit=limit + 1)
    events, has_more = found[:limit], len(found) > limit
    return EventPage(
        events=events,
        cursor=encode_seq(events[-1].seq if has_more else head),
        truncated=after is not None and (after < horizon or after > head),
        has_more=has_more,
    )
