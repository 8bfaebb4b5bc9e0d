"""Tails of event logs: one reader for each log that streams of this process follow, however many streams there are.

    commit ──▶ signal of the log ──▶ LogTail reads the new events once ──▶ index of filters ──▶ the streams that match

The work for a new event grows with the streams that match it: the index has each stream under the most selective value of its
filter. A stream that reads slowly has a bounded list of events; beyond that it reads the log by itself.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from ringback.asyncio_tasks import end_tasks
from ringback.domain import json_size, jsontext
from ringback.domain.cursor import LogPosition
from ringback.domain.errors import StoreUnavailable
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import log_appended_topic
from ringback.notifier.log_positions import read_log_position
from ringback.services.events.events import EventPage, read_event_page
from ringback.waits import LocalWaiter

log = logging.getLogger(__name__)

REREAD_SECONDS: Final = 30.0
"""Signals can be lost between nodes: how long that can delay an event. Streams of ten thousand principals then cost 330 reads a
second."""
RETRY_SECONDS: Final = 1.0
"""Between two reads while the log cannot be read."""
TAIL_PAGE_SIZE: Final = 500
"""Events of one read. A burst takes several reads, and other work gets its turn between them."""
PENDING_EVENTS_MAX: Final = 100
"""Events that wait for a slow stream. Together with the quota of streams this bounds the memory of a principal."""
PENDING_BYTES_MAX: Final = 1024 * 1024
"""Of the decoded data of these events, but at least one event. A hundred of the largest would take 140 MB."""

_Selector = tuple[str, str | None]
"""An attribute of events and its value; the attribute is empty for filters without values."""
_SELECTIVE_ATTRIBUTES: Final = ("call_id", "correlation_id", "client_session_id", "tool", "upstream", "name")
"""Attributes of events and filters, the most selective first."""


class TailSubscription:
    """The events of one stream that the tail has read and the stream has not."""

    def __init__(self, event_filter: EventFilter, tail: "LogTail") -> None:
        self.event_filter = event_filter
        self.waiter = LocalWaiter()
        self.has_overflowed = False
        """Whether the tail has dropped events: the stream reads them from the log."""
        self._tail = tail
        self._pending: deque[Event] = deque()
        self._pending_bytes = 0

    @property
    def tail_has_started(self) -> bool:
        """False while the tail has not read the log yet. The waiter is notified when it has."""
        return self._tail.has_started

    @property
    def tail_position(self) -> LogPosition:
        """Every event up to here was offered."""
        return self._tail.position

    def offer(self, event: Event, *, size: int) -> None:
        """`size`: bytes of its decoded data."""
        is_too_large = bool(self._pending) and self._pending_bytes + size > PENDING_BYTES_MAX
        if is_too_large or len(self._pending) >= PENDING_EVENTS_MAX:
            self.require_reread()
        elif not self.has_overflowed:
            self._pending.append(event)
            self._pending_bytes += size
        self.waiter.notify()

    def require_reread(self) -> None:
        self.has_overflowed = True
        self.pop_events()
        self.waiter.notify()

    def pop_events(self) -> Sequence[Event]:
        events = list(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        return events


class LogTail:
    """The reader of one log, while streams follow it."""

    def __init__(self, store: Store, principal: Principal) -> None:
        self.position = LogPosition(0)
        self.has_started = False
        self._store = store
        self._principal = principal
        self._index: defaultdict[_Selector, dict[TailSubscription, None]] = defaultdict(dict)
        """In the order in which the streams began, so that a simulation repeats it."""
        self._count = 0
        self._task = asyncio.create_task(self._run())

    @property
    def is_unused(self) -> bool:
        return self._count == 0

    def add(self, subscription: TailSubscription) -> None:
        self._index[_select(subscription.event_filter)][subscription] = None
        self._count += 1

    def remove(self, subscription: TailSubscription) -> None:
        selector = _select(subscription.event_filter)
        self._index[selector].pop(subscription, None)
        if not self._index[selector]:
            del self._index[selector]
        self._count -= 1

    async def aclose(self) -> None:
        await end_tasks([self._task])

    async def _run(self) -> None:
        with self._store.signals.listen(log_appended_topic(self._principal)) as waiter:
            while True:
                try:
                    await self._read_log()
                    pause_seconds = REREAD_SECONDS
                except StoreUnavailable:
                    log.debug("events.log_not_read")
                    pause_seconds = RETRY_SECONDS
                except Exception:  # a bug must not leave streams that are open, have heartbeats and get no events
                    log.exception("events.log_not_read")
                    pause_seconds = RETRY_SECONDS
                await waiter.wait(pause_seconds)

    async def _read_log(self) -> None:
        """Offer the new events to the streams; the first time, begin at the end of the log."""
        if not self.has_started:
            self.position = await self._store.read(lambda tx: _read_head(tx, self._principal))
            self.has_started = True
            for subscription in self._list_subscriptions():
                subscription.waiter.notify()
        has_more = True
        while has_more:
            page = await self._store.scan(self._principal, self._read_page)
            if page.is_truncated:  # this process stood still for longer than events are kept, or the log was replaced
                self._require_reread()
            for event in page.events:
                size = json_size.estimate_decoded_bytes(jsontext.dumps(event.data))
                for subscription in self._find_subscriptions(event):
                    subscription.offer(event, size=size)
            self.position, has_more = page.position, page.has_more

    async def _read_page(self, tx: Transaction) -> EventPage:
        return await read_event_page(tx, self._principal, EventFilter(), position=self.position, limit=TAIL_PAGE_SIZE)

    def _find_subscriptions(self, event: Event) -> Iterator[TailSubscription]:
        for selector in _list_selectors(event):
            for subscription in self._index.get(selector, ()):
                if subscription.event_filter.matches(event):
                    yield subscription

    def _require_reread(self) -> None:
        for subscription in self._list_subscriptions():
            subscription.require_reread()

    def _list_subscriptions(self) -> list[TailSubscription]:
        return [subscription for subscriptions in self._index.values() for subscription in subscriptions]


class LogTails:
    """The tails of this process, by principal. A tail ends with its last stream."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tails: dict[Principal, LogTail] = {}

    @property
    def tail_count(self) -> int:
        return len(self._tails)

    @asynccontextmanager
    async def subscribe(self, principal: Principal, event_filter: EventFilter) -> AsyncGenerator[TailSubscription]:
        """The events that match and are committed after the tail's position, once it has started."""
        tail = self._tails.get(principal)
        if tail is None:
            self._tails[principal] = tail = LogTail(self._store, principal)
        subscription = TailSubscription(event_filter, tail)
        tail.add(subscription)
        try:
            yield subscription
        finally:
            tail.remove(subscription)
            if tail.is_unused:
                del self._tails[principal]
                await tail.aclose()


def _select(event_filter: EventFilter) -> _Selector:
    """The most selective value of the filter."""
    for attribute in _SELECTIVE_ATTRIBUTES:
        if (value := getattr(event_filter, attribute)) is not None:
            return attribute, value
    return "", None


def _list_selectors(event: Event) -> Iterator[_Selector]:
    """The selectors of all filters that may match the event."""
    for attribute in _SELECTIVE_ATTRIBUTES:
        if (value := getattr(event, attribute)) is not None:
            yield attribute, value
    yield "", None


async def _read_head(tx: Transaction, principal: Principal) -> LogPosition:
    return await read_log_position(tx, principal, await tx.event_log.get_head(principal))
