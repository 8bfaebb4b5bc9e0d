"""Events: the log, polled and followed."""

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
from ringback.services.long_polling import poll_until
from ringback.services.quotas import QuotaEnforcer

HEARTBEAT_SECONDS: Final = 15.0
"""Half of what the stricter clients take for silence (mcp-events §5), and below the idle timeout of every common proxy."""
FOLLOW_SECONDS_MAX: Final = 900.0
"""Then a follower has to come back, with its cursor and a key that is still good."""
FOLLOW_PAGE_SIZE: Final = 100
"""Events read ahead of a follower: what it does not take stays in the log and costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    events: Sequence[Event]
    position: LogPosition
    """Up to here the log has been read."""
    is_truncated: bool
    """Whether events after the place asked with are not here: removed by retention, or in a log that was lost."""
    is_log_lost: bool
    """Whether the place asked with is in a log that is no more, because an older backup was restored. Then the page begins with
    the oldest event that is kept: nothing that is there is skipped, and what was seen before has the id that it had."""
    has_more: bool
    """Whether more of the log waits to be looked at. A page is bounded by what was read, so it may be empty and have more."""

    @property
    def cursor(self) -> str:
        """Poll with it to get what comes after this page."""
        return encode_log_position(self.position)


class Events:
    def __init__(self, *, store: Store, clock: Clock, quotas: QuotaEnforcer, lifecycle: Lifecycle) -> None:
        self._store = store
        self._clock = clock
        self._quotas = quotas
        self._lifecycle = lifecycle

    async def poll_events(
        self, caller: Caller, event_filter: EventFilter, *, cursor: str | None, limit: int, wait_seconds: float = 0.0
    ) -> EventPage:
        """Events after the cursor, oldest first; without a cursor, from the oldest that is kept."""
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
            wait_seconds=wait_seconds,
            clock=self._clock,
            lifecycle=self._lifecycle,
        )

    async def follow_events(
        self, caller: Caller, event_filter: EventFilter, *, cursor: str | None
    ) -> AsyncGenerator[EventPage]:
        """Page after page as events come, and an empty one when nothing came for a heartbeat; the first comes at once.

        Ends when the service stops, or after `FOLLOW_SECONDS_MAX`. Raises `QuotaExceeded` before the first page.
        """
        ends_at = self._clock.monotonic() + FOLLOW_SECONDS_MAX
        with self._quotas.open_stream(caller.principal):
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
