"""Follow the event log as MCP Events push it (mcp-events §5), cheaply for thousands of idle streams.

    start ──▶ the events between the cursor and the tail, read from the log ──▶ the events of the tail ──▶ …
                        ▲                                                          │ the stream was too slow
                        └──────────────────────────────────────────────────────────┘

An idle stream reads nothing: its tail (`log_tails`) reads the log once for all streams of the principal.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.errors import StoreUnavailable
from ringback.domain.event import Event
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.services.event_polls import EventRequest, LogStart, read_log_start
from ringback.services.events import FOLLOW_PAGE_SIZE, FOLLOW_SECONDS_MAX, read_event_page
from ringback.services.lifecycle import Lifecycle
from ringback.services.log_tails import LogTails, TailSubscription
from ringback.services.quotas import QuotaEnforcer

RETRY_SECONDS: Final = 2.0
"""Between two reads of a stream while the store is unavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPage:
    """What a stream sends next. Without events, truncation and unavailability it is a heartbeat."""

    events: Sequence[Event] = ()
    position: LogPosition
    is_truncated: bool = False
    """Events after the requested position are left out. The page has no events then."""
    is_store_unavailable: bool = False

    @property
    def cursor(self) -> str:
        return encode_log_position(self.position)


class EventStreams:
    def __init__(
        self, *, store: Store, clock: Clock, quotas: QuotaEnforcer, lifecycle: Lifecycle, tails: LogTails
    ) -> None:
        self._store = store
        self._clock = clock
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._tails = tails

    async def follow_events(
        self, caller: Caller, request: EventRequest, *, heartbeat_seconds: float
    ) -> AsyncGenerator[StreamPage]:
        """Yield the start at once, then pages of events, and a heartbeat after each `heartbeat_seconds` without events.

        Ends when the service shuts down, or after `FOLLOW_SECONDS_MAX`. Raises `QuotaExceeded` before the first page.
        """
        caller.require_scope(Scope.READ)
        with self._quotas.open_stream(caller.principal, key_id=caller.key_id):
            start = await self._store.scan(caller.principal, lambda tx: read_log_start(tx, caller.principal, request))
            yield StreamPage(position=start.position, is_truncated=start.is_truncated)
            async with self._tails.subscribe(caller.principal, request.event_filter) as subscription:
                stream = _Stream(self._store, self._clock, self._lifecycle, caller, subscription, start)
                shutdown_flag = self._lifecycle.shutdown_flag
                shutdown_flag.add_callback(subscription.waiter.notify)
                try:
                    async for page in stream.read_pages(heartbeat_seconds):
                        yield page
                finally:
                    shutdown_flag.remove_callback(subscription.waiter.notify)


class _Stream:
    """One stream between its start and its end."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        lifecycle: Lifecycle,
        caller: Caller,
        subscription: TailSubscription,
        start: LogStart,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lifecycle = lifecycle
        self._principal = caller.principal
        self._subscription = subscription
        self._position = start.position
        """The stream has sent every matching event up to here."""

    async def read_pages(self, heartbeat_seconds: float) -> AsyncGenerator[StreamPage]:
        subscription, ends_at = self._subscription, self._clock.monotonic() + FOLLOW_SECONDS_MAX
        if self._position.seq < subscription.tail_position.seq:
            subscription.require_reread()
        heartbeat_at = self._clock.monotonic() + heartbeat_seconds
        while not self._lifecycle.shutdown_flag.is_set() and (now := self._clock.monotonic()) < ends_at:
            page = await self._read_next()
            if page is None and now >= heartbeat_at:
                page = StreamPage(position=self._position)
            if page is None:
                await subscription.waiter.wait(min(heartbeat_at, ends_at) - now)
                continue
            yield page
            if page.is_store_unavailable:
                await self._clock.sleep(RETRY_SECONDS)
            heartbeat_at = self._clock.monotonic() + heartbeat_seconds

    async def _read_next(self) -> StreamPage | None:
        """The next page; None if there is nothing to send."""
        if self._subscription.has_overflowed:
            return await self._read_log()
        events = [event for event in self._subscription.pop_events() if event.seq > self._position.seq]
        if events:
            self._position = events[-1].position
            return StreamPage(events=events, position=self._position)
        if self._subscription.tail_position.seq > self._position.seq:
            self._position = self._subscription.tail_position
        return None

    async def _read_log(self) -> StreamPage | None:
        """The next page of the log itself. Events of the tail that it contains are left out later, by their positions."""
        self._subscription.has_overflowed = False
        try:
            page, has_more = await self._store.scan(self._principal, self._read_page)
        except StoreUnavailable:
            self._subscription.require_reread()
            return StreamPage(position=self._position, is_store_unavailable=True)
        self._position = page.position
        if has_more:
            self._subscription.require_reread()
        return page if page.events or page.is_truncated else None

    async def _read_page(self, tx: Transaction) -> tuple[StreamPage, bool]:
        """The next page, and whether the log goes on after it."""
        event_filter = self._subscription.event_filter
        request = EventRequest(event_filter=event_filter, cursor=encode_log_position(self._position))
        start = await read_log_start(tx, self._principal, request)
        if start.is_truncated:
            return StreamPage(position=start.position, is_truncated=True), True
        page = await read_event_page(tx, self._principal, event_filter, position=start.position, limit=FOLLOW_PAGE_SIZE)
        return StreamPage(events=page.events, position=page.position), page.has_more
