"""The logs for which events of upstreams are lost, because the quota `event_bytes` of their principals is used up.

    quota used up ──▶ a gap; the events of this page and of the next ones are lost ──▶ quota free ──▶ a gap, then the events

An upstream cannot be asked to keep an event, so an event beyond the quota is lost as one that its upstream has lost: readers
learn the two places, and the first gap comes at once. The state is in memory. If another node begins to follow the upstream
meanwhile, and the quota is free again at that moment, the second gap is missing.
"""

from enum import Enum, auto
from functools import partial
from typing import Final, Protocol

from ringback.domain.clock import Clock
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.upstreams.events.occurrences import FollowedEvents

RECHECK_SECONDS: Final = 60.0
"""How long events are lost at least: an event that expires frees the quota for one, and a gap for each would fill the log."""


class EventQuota(Protocol):
    async def has_free_event_quota(self, tx: Transaction, principal: Principal) -> bool:
        """Whether events of upstreams fit into the log of this principal."""
        ...


class PageDecision(Enum):
    """What becomes of a page of events in the log of one principal."""

    RECORDED = auto()
    LOST_FROM_NOW = auto()
    LOST = auto()
    RECORDED_AGAIN = auto()

    @property
    def has_gap(self) -> bool:
        return self in {PageDecision.LOST_FROM_NOW, PageDecision.RECORDED_AGAIN}

    @property
    def is_lost(self) -> bool:
        return self in {PageDecision.LOST_FROM_NOW, PageDecision.LOST}


class FullLogs:
    def __init__(self, quota: EventQuota, *, clock: Clock) -> None:
        self._quota = quota
        self._clock = clock
        self._recheck_at: dict[tuple[FollowedEvents, Principal], float] = {}
        """When the quota is read again, for each log that loses the events of a following."""

    def forget_demand(self, followed: FollowedEvents | None = None) -> None:
        """No client demands these events any more; None: another node may have followed all of them meanwhile."""
        for key in [key for key in self._recheck_at if followed in {None, key[0]}]:
            del self._recheck_at[key]

    async def decide_page(self, tx: Transaction, followed: FollowedEvents, principal: Principal) -> PageDecision:
        """What becomes of the next page. A unit of work that does not commit has decided nothing."""
        key, now = (followed, principal), self._clock.monotonic()
        recheck_at = self._recheck_at.get(key)
        if recheck_at is not None and now < recheck_at:
            return PageDecision.LOST
        if await self._quota.has_free_event_quota(tx, principal):
            if recheck_at is None:
                return PageDecision.RECORDED
            tx.on_commit(partial(self._record_again, key))
            return PageDecision.RECORDED_AGAIN
        tx.on_commit(partial(self._recheck_at.update, {key: now + RECHECK_SECONDS}))
        return PageDecision.LOST_FROM_NOW if recheck_at is None else PageDecision.LOST

    def _record_again(self, key: tuple[FollowedEvents, Principal]) -> None:
        self._recheck_at.pop(key, None)  # the following may have ended meanwhile
