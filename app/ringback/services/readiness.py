"""Whether the service takes work: a real write shows it, at most once a second, however many ask."""

import asyncio
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store

WRITE_CHECK_TTL_SECONDS: Final = 1.0
"""How old an answer may be. Probes ask every few seconds; whoever asks a thousand times a second costs one write a second."""


class WriteHealthCheck:
    """Asks the store to keep something as large as a call. Those who ask meanwhile wait for the same write."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._check_task: asyncio.Task[str | None] | None = None
        self._checked_at = 0.0

    async def require_writable(self) -> None:
        """Raise `StoreUnavailable` with the reason unless a call would be kept."""
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
