"""Notices that a service has had nothing to do for a while: no client, no open call and no delivery to send."""

import logging
from collections.abc import Callable
from typing import Final

from ringback.domain.call import CallStatus
from ringback.domain.clock import Clock
from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 5.0
"""Below the time for which a server keeps an idle connection open, so that a client that asks now and then is noticed."""


class IdleWatch:
    def __init__(
        self, store: Store, *, clock: Clock, count_connections: Callable[[], int], idle_seconds: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._count_connections = count_connections
        self._idle_seconds = idle_seconds

    async def wait_until_idle(self) -> None:
        """Wait until every check of the last `idle_seconds` has found nothing to do."""
        busy_at = self._clock.monotonic()
        while self._clock.monotonic() - busy_at < self._idle_seconds:
            await self._clock.sleep(min(CHECK_SECONDS, self._idle_seconds))
            if await self._has_work():
                busy_at = self._clock.monotonic()
        log.info("service.idle", extra={"after_seconds": self._idle_seconds})

    async def _has_work(self) -> bool:
        """A store that does not answer now may have work."""
        if self._count_connections():
            return True
        try:
            totals = await self._store.read(lambda tx: tx.usage.count_totals())
        except StoreUnavailable:
            return True
        calls = sum(totals.calls.get(status, 0) for status in (CallStatus.WORKING, CallStatus.INPUT_REQUIRED))
        deliveries = sum(
            totals.open_deliveries.get(state, 0) for state in (DeliveryState.PENDING, DeliveryState.LEASED)
        )
        return bool(calls or deliveries)
