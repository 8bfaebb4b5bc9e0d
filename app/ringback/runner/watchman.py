"""The worker behind `upstream.changed`: what upstreams tell unasked becomes events of whoever has a webhook for it.

    webhooks ──▶ the resources that they name are watched, those and no others
    changes  ──▶ due ──▶ one transaction: an event for each principal that wants to hear ──▶ not due any more

The same thing rings at most once a second; what comes in between rings when that second is over, so the last change always
does. A change is due until it is written down: neither a store that cannot be written nor a bug here loses one. What nobody
could hear, while this process did not run or an upstream was away, rings once as soon as it can be heard again. While the
store cannot be written, changes of so many different resources of an upstream wait, and no more.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.errors import RingbackError, StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.upstreams import Change, Passage, UpstreamRefused
from ringback.domain.watches import WATCHES, Watch, word_of
from ringback.notifier.record import Recorder
from ringback.runner.changes import Backlog, ChangeStream
from ringback.waits import first_of

log = logging.getLogger(__name__)

STEP_SECONDS: Final = 1.0
"""Between two events about the same thing, since an upstream may tell of a file a thousand times a second; and between two
attempts to write one down."""
LOOK_SECONDS: Final = 60.0
"""How long an expired webhook, or a missed ring, can go unnoticed."""
AGAIN_SECONDS: Final = 60.0
"""Between two attempts to watch a resource that the upstream refuses to tell of."""


class Watchman:
    name = "watchman"

    def __init__(
        self, *, store: Store, clock: Clock, recorder: Recorder, passage: Passage, changes: ChangeStream
    ) -> None:
        """`changes` holds what all upstreams have told since they were opened."""
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._passage = passage
        self._changes = changes
        self._due = Backlog[float]()
        self._rung_at: dict[Change, float] = {}
        self._added = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._watch()), group.create_task(self._record())]
            await stop.wait()
            for task in tasks:
                task.cancel()

    # -- which resources are watched --

    async def _watch(self) -> None:
        """Follow the webhooks. What is named when this begins may have changed before."""
        watching: dict[tuple[str, str], asyncio.Task[None]] = {}
        missed = True
        async with asyncio.TaskGroup() as group:
            with self._store.signals.listen(WATCHES) as bell:
                while True:
                    with contextlib.suppress(StoreUnavailable):
                        watches = await self._store.read(_all)
                        wanted = {(watch.upstream, watch.resource_uri) for watch in watches if watch.resource_uri}
                        for gone in watching.keys() - wanted:
                            watching.pop(gone).cancel()
                        for upstream, uri in wanted - watching.keys():
                            watching[upstream, uri] = group.create_task(self._hold(upstream, uri, missed=missed))
                        missed = False
                    await bell.wait(LOOK_SECONDS)

    async def _hold(self, upstream: str, uri: str, *, missed: bool) -> None:
        while True:
            try:
                async with self._passage.watching(upstream, uri):
                    if missed:
                        self._add(Change(upstream=upstream, uri=uri))
                    await asyncio.Event().wait()
            except (UpstreamRefused, RingbackError):
                log.warning("upstream.not_watched", extra={"upstream": upstream})
            missed = True
            await self._clock.sleep(AGAIN_SECONDS)

    # -- what becomes an event --

    def _add(self, change: Change) -> None:
        now = self._clock.monotonic()
        self._due.setdefault(change, max(now, self._rung_at.get(change, now - STEP_SECONDS) + STEP_SECONDS))
        self._added.set()

    async def _record(self) -> None:
        while True:
            for change in self._changes.take_all():
                self._add(change)
            now = self._clock.monotonic()
            if ready := [change for change, due_at in self._due.items() if due_at <= now]:
                await self._ring(ready, now)
            else:
                await self._wait(now)

    async def _wait(self, now: float) -> None:
        self._added.clear()
        next_due = min(self._due.values(), default=now + LOOK_SECONDS)
        await first_of(self._changes.wait(), self._added.wait(), self._clock.sleep(max(0.0, next_due - now)))

    async def _ring(self, changes: Sequence[Change], now: float) -> None:
        """Write them down; what could not be is due again. What is added while this writes rings for itself."""
        self._rung_at = {change: at for change, at in self._rung_at.items() if at > now - STEP_SECONDS}
        self._rung_at |= dict.fromkeys(changes, now)
        for change in changes:
            del self._due[change]
        written = False
        try:
            watches = await self._store.read(_all)
            if any(watch.is_about(change) for watch in watches for change in changes):
                await self._store.write(lambda tx: self._tell(tx, changes))
            written = True
        except StoreUnavailable:
            log.warning("upstream.change_not_recorded")
        finally:
            if not written:
                for change in changes:
                    self._add(change)

    async def _tell(self, tx: Transaction, changes: Sequence[Change]) -> None:
        """Principals come in sorted order, because the head of each one's log is locked until the commit."""
        for watch in sorted(await _all(tx), key=lambda watch: watch.principal):
            for change in changes:
                if watch.is_about(change):
                    await self._recorder.upstream_changed(
                        tx, watch.principal, change.upstream, what=word_of(change), uri=change.uri
                    )


async def _all(tx: Transaction) -> Sequence[Watch]:
    return list(await tx.watches.all(now=tx.now()))
