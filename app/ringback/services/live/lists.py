"""The lists that viewers follow: each is read in turn, at most once a second, and as often as the budget allows."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ringback.asyncio_tasks import end_tasks
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import PortalLinkId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import CALL_QUEUED_TOPIC, log_appended_topic
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.live.budget import CpuBudget, Measured
from ringback.services.live.listings import LiveListing
from ringback.services.live.pools import LiveListPool
from ringback.services.scans import Scan, scan_for
from ringback.waits import LocalWaiter

log = logging.getLogger(__name__)

T = TypeVar("T")
Shown = TypeVar("Shown")

REFRESH_SECONDS: Final = 1.0
"""Between two reads of a list, at least."""
REREAD_SECONDS: Final = 2.0
"""Without a signal: a dispatch has none, and those of other principals are not listened to."""
LIVE_LISTS_MAX: Final = 8
"""Different lists that one principal follows at a time, or the viewers of one portal link."""
LINK_STREAMS_MAX: Final = 50
"""Open pages of one portal link, at each node."""
PORTAL_LISTS_MAX: Final = 64
"""Different lists that the viewers of all portal links of one principal follow, besides the principal's own."""
PORTAL_STREAMS_MAX: Final = 500
"""Open pages of all portal links of one principal, at each node."""
HEARTBEAT_SECONDS: Final = 15.0
"""A lost viewer is noticed at the next write."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class LiveContent(Generic[Shown]):
    """What a list shows at one moment. All viewers of the list get the same object."""

    shown: Shown


class _ListKey(NamedTuple):
    principal: Principal | None
    listing: LiveListing[Any]


class LiveLists:
    def __init__(self, *, store: Store, clock: Clock, quotas: QuotaEnforcer, lifecycle: Lifecycle) -> None:
        self._store = store
        self._clock = clock
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._lists: dict[_ListKey, _LiveList] = {}
        self._own: LiveListPool[Principal] = LiveListPool(lists_max=LIVE_LISTS_MAX)
        self._of_link: LiveListPool[PortalLinkId] = LiveListPool(lists_max=LIVE_LISTS_MAX, streams_max=LINK_STREAMS_MAX)
        self._of_links: LiveListPool[Principal] = LiveListPool(
            lists_max=PORTAL_LISTS_MAX, streams_max=PORTAL_STREAMS_MAX
        )
        self._budget = CpuBudget(clock=clock)

    @property
    def list_count(self) -> int:
        return len(self._lists)

    async def measure_viewer(self, caller: Caller, work: Awaitable[T]) -> T:
        """The result of `work`, which shows a list to a viewer. Its CPU time delays the next reads of lists."""
        return await self._budget.measure(caller.listed_principal, work)

    async def follow_list(
        self, caller: Caller, listing: LiveListing[Shown], *, seconds: float, portal_link_id: PortalLinkId | None = None
    ) -> AsyncGenerator[LiveContent[Shown] | None]:
        """Yield None at once, then what the list shows, as soon as it is read and after each change, and None as a heartbeat.

        A slow viewer gets the latest content, and not what was between. Ends after `seconds` or at the shutdown of the service.
        Viewers of a portal link use up nothing of their principal's own limits.
        Raises `QuotaExceeded` before the first value.
        """
        caller.require_scope(Scope.READ)
        key = _ListKey(caller.listed_principal, listing)
        with self._count_viewer(caller, key, portal_link_id):
            followed = self._lists.get(key)
            if followed is None:
                followed = self._lists[key] = _LiveList(self._store, self._clock, key, self._budget)
            waiter = LocalWaiter()
            followed.waiters.add(waiter)
            self._lifecycle.shutdown_flag.add_callback(waiter.notify)
            try:
                async for content in self._read_contents(followed, waiter, seconds):
                    yield content
            finally:
                self._lifecycle.shutdown_flag.remove_callback(waiter.notify)
                followed.waiters.discard(waiter)
                if not followed.waiters:
                    self._lists.pop(key, None)
                    await followed.aclose()

    async def read_list(self, caller: Caller, listing: LiveListing[Shown]) -> Shown:
        """What the list shows now, for a viewer that cannot follow it."""
        caller.require_scope(Scope.READ)
        return await listing.read(scan_for(self._store, caller.principal), caller.listed_principal)

    async def _read_contents(
        self, followed: "_LiveList", waiter: LocalWaiter, seconds: float
    ) -> AsyncGenerator[LiveContent[Any] | None]:
        if self._lifecycle.shutdown_flag.is_set():
            return
        ends_at = self._clock.monotonic() + seconds
        yield None  # before what an earlier viewer's read has found: the first value says that the viewer is admitted
        heartbeat_at = self._clock.monotonic() + HEARTBEAT_SECONDS
        seen: LiveContent[Any] | None = None
        while not self._lifecycle.shutdown_flag.is_set() and (now := self._clock.monotonic()) < ends_at:
            is_new = followed.content is not seen
            if not is_new and now < heartbeat_at:
                await waiter.wait(min(heartbeat_at, ends_at) - now)
                continue
            seen = followed.content
            yield seen if is_new else None
            heartbeat_at = self._clock.monotonic() + HEARTBEAT_SECONDS

    @contextmanager
    def _count_viewer(self, caller: Caller, key: _ListKey, portal_link_id: PortalLinkId | None) -> Generator[None]:
        if portal_link_id is not None:
            with self._of_link.count(portal_link_id, key), self._of_links.count(caller.principal, key):
                yield
            return
        viewer = (caller.operator or caller).principal
        with self._quotas.open_stream(viewer, key_id=caller.key_id), self._own.count(viewer, key):
            yield


class _LiveList:
    """One list, while viewers follow it."""

    def __init__(self, store: Store, clock: Clock, key: _ListKey, budget: CpuBudget) -> None:
        self.content: LiveContent[Any] | None = None
        self.waiters: set[LocalWaiter] = set()
        self._store = store
        self._clock = clock
        self._key = key
        self._budget = budget
        self._task = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        await end_tasks([self._task])

    async def _run(self) -> None:
        topics = [CALL_QUEUED_TOPIC]
        if self._key.principal is not None:
            topics.append(log_appended_topic(self._key.principal))
        with self._store.signals.listen(*topics) as waiter:
            while True:
                try:
                    async with self._budget.wait_for_turn(self._key.principal):
                        await self._budget.measure(self._key.principal, self._refresh())
                except StoreUnavailable:
                    log.debug("live_lists.not_read")
                except Exception:  # a bug must not leave pages that are open and never change
                    log.exception("live_lists.not_read")
                await self._clock.sleep(REFRESH_SECONDS)
                await waiter.wait(REREAD_SECONDS)

    async def _refresh(self) -> None:
        shown = await self._read()
        if self.content is None or shown != self.content.shown:
            self.content = LiveContent(shown=shown)
            for waiter in self.waiters:
                waiter.notify()

    async def _read(self) -> object:
        principal, listing = self._key
        scans = _MeasuredScans(scan_for(self._store, principal))
        shown = await listing.read(scans.scan, principal)
        self._budget.spend(principal, scans.spent)
        return shown


class _MeasuredScans:
    """Scans whose CPU time on other threads is counted. `CpuBudget.measure` counts that of the thread that asks."""

    def __init__(self, scan: Scan) -> None:
        self.spent = 0.0
        self._scan = scan
        self._asking_thread = threading.get_ident()

    async def scan(self, work: Callable[[Transaction], Awaitable[T]], /) -> T:
        async def measure(tx: Transaction) -> T:
            return await Measured(work(tx), self._add)

        return await self._scan(measure)

    def _add(self, cpu_seconds: float) -> None:
        if threading.get_ident() != self._asking_thread:
            self.spent += cpu_seconds
