"""Records when clients came back for their calls, in batches and after the response."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ringback.domain.call import Call
from ringback.domain.call_resumes import CallResume, ResumeSurface, fit_resumes
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.telemetry.logs import call_facts
from ringback.waits import LocalWaiter, wait_first

log = logging.getLogger(__name__)

PENDING_RESUMES_MAX: Final = 10_000
"""Rows that wait to be written, some 3 MB. Beyond them resumes are not recorded."""
RESUME_BATCH_SIZE: Final = 500
"""Rows that one transaction writes: some ten milliseconds of the only writer's time."""
WRITE_INTERVAL_SECONDS: Final = 1.0
"""Between two batches: resumes of a call within this time, by the same interface, are one row."""


class CallResumeRecorder:
    """Implements `supervisor.Worker`."""

    name = "resume recorder"

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pending: dict[tuple[CallId, ResumeSurface], CallResume] = {}
        self._waiter = LocalWaiter()

    def record_resume(self, call: Call, surface: ResumeSurface) -> None:
        """Count a resume of this call now. It is written later; a crash can lose it."""
        self._count_resume(call, surface, logging.INFO)

    def record_read(self, call: Call, surface: ResumeSurface) -> None:
        """The same for a read of the call by its client, which is a resume if the call has ended."""
        if call.is_final:
            self._count_resume(call, surface, logging.DEBUG)  # some clients poll a result all day

    def _count_resume(self, call: Call, surface: ResumeSurface, log_level: int) -> None:
        key = call.id, surface
        if (waiting := self._pending.get(key)) is not None:
            self._pending[key] = replace(waiting, resumes=waiting.resumes + 1)
        elif len(self._pending) < PENDING_RESUMES_MAX:
            self._pending[key] = CallResume(call_id=call.id, resumed_at=self._clock.now(), surface=surface)
            log.log(log_level, "call.resumed", extra={**call_facts(call), "surface": str(surface)})
        self._waiter.notify()

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await wait_first(stop.wait(), self._waiter.wait())
            await self.write_pending()
            await wait_first(stop.wait(), self._clock.sleep(WRITE_INTERVAL_SECONDS))
        await self.write_pending()

    async def write_pending(self) -> None:
        """Write the resumes that wait. Those of a batch that the store refuses are lost."""
        pending, self._pending = list(self._pending.values()), {}
        for start in range(0, len(pending), RESUME_BATCH_SIZE):
            batch = pending[start : start + RESUME_BATCH_SIZE]
            try:
                await self._store.write(lambda tx, batch=batch: _add_resumes(tx, batch))
            except StoreUnavailable:
                log.warning("resumes.not_recorded", extra={"count": len(batch)})


async def _add_resumes(tx: Transaction, batch: Sequence[CallResume]) -> None:
    stored = await tx.call_resumes.list_of_calls({resume.call_id for resume in batch})
    await tx.call_resumes.add(fit_resumes(stored, batch))
