"""Readiness: whether the store can store a call."""

import asyncio
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store

WRITE_CHECK_TTL_SECONDS: Final = 1.0
"""How long a result stays valid: any number of probes causes at most one write per second."""


class WriteHealthCheck:
    """Checks with a real write whether the store can store a call. Concurrent checks share one write."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._check_task: asyncio.Task[str | None] | None = None
        self._checked_at = 0.0

    async def require_writable(self) -> None:
        """Raise `StoreUnavailable` with the reason if the store cannot store a call."""
        if self._check_task is None or (self._check_task.done() and not self._is_fresh()):
            self._check_task = asyncio.create_task(self._run_check(), name="write-check")
        problem = await asyncio.shield(self._check_task)
        if problem is not None:
            raise StoreUnavailable(problem)

    def _is_fresh(self) -> bool:
        return self._clock.monotonic() - self._checked_at < WRITE_CHECK_TTL_SECONDS

    async def _run_check(self) -> str | None:
        try:
            await self._store.write(lambda tx: tx.write_probe.write_probe_row())
        except StoreUnavailable as problem:
            return problem.detail
        finally:
            self._checked_at = self._clock.monotonic()
        return None
