"""Poll the event log."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.cursor import (
    EventTime,
    LogPosition,
    Page,
    decode_event_time,
    decode_log_position,
    encode_log_position,
)
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import log_appended_topic
from ringback.notifier.log_positions import log_contains_position, read_log_position
from ringback.services.lifecycle import Lifecycle
from ringback.services.long_polling import WAIT_SECONDS_MAX_DEFAULT, poll_until

LAST_SEQ: Final = 2**62
"""After every position of a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    events: Sequence[Event]
    position: LogPosition
    """The log has been read up to this position."""
    is_truncated: bool
    """Whether events after the requested position are missing: deleted by retention, or in a log that was replaced."""
    is_log_lost: bool
    """Whether the requested position belongs to a log that a restored backup has replaced. Then the page begins with the oldest
    stored event, so that none is skipped. Events that the client has already seen keep their ids."""
    has_more: bool
    """Whether the log goes on after this page. The number of rows read is bounded, so a page can be empty and have more."""

    @property
    def cursor(self) -> str:
        """Poll with it to get the events after this page."""
        return encode_log_position(self.position)


class Events:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        lifecycle: Lifecycle,
        wait_seconds_max: float = WAIT_SECONDS_MAX_DEFAULT,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lifecycle = lifecycle
        self._wait_seconds_max = wait_seconds_max

    async def poll_events(
        self, caller: Caller, event_filter: EventFilter, *, cursor: str | None, limit: int, wait_seconds: float = 0.0
    ) -> EventPage:
        """Return events after the cursor, oldest first; without a cursor, from the oldest stored event on."""
        caller.require_scope(Scope.READ)
        position = decode_log_position(cursor) if cursor else None
        return await poll_until(
            read_on(self._store, caller.principal, event_filter, position=position, limit=limit),
            lambda page: bool(page.events) or page.has_more or page.is_truncated,
            signals=self._store.signals,
            topics=[log_appended_topic(caller.principal)],
            wait_seconds=min(wait_seconds, self._wait_seconds_max),
            clock=self._clock,
            lifecycle=self._lifecycle,
        )

    async def list_latest(
        self, caller: Caller, event_filter: EventFilter, *, cursor: str | None, limit: int
    ) -> Page[Event, EventTime]:
        """Return events of all principals for an operator, newest first. The page is a look, not a place to follow from."""
        caller.require_scope(Scope.ADMIN)
        position = decode_event_time(cursor) if cursor else None
        return await self._store.scan(
            caller.principal, lambda tx: tx.events.list_latest(event_filter, position=position, limit=limit)
        )

    async def list_own_latest(
        self, caller: Caller, event_filter: EventFilter, *, cursor: str | None, limit: int
    ) -> Page[Event, str]:
        """Return events of the caller's own log, newest first. The next position is the cursor of the next page."""
        caller.require_scope(Scope.READ)
        before = decode_log_position(cursor).seq if cursor else LAST_SEQ

        return await self._store.scan(
            caller.principal,
            lambda tx: read_own_latest(tx, caller.principal, event_filter, before=before, limit=limit),
        )


async def read_own_latest(
    tx: Transaction, principal: Principal, event_filter: EventFilter, *, before: int, limit: int
) -> Page[Event, str]:
    """The events of one log before a sequence number, newest first. The next position is the cursor of the next page."""
    page = await tx.event_log.list_before(principal, before, event_filter, limit=limit)
    seq = page.next_position
    following = None if seq is None else await read_log_position(tx, principal, seq)
    return Page(page, next_position=None if following is None else encode_log_position(following))


def read_on(
    store: Store, principal: Principal, event_filter: EventFilter, *, position: LogPosition | None, limit: int
) -> Callable[[], Awaitable[EventPage]]:
    """A function that reads the next page with each call. A wait does not read again what its filter has left out."""

    async def read_next() -> EventPage:
        nonlocal position
        page = await store.scan(
            principal, lambda tx: read_event_page(tx, principal, event_filter, position=position, limit=limit)
        )
        position = page.position
        return page

    return read_next


async def read_event_page(
    tx: Transaction, principal: Principal, event_filter: EventFilter, *, position: LogPosition | None, limit: int
) -> EventPage:
    retention_floor, head = await tx.event_log.get_bounds(principal)
    log_was_lost = position is not None and not await log_contains_position(tx, principal, position)
    after_seq = retention_floor if position is None or log_was_lost else position.seq
    page = await tx.events.list_page(principal, max(after_seq, retention_floor), event_filter, limit=limit)
    return EventPage(
        events=page,
        position=await read_log_position(tx, principal, head if page.next_position is None else page.next_position),
        is_truncated=log_was_lost or (position is not None and position.seq < retention_floor),
        is_log_lost=log_was_lost,
        has_more=page.next_position is not None,
    )
