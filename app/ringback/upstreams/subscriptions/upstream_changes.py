"""The worker that records changes of upstreams as `upstream.changed` events for webhooks.

    webhooks ──▶ subscriptions to exactly the resources that they name
    changes  ──▶ pending ──▶ for each principal with a matching webhook: a transaction with its events ──▶ no longer pending

What the connection of one principal reports becomes an event of that principal only.

Changes of the same list or resource make at most one event a second; the last change always makes one. A change stays pending
until it is stored, so neither an unavailable store nor a bug loses it. It stays so for a principal whose log another unit has
locked, and for no other. After a restart or a reconnect, each watched resource
makes one event, because changes may have been missed. While the store is unavailable, `PendingChanges` limits the pending
resource changes.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from ringback.domain.change_subscriptions import (
    CHANGE_SUBSCRIPTIONS_TOPIC,
    ChangeSubject,
    ChangeSubscription,
    change_name,
)
from ringback.domain.clock import Clock
from ringback.domain.errors import RingbackError, StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.roles import CHANGES_DUTY
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.domain.upstreams import UpstreamChange, UpstreamErrorResponse, UpstreamProxyPort
from ringback.leadership import Leadership
from ringback.notifier.recorder import Recorder
from ringback.upstreams.principal_units import write_for_each
from ringback.upstreams.subscriptions.change_notifications import ChangeStream, PendingChanges
from ringback.waits import wait_first

log = logging.getLogger(__name__)

EVENT_INTERVAL_SECONDS: Final = 1.0
"""Between two events about the same list or resource, because an upstream may report a file a thousand times a second. Also
between two attempts to store a change."""
REREAD_SECONDS: Final = 60.0
"""The longest time for which an expired webhook or a lost wake-up goes unnoticed."""
RESUBSCRIBE_SECONDS: Final = 60.0
"""Between two attempts to subscribe to a resource after a rejection."""


class UpstreamChangeRecorder:
    name = "change-recorder"

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        recorder: Recorder,
        proxy: UpstreamProxyPort,
        changes: ChangeStream,
        leadership: Leadership | None = None,
    ) -> None:
        """`changes` has all changes since the upstreams were opened. Without `leadership` no other node records them."""
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._proxy = proxy
        self._changes = changes
        self._pending = PendingChanges[float]()
        self._recorded_at: dict[UpstreamChange, float] = {}
        self._added = asyncio.Event()
        self._leadership = leadership or Leadership(store=store, clock=clock, owner="alone", duty=CHANGES_DUTY)

    async def run(self, stop: asyncio.Event) -> None:
        await self._leadership.run_as_leader(self._follow_upstreams, stop)

    async def _follow_upstreams(self) -> None:
        """Runs until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_subscriptions())
            group.create_task(self._record_changes())

    # -- subscriptions --

    async def _follow_subscriptions(self) -> None:
        """Subscribe to the resources of webhooks. Those of the first round may have changed before this process started."""
        tasks: dict[_Watched, asyncio.Task[None]] = {}
        missed = True
        async with asyncio.TaskGroup() as group:
            with self._store.signals.listen(CHANGE_SUBSCRIPTIONS_TOPIC) as waiter:
                while True:
                    with contextlib.suppress(StoreUnavailable):
                        subscriptions = await self._read_subscriptions()
                        wanted = {
                            watched for each in subscriptions if (watched := self._find_watched(each)) is not None
                        }
                        for unwanted in tasks.keys() - wanted:
                            tasks.pop(unwanted).cancel()
                        for watched in wanted - tasks.keys():
                            tasks[watched] = group.create_task(self._keep_watching(watched, may_have_missed=missed))
                        missed = False
                    await waiter.wait(REREAD_SECONDS)

    def _find_watched(self, subscription: ChangeSubscription) -> "_Watched | None":
        """What is to be kept open for the subscription; None: nothing, because a shared connection is open anyway."""
        owner = self._proxy.get_owner(subscription.upstream, subscription.principal)
        if subscription.resource_uri is None and owner == SHARED_OWNER:
            return None
        return _Watched(subscription.upstream, owner, subscription.resource_uri)

    async def _keep_watching(self, watched: "_Watched", *, may_have_missed: bool) -> None:
        while True:
            try:
                async with self._watch(watched):
                    if may_have_missed and watched.uri is not None:
                        self._schedule_change(
                            UpstreamChange(upstream=watched.upstream, owner=watched.owner, uri=watched.uri)
                        )
                    await asyncio.Event().wait()
            except (UpstreamErrorResponse, RingbackError):
                log.warning("upstream.not_watched", extra={"upstream": watched.upstream})
            may_have_missed = True
            await self._clock.sleep(RESUBSCRIBE_SECONDS)

    @asynccontextmanager
    async def _watch(self, watched: "_Watched") -> AsyncGenerator[None]:
        """Subscribe to the resource; without one, keep the principal's connection open: it reports changes of lists."""
        upstream, owner, uri = watched
        if uri is None:
            with self._proxy.subscribe_changes(upstream, principal=owner, uris=()):
                yield
        else:
            async with self._proxy.subscribe_resource(upstream, uri, principal=owner):
                yield

    # -- events --

    def _schedule_change(self, change: UpstreamChange) -> None:
        now = self._clock.monotonic()
        self._pending.setdefault(
            change, max(now, self._recorded_at.get(change, now - EVENT_INTERVAL_SECONDS) + EVENT_INTERVAL_SECONDS)
        )
        self._added.set()

    async def _record_changes(self) -> None:
        while True:
            for change in self._changes.drain():
                self._schedule_change(change)
            now = self._clock.monotonic()
            if ready := [change for change, due_at in self._pending.items() if due_at <= now]:
                await self._record_due(ready, now)
            else:
                await self._wait_until_due(now)

    async def _wait_until_due(self, now: float) -> None:
        self._added.clear()
        next_due = min(self._pending.values(), default=now + REREAD_SECONDS)
        await wait_first(
            self._changes.wait_for_change(), self._added.wait(), self._clock.sleep(max(0.0, next_due - now))
        )

    async def _record_due(self, changes: Sequence[UpstreamChange], now: float) -> None:
        """Store the changes, or schedule them again. A change that arrives during the write makes an event of its own."""
        self._recorded_at = {
            change: at for change, at in self._recorded_at.items() if at > now - EVENT_INTERVAL_SECONDS
        }
        self._recorded_at |= dict.fromkeys(changes, now)
        for change in changes:
            del self._pending[change]
        unwritten: dict[Principal, list[UpstreamChange]] | None = None
        try:
            subjects = {ChangeSubject(change.upstream, change.uri) for change in changes}
            now_confirmed = self._clock.confirmed_now()
            subscriptions = await self._store.read(
                lambda tx: tx.change_subscriptions.list_of_subjects(subjects, now=now_confirmed)
            )
            unwritten = _find_changes_by_principal(subscriptions, changes)
            await self._write_events(unwritten)
        except StoreUnavailable:
            log.debug("upstream.change_not_recorded")
        finally:
            left = changes if unwritten is None else _list_changes_of(unwritten)
            self._recorded_at |= dict.fromkeys(left, now)
            for change in left:
                self._schedule_change(change)

    async def _read_subscriptions(self) -> Sequence[ChangeSubscription]:
        """While the clock is far ahead, none has expired: a change of these minutes would be lost."""
        now = self._clock.confirmed_now()
        return list(await self._store.read(lambda tx: tx.change_subscriptions.list_all(now=now)))

    async def _write_events(self, unwritten: dict[Principal, list[UpstreamChange]]) -> None:
        """Write the events of each principal, and remove those from `unwritten`."""

        async def write(tx: Transaction, principal: Principal) -> None:
            def note_written() -> None:
                del unwritten[principal]

            for change in unwritten[principal]:
                await self._recorder.record_upstream_change(
                    tx, principal, change.upstream, change=change_name(change), uri=change.uri
                )
            tx.on_commit(note_written)

        await write_for_each(self._store, list(unwritten), write)


class _Watched(NamedTuple):
    """What is kept open for webhooks."""

    upstream: str
    owner: Principal
    uri: str | None
    """None: the lists, on the connection of a principal."""


def _find_changes_by_principal(
    subscriptions: Iterable[ChangeSubscription], changes: Iterable[UpstreamChange]
) -> dict[Principal, list[UpstreamChange]]:
    """What each principal is to be notified of."""
    by_subject: defaultdict[tuple[str, str | None], list[UpstreamChange]] = defaultdict(list)
    for change in changes:
        by_subject[change.upstream, change.uri].append(change)
    found: dict[Principal, list[UpstreamChange]] = {}
    for subscription in subscriptions:
        for change in by_subject.get((subscription.upstream, subscription.resource_uri), ()):
            if subscription.matches_change(change):
                found.setdefault(subscription.principal, []).append(change)
    return found


def _list_changes_of(unwritten: Mapping[Principal, Sequence[UpstreamChange]]) -> Sequence[UpstreamChange]:
    """The changes, as changes that concern these principals only."""
    return [replace(change, owner=principal) for principal, changes in unwritten.items() for change in changes]
