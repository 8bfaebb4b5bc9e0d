"""Restarts workers that fail, and stops all workers in order.

A worker that raises has a bug, also if it raises a cancellation that is not its own. The supervisor logs the traceback,
readiness fails, and the worker starts again after a pause that doubles up to a minute; the other workers and the HTTP server go
on. Readiness recovers when the worker has run for as long as its last pause. At shutdown the supervisor stops the workers one
after the other in the order given and waits for each: first the runner, which creates work, then the dispatcher, which carries
it out, last the janitor.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from ringback.backoff import Backoff
from ringback.domain.clock import Clock
from ringback.waits import wait_first

log = logging.getLogger(__name__)

RESTART_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)


class Worker(Protocol):
    @property
    def name(self) -> str: ...

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish the work in progress and return."""
        ...


class Supervisor:
    def __init__(self, workers: Sequence[Worker], *, clock: Clock) -> None:
        self._workers = workers
        self._clock = clock
        self._failing_workers: set[str] = set()
        self._running_workers: set[str] = set()

    def failing_workers(self) -> frozenset[str]:
        """The names of the workers that wait for a restart or were restarted a moment ago."""
        return frozenset(self._failing_workers)

    def running_workers(self) -> frozenset[str]:
        """The names of the workers that have not ended."""
        return frozenset(self._running_workers)

    async def run(self, stop: asyncio.Event) -> None:
        stops = {worker.name: asyncio.Event() for worker in self._workers}
        async with asyncio.TaskGroup() as group:
            tasks = {
                worker.name: group.create_task(self._supervise_worker(worker, stops[worker.name]))
                for worker in self._workers
            }
            await stop.wait()
            for worker in self._workers:
                stops[worker.name].set()
                await tasks[worker.name]

    async def _supervise_worker(self, worker: Worker, stop: asyncio.Event) -> None:
        self._running_workers.add(worker.name)
        try:
            await self._run_with_restarts(worker, stop)
        finally:
            self._running_workers.discard(worker.name)

    async def _run_with_restarts(self, worker: Worker, stop: asyncio.Event) -> None:
        failures, delay = 0, 0.0
        while not stop.is_set():
            began = self._clock.monotonic()
            try:
                if worker.name in self._failing_workers:
                    await self._run_restarted(worker, stop, healthy_after=delay)
                else:
                    await worker.run(stop)
            except (Exception, asyncio.CancelledError) as error:  # a bug in one worker must not end the service
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                log.exception("worker.failed", extra={"worker": worker.name})
                self._failing_workers.add(worker.name)
                lasted = self._clock.monotonic() - began
                failures = failures + 1 if lasted <= RESTART_BACKOFF.longest_seconds else 1
                delay = RESTART_BACKOFF.pause_seconds(failures)
                await wait_first(stop.wait(), self._clock.sleep(delay))

    async def _run_restarted(self, worker: Worker, stop: asyncio.Event, *, healthy_after: float) -> None:
        """Run the worker; once it has run for `healthy_after` seconds, it counts as healthy."""
        async with asyncio.TaskGroup() as group:
            recovery = group.create_task(self._mark_healthy_after(worker.name, healthy_after))
            try:
                await worker.run(stop)
            finally:
                recovery.cancel()

    async def _mark_healthy_after(self, name: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._failing_workers.discard(name)


def _is_cancelled() -> bool:
    """Whether the current task is. Otherwise a cancellation is that of something else that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
