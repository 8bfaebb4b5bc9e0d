"""Poll and follow the event log."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.cursor import LogPosition, decode_log_position, encode_log_position
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import log_appended_topic
from ringback.notifier.log_positions import log_contains_position, read_log_position
from ringback.services.lifecycle import Lifecycle
from ringback.services.long_polling import WAIT_SECONDS_MAX_DEFAULT, poll_until
from ringback.services.quotas import QuotaEnforcer

HEARTBEAT_SECONDS: Final = 15.0
"""Half of the stricter clients' idle timeout (mcp-events §5), and below the idle timeout of every common proxy."""
FOLLOW_SECONDS_MAX: Final = 900.0
"""After this time, a client must reconnect with its cursor and a valid key."""
FOLLOW_PAGE_SIZE: Final = 100
"""Events read ahead for a client. The rest stays in the log."""


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
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
        wait_seconds_max: float = WAIT_SECONDS_MAX_DEFAULT,
    ) -> None:
        self._store = store
        self._clock = clock
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._wait_seconds_max = wait_seconds_max

    async def poll_events(
        self, caller: Caller, event_filter: EventFilter, *, cursor: str | None, limit: int, wait_seconds: float = 0.0
    ) -> EventPage:
        """Return events after the cursor, oldest first; without a cursor, from the oldest stored event on."""
        caller.require_scope(Scope.READ)
        position = decode_log_position(cursor) if cursor else None
        return await poll_until(
            lambda: self._store.scan(
                caller.principal,
                lambda tx: read_event_page(tx, caller.principal, event_filter, position=position, limit=limit),
            ),
            lambda page: bool(page.events) or page.has_more or page.is_truncated,
            signals=self._store.signals,
            topics=[log_appended_topic(caller.principal)],
            wait_seconds=min(wait_seconds, self._wait_seconds_max),
            clock=self._clock,
            lifecycle=self._lifecycle,
        )

    async def follow_events(
        self, caller: Caller, event_filter: EventFilter, *, cursor: str | None
    ) -> AsyncGenerator[EventPage]:
        """Yield pages as events are written, and an empty page after a heartbeat without events. The first page is immediate.

        Ends when the service shuts down, or after `FOLLOW_SECONDS_MAX`. Raises `QuotaExceeded` before the first page.
        """
        ends_at = self._clock.monotonic() + FOLLOW_SECONDS_MAX
        with self._quotas.open_stream(caller.principal, key_id=caller.key_id):
            page = await self.poll_events(caller, event_filter, cursor=cursor, limit=FOLLOW_PAGE_SIZE)
            yield page
            while not self._lifecycle.shutdown_event.is_set() and self._clock.monotonic() < ends_at:
                page = await self.poll_events(
                    caller, event_filter, cursor=page.cursor, limit=FOLLOW_PAGE_SIZE, wait_seconds=HEARTBEAT_SECONDS
                )
                if page.events or page.is_truncated or not page.has_more:
                    yield page


async def read_event_page(
    tx: Transaction, principal: Principal, event_filter: EventFilter, *, position: LogPosition | None, limit: int
) -> EventPage:
    head = await tx.event_log.get_head(principal)
    retention_floor = await tx.event_log.get_retention_floor(principal)
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
