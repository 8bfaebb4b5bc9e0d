"""The worker that follows events of upstreams and writes them into the logs of the principals that demand them.

Demands are read from the store: at a signal, and every `REREAD_SECONDS`. Equal demands of several principals are one following,
so one of them is read: a thousand principals may have hundreds each.
"""

import asyncio
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.event_types import (
    DEMANDS_TOPIC,
    FOLLOWED_TOPIC,
    DemandKey,
    EventDemand,
    EventFollowing,
    split_name,
)
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.rate_limiter import RateLimit, RateLimiter
from ringback.leadership import Leadership
from ringback.notifier.lost_events import record_lost_events
from ringback.notifier.recorder import Recorder
from ringback.protocol.mcp_events.subscription_key import canonical_arguments
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog
from ringback.upstreams.events.following import FollowableConnection, Following
from ringback.upstreams.events.full_logs import EventQuota, FullLogs, PageDecision
from ringback.upstreams.events.occurrences import FollowedEvents, UpstreamEventPage
from ringback.upstreams.principal_units import write_for_each

log = logging.getLogger(__name__)

FOLLOW_DUTY: Final = "follow-events"
"""One node follows: two would read the same events twice."""
REREAD_SECONDS: Final = 60.0
"""The longest time for which an ended demand or a lost signal goes unnoticed."""
FOLLOWINGS_PER_UPSTREAM_MAX: Final = 80
"""Followings of one upstream. Each may be a request that stays open. `services.events.event_demands` refuses the 65th demand;
the other places are for principals whose demands begin at the same moment."""
EVENTS_PER_SECOND_MAX: Final = 200.0
"""Events of one upstream, over all its followings. Each is written once for each principal that demands it."""
_EVENT_RATE: Final = RateLimit(per_second=EVENTS_PER_SECOND_MAX, burst=1)
GAP_INTERVAL_SECONDS: Final = 60.0
"""Between two gaps of a following, because an upstream may report one with each page. A gap within it is recorded later; until
then the stored cursor stays before it."""
REMOVED_DEMANDS_MAX: Final = 200
"""Ended demands that one transaction removes: some milliseconds. All of a hundred thousand end while the service is away."""
REMOVAL_PAUSE_SECONDS: Final = 0.05
"""Between two of these transactions."""
CURSOR_SAVE_SECONDS: Final = 30.0
"""Between two writes of a cursor that moved without an event."""


class UpstreamEventRecorder:
    name = "event-follower"

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        recorder: Recorder,
        connections: Mapping[str, FollowableConnection],
        catalog: UpstreamEventCatalog,
        event_quota: EventQuota,
        leadership: Leadership | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._recorder = recorder
        self._connections = connections
        self._catalog = catalog
        self._full_logs = FullLogs(event_quota, clock=clock)
        self._rates = RateLimiter[str]()
        self._saved: dict[FollowedEvents, _SavedCursor] = {}
        self._gap_recorded_at: dict[FollowedEvents, float] = {}
        self._pending_gaps: set[FollowedEvents] = set()
        self._leadership = leadership or Leadership(store=store, clock=clock, owner="alone", duty=FOLLOW_DUTY)

    async def run(self, stop: asyncio.Event) -> None:
        await self._leadership.run_as_leader(self._follow_demands, stop)

    async def _follow_demands(self) -> None:
        """Runs until it is cancelled."""
        self._forget_followings()
        tasks: dict[FollowedEvents, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._remove_ended_demands())
            with self._store.signals.listen(DEMANDS_TOPIC) as waiter:
                while True:
                    try:
                        wanted = select_followed(await self._read_demands())
                        for ended in tasks.keys() - wanted:
                            tasks.pop(ended).cancel()
                            self._saved.pop(ended, None)
                            self._gap_recorded_at.pop(ended, None)
                            self._pending_gaps.discard(ended)
                            self._full_logs.forget_demand(ended)
                        for followed in wanted - tasks.keys():
                            tasks[followed] = group.create_task((await self._make_following(followed)).run())
                    except StoreUnavailable:
                        log.debug("upstream.events_not_followed")
                    await waiter.wait(REREAD_SECONDS)

    async def _remove_ended_demands(self) -> None:
        """Runs until it is cancelled. An ended demand counts for nothing, also while its row is there."""
        after: DemandKey | None = None
        with self._store.signals.listen() as waiter:  # to no topic: it only waits
            while True:
                try:
                    after = await self._remove_ended_batch(after)
                except StoreUnavailable:
                    log.debug("upstream.events_not_followed")
                    after = None
                await waiter.wait(REREAD_SECONDS if after is None else REMOVAL_PAUSE_SECONDS)

    async def _read_demands(self) -> Sequence[EventDemand]:
        """While the clock is far ahead, none has ended: events of these minutes would not be followed."""
        now = self._clock.confirmed_now()
        return await self._store.scan(None, lambda tx: _read_demands(tx, now=now))

    async def _remove_ended_batch(self, after: DemandKey | None) -> DemandKey | None:
        """Return where the next batch goes on; None after the last one. The search for them is in no unit that writes."""
        now = self._clock.confirmed_now()
        ended = await self._store.scan(
            None, lambda tx: tx.event_demands.list_ended(now=now, after=after, limit=REMOVED_DEMANDS_MAX)
        )
        await self._store.write(lambda tx: tx.event_demands.remove_ended(ended, now=tx.confirmed_now()))
        return ended[-1] if len(ended) == REMOVED_DEMANDS_MAX else None

    def _forget_followings(self) -> None:
        """Those of an earlier time as the leader: another node has stored or removed their cursors since."""
        self._saved.clear()
        self._gap_recorded_at.clear()
        self._pending_gaps.clear()
        self._full_logs.forget_demand()

    async def _make_following(self, followed: FollowedEvents) -> Following:
        known = await self._store.read(lambda tx: tx.event_followings.get(followed.event_name, followed.topic or ""))
        return Following(
            followed,
            cursor=None if known is None else known.cursor,
            is_resumed=known is not None,
            streams=lambda: self._is_streamed(followed),
            connections=self._connections,
            store_page=self._store_page,
            wait_for_turn=partial(self._wait_for_turn, followed.upstream),
            clock=self._clock,
        )

    async def _wait_for_turn(self, upstream: str, event_count: int) -> None:
        """Let the events of one upstream through at `EVENTS_PER_SECOND_MAX`, page by page in the order of arrival."""
        if event_count == 0:
            return
        now = self._clock.monotonic()
        wait_seconds = self._rates.get_bucket(upstream, _EVENT_RATE, now=now).reserve(now, event_count)
        if wait_seconds > 0:
            await self._clock.sleep(wait_seconds)

    def _is_streamed(self, followed: FollowedEvents) -> bool:
        event_type = self._catalog.find_event_type(followed.event_name)
        return event_type is not None and event_type.streams

    # -- pages --

    async def _store_page(self, followed: FollowedEvents, page: UpstreamEventPage) -> None:
        saved, now = self._saved.get(followed), self._clock.monotonic()
        if page.is_truncated:
            self._pending_gaps.add(followed)
        is_due = now >= self._gap_recorded_at.get(followed, -math.inf) + GAP_INTERVAL_SECONDS
        has_gap = followed in self._pending_gaps and is_due
        if saved is not None and followed in self._pending_gaps and not has_gap:
            # After a crash, a page from the cursor before the gap is truncated again, so the gap is recorded then.
            page = replace(page, cursor=saved.cursor)
        is_recent = saved is not None and (saved.cursor == page.cursor or now < saved.at + CURSOR_SAVE_SECONDS)
        if is_recent and not page.events and not has_gap:
            return
        await self._write_page(followed, page, has_gap=has_gap)
        if has_gap:
            self._gap_recorded_at[followed] = now
            self._pending_gaps.discard(followed)
        self._saved[followed] = _SavedCursor(page.cursor, now)

    async def _write_page(self, followed: FollowedEvents, page: UpstreamEventPage, *, has_gap: bool) -> None:
        """Write for each principal in a unit of its own, which locks no other log; last the cursor.

        A page that is lost in between is read again. Its events are recognised by their ids.
        """
        topic = followed.topic or ""
        now = self._clock.confirmed_now()
        principals = await self._store.read(
            lambda tx: tx.event_demands.list_principals(followed.event_name, topic, now=now)
        )

        async def write(tx: Transaction, principal: Principal) -> None:
            await self._write_events(tx, followed, principal, page, has_gap=has_gap)

        async def write_all(tx: Transaction) -> None:
            await write(tx, principals[0])
            await _save_cursor(tx, followed, page.cursor)

        if len(principals) == 1:
            await self._store.write_for(principals[0], write_all)
            return
        if page.events or has_gap:
            for locked in (await write_for_each(self._store, principals, write)).values():
                raise locked
        await self._store.write(lambda tx: _save_cursor(tx, followed, page.cursor))

    async def _write_events(
        self,
        tx: Transaction,
        followed: FollowedEvents,
        principal: Principal,
        page: UpstreamEventPage,
        *,
        has_gap: bool,
    ) -> None:
        decision = await self._decide_page(tx, followed, principal, page)
        if has_gap or decision.has_gap:
            await record_lost_events(
                tx,
                principal,
                ids=self._ids,
                upstream=followed.upstream,
                event_name=followed.event_name,
                topic=followed.topic,
            )
        if page.events and not decision.is_lost:
            await self._recorder.record_external_events(tx, principal, page.events)

    async def _decide_page(
        self, tx: Transaction, followed: FollowedEvents, principal: Principal, page: UpstreamEventPage
    ) -> PageDecision:
        return await self._full_logs.decide_page(tx, followed, principal) if page.events else PageDecision.RECORDED


@dataclass(frozen=True, slots=True)
class _SavedCursor:
    cursor: str | None
    at: float


def select_followed(demands: Iterable[EventDemand]) -> set[FollowedEvents]:
    """What is followed: at most `FOLLOWINGS_PER_UPSTREAM_MAX` of each upstream, the first of each principal first."""
    ranks = Counter[tuple[str, str]]()
    ranked: list[tuple[int, str, FollowedEvents]] = []
    for demand in demands:
        upstream, own_name = split_name(demand.event_name)
        if upstream is not None:
            rank = ranks[demand.principal, upstream]
            ranks[demand.principal, upstream] += 1
            followed = FollowedEvents(upstream, own_name, canonical_arguments(demand.arguments))
            ranked.append((rank, demand.principal, followed))
    selected: defaultdict[str, set[FollowedEvents]] = defaultdict(set)
    for _, _, followed in sorted(ranked, key=lambda each: each[:2]):
        if len(selected[followed.upstream]) < FOLLOWINGS_PER_UPSTREAM_MAX:
            selected[followed.upstream].add(followed)
    return {followed for each in selected.values() for followed in each}


async def _save_cursor(tx: Transaction, followed: FollowedEvents, cursor: str | None) -> None:
    await tx.event_followings.save(
        EventFollowing(event_name=followed.event_name, topic=followed.topic or "", cursor=cursor, updated_at=tx.now())
    )
    tx.notify(FOLLOWED_TOPIC)


async def _read_demands(tx: Transaction, *, now: datetime) -> Sequence[EventDemand]:
    """One demand of each following; all of them if an upstream may not have so many, because it matters then whose they are."""
    different = await tx.event_demands.list_different(now=now)
    of_upstream = Counter(split_name(demand.event_name)[0] for demand in different)
    if max(of_upstream.values(), default=0) <= FOLLOWINGS_PER_UPSTREAM_MAX:
        return different
    return await tx.event_demands.list_current(now=now)
