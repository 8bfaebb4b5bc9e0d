"""Poll the event log as MCP Events do: from now unless there is a cursor, and no cursor is an error (mcp-events §4, §9).

no cursor            no events, and the present position
an unknown cursor    no events, the present position, truncated
before the floor     from the oldest stored event on, truncated: retention has removed events, or a restore replaced the log
a maximum age        from the later of the cursor and that age; truncated if that skips events that match
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.cursor import LogPosition, decode_log_position, encode_log_position
from ringback.domain.errors import InvalidCursor
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import log_appended_topic
from ringback.notifier.log_positions import log_contains_position, read_log_position
from ringback.services.events.events import EventPage, read_on
from ringback.services.lifecycle import Lifecycle
from ringback.services.long_polling import poll_until

AGE_SECONDS_MAX: Final = 10 * 365 * 86_400.0
"""Longer than any log. A much larger number would lead before the first instant of Python's calendar."""
CLOCK_STEP_SECONDS: Final = 2.0
"""How far the clock may have been set back between the creation of a call and its first event. An earlier position costs
nothing: a poll for one call reads the events of that call only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRequest:
    """Which events, and from where on."""

    event_filter: EventFilter
    cursor: str | None
    """None: from now."""
    max_age_seconds: float | None = None
    """Counts only with a cursor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """Where the reading of a log begins."""

    position: LogPosition
    is_truncated: bool
    """Whether events after the requested position are left out."""


class EventPolls:
    def __init__(self, *, store: Store, clock: Clock, lifecycle: Lifecycle, wait_seconds_max: float) -> None:
        self._store = store
        self._clock = clock
        self._lifecycle = lifecycle
        self._wait_seconds_max = wait_seconds_max

    async def find_cursor_before(self, call: Call) -> str:
        """A position before the call's first event."""
        instant = call.created_at - timedelta(seconds=CLOCK_STEP_SECONDS)

        async def read_position(tx: Transaction) -> LogPosition:
            seq = await tx.event_log.last_seq_before(call.principal, instant)
            return await read_log_position(tx, call.principal, seq)

        return encode_log_position(await self._store.read(read_position))

    async def poll_events(
        self, caller: Caller, request: EventRequest, *, limit: int, wait_seconds: float = 0.0
    ) -> EventPage:
        """Return at most `limit` events. Waits for the first one, unless the request has no cursor or lost events."""
        caller.require_scope(Scope.READ)
        principal, event_filter = caller.principal, request.event_filter
        start = await self._store.scan(principal, lambda tx: read_log_start(tx, principal, request))
        if request.cursor is None:
            return EventPage(events=(), position=start.position, is_truncated=False, is_log_lost=False, has_more=False)
        page = await poll_until(
            read_on(self._store, principal, event_filter, position=start.position, limit=limit),
            lambda page: bool(page.events) or page.has_more or page.is_truncated or start.is_truncated,
            signals=self._store.signals,
            topics=[log_appended_topic(principal)],
            wait_seconds=min(wait_seconds, self._wait_seconds_max),
            clock=self._clock,
            lifecycle=self._lifecycle,
        )
        return with_truncation(page) if start.is_truncated else page


def with_truncation(page: EventPage) -> EventPage:
    return EventPage(
        events=page.events,
        position=page.position,
        is_truncated=True,
        is_log_lost=page.is_log_lost,
        has_more=page.has_more,
    )


async def read_log_start(tx: Transaction, principal: Principal, request: EventRequest) -> LogStart:
    start = await _read_cursor(tx, principal, request.cursor)
    if request.cursor is None or request.max_age_seconds is None:
        return start
    cutoff = tx.now() - timedelta(seconds=min(request.max_age_seconds, AGE_SECONDS_MAX))
    last_old_seq = await tx.event_log.last_seq_before(principal, cutoff)
    if last_old_seq <= start.position.seq:
        return start
    skips = await _has_event_until(tx, principal, request.event_filter, start.position.seq, last_old_seq)
    position = await read_log_position(tx, principal, last_old_seq)
    return LogStart(position=position, is_truncated=start.is_truncated or skips)


async def _read_cursor(tx: Transaction, principal: Principal, cursor: str | None) -> LogStart:
    if (requested := _decode_cursor(cursor)) is None:
        head = await tx.event_log.get_head(principal)
        return LogStart(position=await read_log_position(tx, principal, head), is_truncated=cursor is not None)
    floor = await tx.event_log.get_retention_floor(principal)
    if requested.seq >= floor and await log_contains_position(tx, principal, requested):
        return LogStart(position=requested, is_truncated=False)
    return LogStart(position=await read_log_position(tx, principal, floor), is_truncated=True)


def _decode_cursor(cursor: str | None) -> LogPosition | None:
    """None for no cursor and for one that no list of ours has issued."""
    try:
        return None if cursor is None else decode_log_position(cursor)
    except InvalidCursor:
        return None


async def _has_event_until(
    tx: Transaction, principal: Principal, event_filter: EventFilter, after: int, until: int
) -> bool:
    """Whether an event that matches is after one position and not after the other.

    Reads one bounded page. If the page ends before `until`, the answer is yes: a client that polls from there loses nothing.
    """
    page = await tx.events.list_page(principal, after, event_filter, limit=1)
    if page:
        return page[0].seq <= until
    return page.next_position is not None and page.next_position < until
