"""Events: the log, polled and followed."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.cursor import Place, decode_place, encode_place
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import appended
from ringback.notifier.places import knows_place, place_at
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaKeeper
from ringback.services.waiting import look_until

HEARTBEAT_SECONDS: Final = 15.0
"""Half of what the stricter clients take for silence (mcp-events §5), and below the idle timeout of every common proxy."""
FOLLOW_SECONDS_MAX: Final = 900.0
"""Then a follower has to come back, with its cursor and a key that is still good."""
FOLLOW_PAGE: Final = 100
"""Events read ahead of a follower: what it does not take stays in the log and costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    events: Sequence[Event]
    reached: Place
    """Up to here the log has been read."""
    truncated: bool
    """Whether events after the place asked with are not here: removed by retention, or in a log that was lost."""
    log_was_lost: bool
    """Whether the place asked with is in a log that is no more, because an older backup was restored. Then the page begins with
    the oldest event that is kept: nothing that is there is skipped, and what was seen before has the id that it had."""
    has_more: bool
    """Whether more of the log waits to be looked at. A page is bounded by what was read, so it may be empty and have more."""

    @property
    def cursor(self) -> str:
        """Poll with it to get what comes after this page."""
        return encode_place(self.reached)


class Events:
    def __init__(self, *, store: Store, clock: Clock, quotas: QuotaKeeper, lifecycle: Lifecycle) -> None:
        self._store = store
        self._clock = clock
        self._quotas = quotas
        self._lifecycle = lifecycle

    async def poll(
        self, caller: Caller, where: EventFilter, *, cursor: str | None, limit: int, wait_seconds: float = 0.0
    ) -> EventPage:
        """Events after the cursor, oldest first; without a cursor, from the oldest that is kept."""
        caller.require(Scope.READ)
        after = decode_place(cursor) if cursor else None
        return await look_until(
            lambda: self._store.scan(
                caller.principal, lambda tx: read_page(tx, caller.principal, where, after=after, limit=limit)
            ),
            lambda page: bool(page.events) or page.has_more or page.truncated,
            signals=self._store.signals,
            topics=[appended(caller.principal)],
            wait_seconds=wait_seconds,
            clock=self._clock,
            lifecycle=self._lifecycle,
        )

    async def follow(self, caller: Caller, where: EventFilter, *, cursor: str | None) -> AsyncGenerator[EventPage]:
        """Page after page as events come, and an empty one when nothing came for a heartbeat; the first comes at once.

        Ends when the service stops, or after `FOLLOW_SECONDS_MAX`. Raises `QuotaExceeded` before the first page.
        """
        ends_at = self._clock.monotonic() + FOLLOW_SECONDS_MAX
        with self._quotas.stream(caller.principal):
            page = await self.poll(caller, where, cursor=cursor, limit=FOLLOW_PAGE)
            yield page
            while not self._lifecycle.stopping.is_set() and self._clock.monotonic() < ends_at:
                page = await self.poll(
                    caller, where, cursor=page.cursor, limit=FOLLOW_PAGE, wait_seconds=HEARTBEAT_SECONDS
                )
                if page.events or page.truncated or not page.has_more:
                    yield page


async def read_page(
    tx: Transaction, principal: Principal, where: EventFilter, *, after: Place | None, limit: int
) -> EventPage:
    head = await tx.event_places.head(principal)
    horizon = await tx.event_places.horizon(principal)
    log_was_lost = after is not None and not await knows_place(tx, principal, after)
    start = horizon if after is None or log_was_lost else after.seq
    found = await tx.events.page(principal, max(start, horizon), where, limit=limit)
    return EventPage(
        events=found,
        reached=await place_at(tx, principal, head if found.next_place is None else found.next_place),
        truncated=log_was_lost or (after is not None and after.seq < horizon),
        log_was_lost=log_was_lost,
        has_more=found.next_place is not None,
    )
