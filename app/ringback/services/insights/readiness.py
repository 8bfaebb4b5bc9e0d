"""Readiness: whether the store can store a call, and what other nodes lack. Probes need no key and have no rate limit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store

T = TypeVar("T")

CHECK_TTL_SECONDS: Final = 1.0
"""How long a result stays valid: any number of probes causes at most one write, and one of each read, per second."""


class SharedCheck(Generic[T]):
    """Runs a check at most once a second. Concurrent callers share one run; a check that raised is not kept."""

    def __init__(self, run: Callable[[], Awaitable[T]], *, clock: Clock) -> None:
        self._run = run
        self._clock = clock
        self._task: asyncio.Task[T] | None = None
        self._checked_at = 0.0

    async def get_result(self) -> T:
        """Raises what the check raises."""
        if self._task is None or (self._task.done() and not self._is_valid(self._task)):
            self._task = asyncio.create_task(self._run_check(), name="readiness-check")
        return await asyncio.shield(self._task)

    def _is_valid(self, task: asyncio.Task[T]) -> bool:
        is_kept = not task.cancelled() and task.exception() is None
        return is_kept and self._clock.monotonic() - self._checked_at < CHECK_TTL_SECONDS

    async def _run_check(self) -> T:
        result = await self._run()
        self._checked_at = self._clock.monotonic()
        return result


class WriteHealthCheck:
    """Checks with a real write whether the store can store a call."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._check = SharedCheck(self._find_problem, clock=clock)

    async def require_writable(self) -> None:
        """Raise `StoreUnavailable` with the reason if the store cannot store a call."""
        problem = await self._check.get_result()
        if problem is not None:
            raise StoreUnavailable(problem)

    async def _find_problem(self) -> str | None:
        try:
            await self._store.write(lambda tx: tx.write_probe.write_probe_row())
        except StoreUnavailable as problem:
            return problem.detail
        return None
