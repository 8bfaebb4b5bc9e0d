"""Follow the event log: over REST, and as MCP Events push it (mcp-events §5). Thousands of idle streams are cheap.

    start ──▶ the events between the cursor and the tail, read from the log ──▶ the events of the tail ──▶ …
                        ▲                                                          │ the stream was too slow
                        └──────────────────────────────────────────────────────────┘

An idle stream reads nothing: its tail (`log_tails`) reads the log once for all streams of the principal.

           no cursor                      events after the cursor are missing
    REST   from the oldest stored event   the page says so, and has the events that are left
    MCP    from now                       the page says so, and has no events
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple

from ringback.domain.clock import Clock
from ringback.domain.cursor import LogPosition, decode_log_position, encode_log_position
from ringback.domain.errors import StoreUnavailable
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.services.events.event_polls import EventRequest, read_log_start
from ringback.services.events.events import read_event_page
from ringback.services.events.log_tails import LogTails, TailSubscription
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer

HEARTBEAT_SECONDS: Final = 15.0
"""Of REST's streams: half of the stricter clients' idle timeout (mcp-events §5), and below that of every common proxy."""
FOLLOW_SECONDS_MAX: Final = 900.0
"""After this time, a client must reconnect with its cursor and a valid key."""
FOLLOW_PAGE_SIZE: Final = 100
"""Events read ahead for a client. The rest stays in the log."""
RETRY_SECONDS: Final = 2.0
"""Between two reads of a stream while the store is unavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPage:
    """What a stream sends next. Without events, truncation and unavailability it is a heartbeat."""

    events: Sequence[Event] = ()
    position: LogPosition
    is_truncated: bool = False
    """Events after the requested position are missing."""
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

    async def follow_log(
        self, caller: Caller, event_filter: EventFilter, *, cursor: str | None
    ) -> AsyncGenerator[StreamPage]:
        """Follow the log for REST: yield the events after the cursor at once, then events and heartbeats.

        Ends when the service shuts down, or after `FOLLOW_SECONDS_MAX`. Raises `InvalidCursor` and `QuotaExceeded` before the
        first page.
        """
        position = decode_log_position(cursor) if cursor else None

        async def read_page(tx: Transaction, after: LogPosition | None) -> _LogPage:
            page = await read_event_page(tx, caller.principal, event_filter, position=after, limit=FOLLOW_PAGE_SIZE)
            return _LogPage(
                StreamPage(events=page.events, position=page.position, is_truncated=page.is_truncated), page.has_more
            )

        async def read_first(tx: Transaction) -> StreamPage:
            return (await read_page(tx, position)).page

        async with aclosing(
            self._follow(caller, event_filter, read_first, read_page, heartbeat_seconds=HEARTBEAT_SECONDS)
        ) as pages:
            async for page in pages:
                yield page

    async def follow_events(
        self, caller: Caller, request: EventRequest, *, heartbeat_seconds: float
    ) -> AsyncGenerator[StreamPage]:
        """Follow the log for MCP: yield the start at once, then pages of events, and heartbeats.

        A heartbeat comes every `heartbeat_seconds`, between events too.

        Ends when the service shuts down, or after `FOLLOW_SECONDS_MAX`. Raises `QuotaExceeded` before the first page.
        """
        event_filter = request.event_filter

        async def read_first(tx: Transaction) -> StreamPage:
            start = await read_log_start(tx, caller.principal, request)
            return StreamPage(position=start.position, is_truncated=start.is_truncated)

        async def read_page(tx: Transaction, after: LogPosition) -> _LogPage:
            start = await read_log_start(
                tx, caller.principal, EventRequest(event_filter=event_filter, cursor=encode_log_position(after))
            )
            if start.is_truncated:
                return _LogPage(StreamPage(position=start.position, is_truncated=True), has_more=True)
            page = await read_event_page(
                tx, caller.principal, event_filter, position=start.position, limit=FOLLOW_PAGE_SIZE
            )
            return _LogPage(StreamPage(events=page.events, position=page.position), page.has_more)

        async with aclosing(
            self._follow(caller, event_filter, read_first, read_page, heartbeat_seconds=heartbeat_seconds)
        ) as pages:
            async for page in pages:
                yield page

    async def _follow(
        self,
        caller: Caller,
        event_filter: EventFilter,
        read_first: Callable[[Transaction], Awaitable[StreamPage]],
        read_page: "ReadLogPage",
        *,
        heartbeat_seconds: float,
    ) -> AsyncGenerator[StreamPage]:
        caller.require_scope(Scope.READ)
        with self._quotas.open_stream(caller.principal, key_id=caller.key_id):
            first = await self._store.scan(caller.principal, read_first)
            position = first.position
            yield first
            del first  # it may have megabytes, and the stream goes on for a quarter of an hour
            async with self._tails.subscribe(caller.principal, event_filter) as subscription:
                stream = _Stream(self._store, self._clock, self._lifecycle, caller, subscription, read_page, position)
                shutdown_flag = self._lifecycle.shutdown_flag
                shutdown_flag.add_callback(subscription.waiter.notify)
                try:
                    async for page in stream.read_pages(heartbeat_seconds):
                        yield page
                finally:
                    shutdown_flag.remove_callback(subscription.waiter.notify)


class _LogPage(NamedTuple):
    page: StreamPage
    has_more: bool


ReadLogPage = Callable[[Transaction, LogPosition], Awaitable[_LogPage]]
"""Reads the page of the log after a position."""


class _Stream:
    """One stream between its start and its end."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        lifecycle: Lifecycle,
        caller: Caller,
        subscription: TailSubscription,
        read_page: ReadLogPage,
        position: LogPosition,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lifecycle = lifecycle
        self._principal = caller.principal
        self._subscription = subscription
        self._read_page = read_page
        self._position = position
        """The stream has sent every matching event up to here."""
        self._has_compared = False
        """Whether the stream knows if the tail began after its position. Until the tail has read the log, it has heartbeats."""

    async def read_pages(self, heartbeat_seconds: float) -> AsyncGenerator[StreamPage]:
        subscription, ends_at = self._subscription, self._clock.monotonic() + FOLLOW_SECONDS_MAX
        heartbeat_at = self._clock.monotonic() + heartbeat_seconds
        while not self._lifecycle.shutdown_flag.is_set() and (now := self._clock.monotonic()) < ends_at:
            page = await self._read_next()
            if page is not None:
                yield page
                if page.is_store_unavailable:
                    await self._clock.sleep(RETRY_SECONDS)
            # Events do not postpone it: MCP asks for periodic heartbeats, and clients may count on them.
            if now >= heartbeat_at:
                yield StreamPage(position=self._position)
                heartbeat_at = self._clock.monotonic() + heartbeat_seconds
            elif page is None:
                await subscription.waiter.wait(min(heartbeat_at, ends_at) - now)

    async def _read_next(self) -> StreamPage | None:
        """The next page; None if there is nothing to send."""
        if not self._subscription.tail_has_started:
            return None
        if not self._has_compared:
            self._has_compared = True
            if self._position.seq < self._subscription.tail_position.seq:
                self._subscription.require_reread()
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
            page, has_more = await self._store.scan(self._principal, lambda tx: self._read_page(tx, self._position))
        except StoreUnavailable:
            self._subscription.require_reread()
            return StreamPage(position=self._position, is_store_unavailable=True)
        self._position = page.position
        if has_more:
            self._subscription.require_reread()
        return page if page.events or page.is_truncated else None
