"""Emitted events that wait in memory for a Ringback service: sent in their order, retried until they have arrived."""

import asyncio
import itertools
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ringback.backoff import JITTER_FRACTION, Backoff
from ringback.client import NewEvent
from ringback.domain.clock import Clock
from ringback.extension.report_outbox import ReportFailed, ReportRejected
from ringback.waits import wait_first

log = logging.getLogger(__name__)

WAITING_MAX: Final = 10_000
"""Events that wait. At a hundred a second, the service may be away for a minute and a half."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Their JSON. It is in this process's memory."""
BATCH_SIZE: Final = 100
"""Events of one request, as many as the service accepts."""
BATCH_BYTES_MAX: Final = 512 * 1024
"""Of one request with several events: half of the megabyte that common proxies accept. A refused batch would wait for ever."""
BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=60.0, jitter_fraction=JITTER_FRACTION)

SendEvents = Callable[[Sequence[NewEvent]], Awaitable[None]]
"""Sends a batch, all or none. Raises `ReportFailed` if a repeat may succeed, and `ReportRejected` if none can."""


class OutboxFull(Exception):
    """Too many events wait for the service."""


class EventOutbox:
    def __init__(self, send: SendEvents, *, clock: Clock, random_fraction: Callable[[], float]) -> None:
        self._send = send
        self._clock = clock
        self._random_fraction = random_fraction
        self._waiting: deque[tuple[NewEvent, int]] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._retry_now = asyncio.Event()
        """Ends the pause before the next attempt."""
        self._emptied = asyncio.Event()
        self._emptied.set()

    def submit_event(self, event: NewEvent) -> None:
        """Raises `OutboxFull`, and ValueError for NaN and infinity, which no request can have."""
        size = len(json.dumps(event, allow_nan=False))
        if len(self._waiting) >= WAITING_MAX or self._waiting_bytes + size > WAITING_BYTES_MAX:
            raise OutboxFull(
                f"{len(self._waiting)} events wait for the Ringback service, which cannot be reached. Emit this one later."
            )
        self._waiting.append((event, size))
        self._waiting_bytes += size
        self._emptied.clear()
        self._changed.set()

    async def run(self) -> None:
        """Send events until it is cancelled."""
        failures = 0
        while True:
            if not self._waiting:
                self._emptied.set()
                self._changed.clear()
                await self._changed.wait()
            batch = self._next_batch()
            try:
                await self._send_batch(batch)
            except ReportFailed as problem:
                failures += 1
                log.warning("events.not_published", extra={"events": len(self._waiting), "reason": str(problem)})
                pause_seconds = BACKOFF.pause_seconds(failures, random_fraction=self._random_fraction())
                await wait_first(self._retry_now.wait(), self._clock.sleep(pause_seconds))
                if self._retry_now.is_set():
                    self._retry_now.clear()
                    failures = 0
                continue
            failures = 0
            for _ in batch:
                self._waiting_bytes -= self._waiting.popleft()[1]

    def _next_batch(self) -> Sequence[NewEvent]:
        batch: list[NewEvent] = []
        batch_bytes = 0
        for event, size in itertools.islice(self._waiting, BATCH_SIZE):
            batch_bytes += size
            if batch and batch_bytes > BATCH_BYTES_MAX:
                break
            batch.append(event)
        return batch

    async def drain(self, timeout_seconds: float) -> None:
        """Send all events now, and wait until they have arrived, or the timeout is over."""
        self._retry_now.set()  # the pause may be a minute long
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._emptied.wait()
        except TimeoutError:
            log.exception("events.lost", extra={"events": len(self._waiting)})

    async def _send_batch(self, batch: Sequence[NewEvent]) -> None:
        """Send the batch; if it is rejected, send its events one by one, so that one of them does not take others along."""
        try:
            await self._send(batch)
        except ReportFailed:
            raise
        except Exception as problem:  # noqa: BLE001 - besides a rejection, a bug: it must not hold up the other events
            if len(batch) == 1:
                _log_loss(batch[0], problem)
                return
            for event in batch:
                await self._send_batch([event])


def _log_loss(event: NewEvent, problem: Exception) -> None:
    if isinstance(problem, ReportRejected):
        log.error("event.rejected", extra={"event_id": event.get("id"), "reason": str(problem)})
    else:
        log.error("event.lost", extra={"event_id": event.get("id")}, exc_info=problem)
