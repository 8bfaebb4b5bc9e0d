"""Carries out the erasures that were requested, in turns between principals.

    erasing   ──▶ a batch in every round
    waiting   ──▶ a check in every interval, whether its calls have ended ──▶ erasing

A waiting erasure delays none that can go on. One principal can have thousands that wait: `CHECKS_MAX` bounds the checks
in an interval, and principals take turns, so the erasure of another principal is checked after one of them.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from ringback.domain.erasure import Erasure
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.upkeep import Upkeep
from ringback.janitor.config import BatchRows, MaintenanceTask
from ringback.notifier.recorder import Recorder
from ringback.services.erasure_batches import ERASE_BATCH_SIZE, erase_batch

CHECKS_MAX: Final = 20
"""Checks of waiting erasures in one interval. Each is a transaction that writes."""


class ErasureTasks:
    def __init__(self, recorder: Recorder, batch: BatchRows) -> None:
        self._recorder = recorder
        self._batch = batch
        self._last_erased: Principal | str = ""
        self._last_checked: Principal | str = ""
        self._checks = 0
        """In this interval."""
        self._checks_began_at: datetime | None = None
        self.tasks: Sequence[MaintenanceTask] = (
            MaintenanceTask(self._check_waiting, {Upkeep.OPEN_ERASURES: None}),
            MaintenanceTask(self._erase, {Upkeep.OPEN_ERASURES: None}),
        )

    async def _check_waiting(self, tx: Transaction) -> bool:
        """Check one erasure that waits for calls. `_erase` goes on with it if they have ended."""
        erasure = None
        if self._checks < CHECKS_MAX:
            erasure = await tx.erasures.find_waiting(after=self._last_checked, worked_before=self._checks_began_at)
        tx.on_commit(partial(self._note_check, erasure, tx.now()))
        if erasure is None:
            return False
        await erase_batch(tx, self._recorder, erasure, rows_max=self._batch.at_most(ERASE_BATCH_SIZE))
        return True

    def _note_check(self, erasure: Erasure | None, checked_at: datetime) -> None:
        if erasure is None:
            self._checks, self._checks_began_at = 0, None
            return
        self._checks += 1
        self._checks_began_at = self._checks_began_at or checked_at
        self._last_checked = erasure.principal

    async def _erase(self, tx: Transaction) -> bool:
        """Erase a batch of the erasure that has waited longest, of the next principal."""
        erasure = await tx.erasures.find_next(after=self._last_erased)
        if erasure is None:
            return False
        await erase_batch(tx, self._recorder, erasure, rows_max=self._batch.at_most(ERASE_BATCH_SIZE))
        tx.on_commit(partial(self._note_batch, erasure))
        return True

    def _note_batch(self, erasure: Erasure) -> None:
        self._last_erased = erasure.principal
