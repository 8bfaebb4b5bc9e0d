"""Erases what is erased on request, in turns between principals.

    erasing   ──▶ a batch in every round
    waiting   ──▶ a look in every interval, to see whether its calls have ended ──▶ erasing

A waiting erasure delays none that can go on. One principal can have thousands that wait: `LOOKS_MAX` bounds the looks in an
interval, and principals take turns, so the erasure of another principal is looked at after one of them.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from ringback.domain.erasure import Erasure
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.janitor.config import MaintenanceTask
from ringback.notifier.recorder import Recorder
from ringback.services.erasure_batches import erase_batch

LOOKS_MAX: Final = 20
"""Looks at waiting erasures in one interval. Each is a transaction that writes."""


class ErasureTasks:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._last_erased: Principal | str = ""
        self._last_looked_at: Principal | str = ""
        self._looks = 0
        """In this interval."""
        self._looks_began_at: datetime | None = None
        self.tasks: Sequence[MaintenanceTask] = (self._look_at_waiting, self._erase)

    async def _look_at_waiting(self, tx: Transaction) -> bool:
        """Look at one erasure that waits for calls. `_erase` goes on with it if they have ended."""
        erasure = None
        if self._looks < LOOKS_MAX:
            erasure = await tx.erasures.find_waiting(after=self._last_looked_at, worked_before=self._looks_began_at)
        tx.on_commit(partial(self._note_look, erasure, tx.now()))
        if erasure is None:
            return False
        await erase_batch(tx, self._recorder, erasure)
        return True

    def _note_look(self, erasure: Erasure | None, looked_at: datetime) -> None:
        if erasure is None:
            self._looks, self._looks_began_at = 0, None
            return
        self._looks += 1
        self._looks_began_at = self._looks_began_at or looked_at
        self._last_looked_at = erasure.principal

    async def _erase(self, tx: Transaction) -> bool:
        """Erase a batch of the erasure that has waited longest, of the next principal."""
        erasure = await tx.erasures.find_next(after=self._last_erased)
        if erasure is None:
            return False
        await erase_batch(tx, self._recorder, erasure)
        tx.on_commit(partial(self._note_batch, erasure))
        return True

    def _note_batch(self, erasure: Erasure) -> None:
        self._last_erased = erasure.principal
