"""Runs the janitor's tasks in rounds."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.suspension import FREEZE_SECONDS, SuspensionWatch
from ringback.janitor.config import JanitorConfig, MaintenanceTask
from ringback.janitor.recovery import RecoveryTasks
from ringback.janitor.removal import RemovalTasks
from ringback.janitor.webhook_upkeep import WebhookTasks
from ringback.notifier.recorder import Recorder
from ringback.waits import wait_first

log = logging.getLogger(__name__)

ROUND_PAUSE_SECONDS: Final = 0.02
"""The pause between two rounds while there is more to do. It leaves most of the writer's time to the service."""
SCHEDULING_TIME_SAVE_SECONDS: Final = 60.0
"""How far scheduling time may fall back if the clock is set back before the next process starts."""


class Janitor:
    name = "janitor"

    def __init__(self, *, store: Store, recorder: Recorder, clock: Clock, config: JanitorConfig) -> None:
        self._store = store
        self._clock = clock
        self._config = config
        self._suspensions = SuspensionWatch(clock)
        self._next_task = 0
        self._saved_scheduling_time: datetime | None = None
        self._tasks: Sequence[MaintenanceTask] = (
            *RecoveryTasks(recorder, config, self._suspensions).tasks,
            *WebhookTasks(recorder, config).tasks,
            *RemovalTasks(recorder, config).tasks,
            self._save_scheduling_time,
        )

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                more = await self.run_once()
            except StoreUnavailable:
                log.debug("janitor.store_unavailable")
                self._suspensions.note_outage()
                more = False
            await self._pause(ROUND_PAUSE_SECONDS if more else self._config.interval_seconds, stop)

    async def _pause(self, pause_seconds: float, stop: asyncio.Event) -> None:
        ends_at = self._clock.monotonic() + pause_seconds
        await wait_first(stop.wait(), self._clock.sleep(pause_seconds))
        if self._clock.monotonic() - ends_at > FREEZE_SECONDS:
            self._suspensions.note_freeze()

    async def run_once(self) -> bool:
        """Run one batch of every task; returns whether any task has more to do.

        If a task raises, the next round begins with the task after it.
        """
        has_more = False
        for _ in self._tasks:
            task = self._tasks[self._next_task % len(self._tasks)]
            self._next_task += 1
            has_more |= await self._store.write(task)
        return has_more

    async def _save_scheduling_time(self, tx: Transaction) -> bool:
        """Save it once a minute: an idle service writes nothing else."""
        last, now = self._saved_scheduling_time, tx.now()
        if last is None or now - last >= seconds(SCHEDULING_TIME_SAVE_SECONDS):
            await tx.scheduling_time.save(now)

            def remember() -> None:
                self._saved_scheduling_time = now

            tx.on_commit(remember)
        return False
