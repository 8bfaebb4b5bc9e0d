"""Runs the janitor's tasks in rounds."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from functools import wraps
from typing import Any, Final

from ringback.asyncio_tasks import end_tasks
from ringback.domain.clock import Clock, format_iso, seconds
from ringback.domain.clock_confirmation import latest_of_right_clock
from ringback.domain.errors import RowsLocked, StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.retry import RETRY_PAUSE_SECONDS_MAX
from ringback.domain.suspension import FREEZE_SECONDS, SuspensionWatch
from ringback.domain.upkeep import Upkeep
from ringback.janitor.config import BatchRows, JanitorConfig, MaintenanceTask
from ringback.janitor.erasing import ErasureTasks
from ringback.janitor.recovery import RESUME_GRACE_SECONDS, RecoveryTasks
from ringback.janitor.removal import RemovalTasks
from ringback.janitor.webhook_upkeep import WebhookTasks
from ringback.measurements import Measurements
from ringback.notifier.recorder import Recorder
from ringback.waits import wait_first

log = logging.getLogger(__name__)

ROUND_PAUSE_SECONDS: Final = 0.005
"""The shortest pause between two rounds while there is more to do."""
ROUND_PAUSE_SECONDS_MAX: Final = 1.0
ROUND_PAUSE_SHARE: Final = 1.0
"""The pause as a multiple of the round before it: the service has half of the writer's time, also on a slow disk and on a busy
machine."""
SLOW_TASK_REST_SECONDS: Final = 4 * RESUME_GRACE_SECONDS
"""How long a task has no turn after one that took long until the store refused it, as PostgreSQL ends a slow statement. Each
counts as an outage, so no lease would ever expire if such a turn came in every interval. The next one has half as many rows."""
SCHEDULING_TIME_SAVE_SECONDS: Final = 60.0
"""How far scheduling time may fall back if the clock is set back before the next process starts."""


class Janitor:
    name = "janitor"

    def __init__(
        self, *, store: Store, recorder: Recorder, measurements: Measurements, clock: Clock, config: JanitorConfig
    ) -> None:
        self._store = store
        self._clock = clock
        self._config = config
        self._batch = batch = BatchRows(config.batch_size)
        self._suspensions = SuspensionWatch(clock)
        self._next_task = 0
        self._rests_until: dict[str, float] = {}
        """By the names of tasks: until when they have no turn."""
        self._saved_scheduling_time: datetime | None = None
        self._was_confirmed = True
        self._tasks: Sequence[MaintenanceTask] = (
            MaintenanceTask(self._try_to_write, {Upkeep.CALL_LEASES: 0.0}),
            *RecoveryTasks(recorder, config, batch, self._suspensions).tasks,
            *WebhookTasks(recorder, measurements, batch).tasks,
            *ErasureTasks(recorder, batch).tasks,
            *RemovalTasks(recorder, config.retention, batch).tasks,
            MaintenanceTask(self._save_scheduling_time),
        )

    async def run(self, stop: asyncio.Event) -> None:
        self._suspensions.note_start()
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                try:
                    more = await self._run_interval(stop, stopping)
                except StoreUnavailable:
                    log.debug("janitor.store_unavailable")
                    self._suspensions.note_outage()
                    more = False
                if not more:
                    await self._pause(self._config.interval_seconds, stopping)
        finally:
            await end_tasks([stopping])

    async def _run_interval(self, stop: asyncio.Event, stopping: asyncio.Future[Any]) -> bool:
        """Run every task, and then, until the next interval, those that have more to do. Return whether any still has."""
        began_at = self._clock.monotonic()
        ends_at = began_at + self._config.interval_seconds
        busy = await self._run_every_task()
        while busy and not stop.is_set():
            now = self._clock.monotonic()
            pause_seconds = ROUND_PAUSE_SHARE * (now - began_at)
            await self._pause(min(max(pause_seconds, ROUND_PAUSE_SECONDS), ROUND_PAUSE_SECONDS_MAX), stopping)
            if now >= ends_at:
                return True
            began_at = self._clock.monotonic()
            busy = [task for task in busy if await self._run_task(task)]
        return False

    async def _pause(self, pause_seconds: float, stopping: asyncio.Future[Any]) -> None:
        ends_at = self._clock.monotonic() + pause_seconds
        await wait_first(asyncio.shield(stopping), self._clock.sleep(pause_seconds))
        if self._clock.monotonic() - ends_at > FREEZE_SECONDS:
            self._suspensions.note_freeze()

    async def run_once(self) -> bool:
        """Run one batch of every task that may have work; returns whether any task has more to do.

        If a task raises, the next round begins with the task after it.
        """
        return bool(await self._run_every_task())

    async def _run_every_task(self) -> list[MaintenanceTask]:
        """Run one batch of every task that may have work; returns those that have more to do.

        One task's work may make work for another one, so those that are left are looked at again.
        """
        busy: list[MaintenanceTask] = []
        left = [*self._tasks[self._next_task :], *self._tasks[: self._next_task]]
        while due := await self._find_due(left):
            for task in due:
                self._next_task = (self._tasks.index(task) + 1) % len(self._tasks)
                if await self._run_task(task):
                    busy.append(task)
            left = [task for task in left if task not in due and task.needs is not None]
            if all(task.needs is None for task in due):
                break
        return busy

    async def _run_task(self, task: MaintenanceTask) -> bool:
        """Run one batch of the task. On SQLite its unit waits behind a commit for as long as the disk stands still.

        A row that stays locked costs the task its turn. Holders extend their leases meanwhile, because that waits for no row.
        So does a unit for which alone the store is unavailable: it reads a damaged page, or needs more space than the disk has.
        Raises `StoreUnavailable` if a small unit finds the same.
        """
        name = task.run.__name__
        asked_at = self._clock.monotonic()
        if asked_at < self._rests_until.get(name, 0.0):
            return False

        @wraps(task.run)  # the store names units after their function
        async def run(tx: Transaction) -> bool:
            self._note_wait_since(asked_at)
            return await task.run(tx)

        self._batch.begin(name)
        try:
            has_more = await self._store.write(run)
        except RowsLocked as error:
            log.warning("janitor.rows_locked", extra={"task": name})
            asked_at += error.waited_seconds
            return False
        except StoreUnavailable as error:
            if task.run == self._try_to_write:
                raise
            await self._store.write(self._try_to_write)
            log.debug("janitor.task_unavailable", extra={"task": name, "reason": error.detail})
            if self._took_long(asked_at):
                self._rests_until[name] = self._clock.monotonic() + SLOW_TASK_REST_SECONDS
                self._batch.reduce(name)
            return False
        else:
            self._batch.raise_again(name)
            return has_more
        finally:
            self._note_wait_since(asked_at)

    def _note_wait_since(self, asked_at: float) -> None:
        """If a unit takes long, no holder could extend its lease meanwhile, and the next unit may be the janitor's again."""
        if self._took_long(asked_at):
            self._suspensions.note_outage()

    def _took_long(self, asked_at: float) -> bool:
        return self._clock.monotonic() - asked_at > FREEZE_SECONDS

    async def _find_due(self, tasks: Sequence[MaintenanceTask]) -> Sequence[MaintenanceTask]:
        """Those that may have work. One unit asks for all of them: an idle node needs no unit for each.

        All of them, if that fails: a page that cannot be read stops the tasks that need it, and no others.
        """
        asked_at = self._clock.monotonic()

        async def find_due(tx: Transaction) -> Sequence[MaintenanceTask]:
            self._suspensions.note_time(tx.now())
            first = await tx.upkeep.find_first(
                due_after=tx.now() + seconds(RETRY_PAUSE_SECONDS_MAX), latest=latest_of_right_clock(tx.now())
            )
            return [task for task in tasks if task.may_have_work(first, tx.now())]

        try:
            return await self._store.read(find_due) if tasks else ()
        except StoreUnavailable:
            return tasks
        finally:
            self._note_wait_since(asked_at)

    async def _try_to_write(self, tx: Transaction) -> bool:
        """Once a lease has run out: whether its holder is dead, or no holder can write, as on a full disk (`note_outage`).

        A holder has until the end of the grace. The questions of an idle janitor write nothing, so they are answered.
        """
        await tx.scheduling_time.save(tx.confirmed_now())
        return False

    async def _save_scheduling_time(self, tx: Transaction) -> bool:
        """Save it once a minute: an idle service writes nothing else. While it is unconfirmed, confirmed time is saved."""
        last, now = self._saved_scheduling_time, tx.confirmed_now()
        self._note_confirmation(is_confirmed=now == tx.now())
        if last is None or now - last >= seconds(SCHEDULING_TIME_SAVE_SECONDS):
            await tx.scheduling_time.save(now)

            def remember() -> None:
                self._saved_scheduling_time = now

            tx.on_commit(remember)
        return False

    def _note_confirmation(self, *, is_confirmed: bool) -> None:
        if is_confirmed and not self._was_confirmed:
            log.info("clock.confirmed", extra={"clock": format_iso(self._clock.now())})
        self._was_confirmed = is_confirmed
