"""Lists of calls that follow what happens, for pages that stay open. However many viewers look at one list, it is read once.

    commit ──▶ signal ──▶ the list is read, at most once a second ──▶ if it changed: every viewer of the list gets the new page

Lists of many viewers must not slow calls and callbacks. So the lists are read one after the other, and after each read there is
a rest of many times its duration: all lists together get a small part of this process's time, and with many lists, or under
load, each is read less often.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from ringback.domain.call import Call
from ringback.domain.call_rows import CallFilter
from ringback.domain.clock import Clock
from ringback.domain.cursor import Page
from ringback.domain.errors import QuotaExceeded, StoreUnavailable
from ringback.domain.ids import PortalLinkId
from ringback.domain.ports import Store
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import CALL_QUEUED_TOPIC, log_appended_topic
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaEnforcer
from ringback.waits import LocalWaiter, end_tasks

log = logging.getLogger(__name__)

Owner = TypeVar("Owner", bound=Hashable)

REFRESH_SECONDS: Final = 1.0
"""Between two reads of a list, at least."""
REREAD_SECONDS: Final = 2.0
"""Without a signal: a dispatch has none, and those of other principals are not listened to."""
REST_FACTOR: Final = 40.0
"""The rest after a read, in its duration: lists use at most a fortieth of the time."""
REST_SECONDS_MAX: Final = 2.0
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
class LiveCallPage:
    """The first page of a list at one moment. All viewers of the list get the same object."""

    calls: Sequence[Call]
    has_more: bool


class _ListKey(NamedTuple):
    principal: Principal | None
    call_filter: CallFilter
    limit: int


class LiveCalls:
    def __init__(self, *, store: Store, clock: Clock, quotas: QuotaEnforcer, lifecycle: Lifecycle) -> None:
        self._store = store
        self._clock = clock
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._lists: dict[_ListKey, _LiveList] = {}
        self._own: _Pool[Principal] = _Pool(lists_max=LIVE_LISTS_MAX)
        self._of_link: _Pool[PortalLinkId] = _Pool(lists_max=LIVE_LISTS_MAX, streams_max=LINK_STREAMS_MAX)
        self._of_links: _Pool[Principal] = _Pool(lists_max=PORTAL_LISTS_MAX, streams_max=PORTAL_STREAMS_MAX)
        self._turn = asyncio.Lock()

    @property
    def list_count(self) -> int:
        return len(self._lists)

    async def follow_list(
        self,
        caller: Caller,
        call_filter: CallFilter,
        *,
        limit: int,
        seconds: float,
        portal_link_id: PortalLinkId | None = None,
    ) -> AsyncGenerator[LiveCallPage | None]:
        """Yield the first page of the list at once and after each change, and None as a heartbeat.

        A slow viewer gets the latest page, and not those between. Ends after `seconds` or at the shutdown of the service.
        Viewers of a portal link use up nothing of their principal's own limits.
        Raises `QuotaExceeded` before the first page.
        """
        caller.require_scope(Scope.READ)
        key = _ListKey(caller.listed_principal, call_filter, limit)
        with self._count_viewer(caller, key, portal_link_id):
            followed = self._lists.get(key)
            if followed is None:
                followed = self._lists[key] = _LiveList(self._store, self._clock, key, self._turn)
            waiter = LocalWaiter()
            followed.waiters.add(waiter)
            self._lifecycle.shutdown_flag.add_callback(waiter.notify)
            try:
                async for page in self._read_pages(followed, waiter, seconds):
                    yield page
            finally:
                self._lifecycle.shutdown_flag.remove_callback(waiter.notify)
                followed.waiters.discard(waiter)
                if not followed.waiters:
                    self._lists.pop(key, None)
                    await followed.aclose()

    async def _read_pages(
        self, followed: "_LiveList", waiter: LocalWaiter, seconds: float
    ) -> AsyncGenerator[LiveCallPage | None]:
        ends_at = self._clock.monotonic() + seconds
        heartbeat_at = self._clock.monotonic() + HEARTBEAT_SECONDS
        seen: LiveCallPage | None = None
        while not self._lifecycle.shutdown_flag.is_set() and (now := self._clock.monotonic()) < ends_at:
            is_new = followed.page is not seen
            if not is_new and now < heartbeat_at:
                await waiter.wait(min(heartbeat_at, ends_at) - now)
                continue
            seen = followed.page
            yield seen if is_new else None
            heartbeat_at = self._clock.monotonic() + HEARTBEAT_SECONDS

    @contextmanager
    def _count_viewer(self, caller: Caller, key: _ListKey, portal_link_id: PortalLinkId | None) -> Generator[None]:
        if portal_link_id is not None:
            with self._of_link.count(portal_link_id, key), self._of_links.count(caller.principal, key):
                yield
            return
        viewer = caller.principal if caller.operator is None else caller.operator.principal
        with self._quotas.open_stream(viewer, key_id=caller.key_id), self._own.count(viewer, key):
            yield


class _Pool(Generic[Owner]):
    """Counts the lists and streams of each owner."""

    def __init__(self, *, lists_max: int, streams_max: int | None = None) -> None:
        self._lists_max = lists_max
        self._streams_max = streams_max
        self._keys: defaultdict[Owner, Counter[_ListKey]] = defaultdict(Counter)

    @contextmanager
    def count(self, owner: Owner, key: _ListKey) -> Generator[None]:
        """Count one stream of this list until the context ends. Raises `QuotaExceeded`."""
        self._require_free(self._keys.get(owner, Counter()), key)
        keys = self._keys[owner]
        keys[key] += 1
        try:
            yield
        finally:
            keys[key] -= 1
            if not keys[key]:
                del keys[key]
            if not keys:
                self._keys.pop(owner, None)

    def _require_free(self, keys: Counter[_ListKey], key: _ListKey) -> None:
        if key not in keys and len(keys) >= self._lists_max:
            raise _too_many("lists", self._lists_max)
        if self._streams_max is not None and keys.total() >= self._streams_max:
            raise _too_many("pages", self._streams_max)


def _too_many(what: str, limit: int) -> QuotaExceeded:
    return QuotaExceeded(
        f"You follow {limit} {what} already. Close a page, or reload this one to see what changed.",
        retry_after_seconds=round(HEARTBEAT_SECONDS),
        quota=f"live_{what}",
        limit=limit,
    )


class _LiveList:
    """One list, while viewers follow it."""

    def __init__(self, store: Store, clock: Clock, key: _ListKey, turn: asyncio.Lock) -> None:
        self.page: LiveCallPage | None = None
        self.waiters: set[LocalWaiter] = set()
        self._store = store
        self._clock = clock
        self._key = key
        self._turn = turn
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
                    await self._refresh()
                except StoreUnavailable:
                    log.debug("live_calls.not_read")
                except Exception:  # a bug must not leave pages that are open and never change
                    log.exception("live_calls.not_read")
                await self._clock.sleep(REFRESH_SECONDS)
                await waiter.wait(REREAD_SECONDS)

    async def _refresh(self) -> None:
        async with self._turn:
            began = self._clock.monotonic()
            page = await self._read_page()
            has_more = page.next_position is not None
            if self.page is None or list(page) != list(self.page.calls) or has_more != self.page.has_more:
                self.page = LiveCallPage(calls=list(page), has_more=has_more)
                for waiter in self.waiters:
                    waiter.notify()
            await self._clock.sleep(min((self._clock.monotonic() - began) * REST_FACTOR, REST_SECONDS_MAX))

    async def _read_page(self) -> Page[Call, str]:
        principal, call_filter, limit = self._key
        return await self._store.scan(
            principal, lambda tx: tx.calls.list_page(principal, call_filter, position=None, limit=limit)
        )
