"""Collects what came of attempts and writes it down together: one unit of work for all that ended since the last one began."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ringback.domain.delivery import Category, Settled
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.notifier.settlement import Outcome, Settlement

log = logging.getLogger(__name__)

SETTLED_AT_ONCE: Final = 128
"""As many rows as one commit takes where larger ones stop paying (measured: 100 reach nine tenths of the limit)."""


class Settler:
    """Settling never fails for whoever adds: what cannot be written down runs out with its lease, and is sent again."""

    def __init__(self, *, store: Store, settlement: Settlement, on_settled: Callable[[Outcome], None]) -> None:
        self._store = store
        self._settlement = settlement
        self._on_settled = on_settled
        self._waiting: deque[Outcome] = deque()
        self._units: set[asyncio.Task[None]] = set()
        self._asked = False
        """Whether a unit of work waits for its turn; it will take along what comes until then."""

    def add(self, outcome: Outcome) -> None:
        self._waiting.append(outcome)
        self._ask()

    async def drain(self) -> None:
        """Return when everything that was added is written down."""
        while self._units:
            await asyncio.wait(self._units)

    def _ask(self) -> None:
        if self._waiting and not self._asked:
            self._asked = True
            unit = asyncio.create_task(self._write())
            self._units.add(unit)
            unit.add_done_callback(self._units.discard)

    async def _write(self) -> None:
        batch: list[Outcome] = []

        async def settle(tx: Transaction) -> Sequence[tuple[Outcome, Settled]]:
            self._take(batch)
            return await self._settlement.settle(tx, batch)

        try:
            _report(batch, await self._store.write(settle))
        except StoreUnavailable:
            if not batch:  # it was refused before its turn came
                self._take(batch)
            log.warning("deliveries.not_settled", extra={"count": len(batch)})
        except Exception:  # the boundary between a bug with one delivery and the others of its batch
            log.exception("deliveries.settling_failed", extra={"count": len(batch)})
            await self._one_by_one(batch)
        for outcome in batch:
            self._on_settled(outcome)

    def _take(self, batch: list[Outcome]) -> None:
        """Move what is there into the batch. Asked again, when a unit is run again, it takes along what has come since."""
        self._asked = False
        while self._waiting and len(batch) < SETTLED_AT_ONCE:
            batch.append(self._waiting.popleft())
        self._ask()

    async def _one_by_one(self, batch: Sequence[Outcome]) -> None:
        for outcome in batch:
            try:
                _report([outcome], await self._store.write(partial(self._settlement.settle, outcomes=[outcome])))
            except Exception:  # the same boundary: this one's lease runs out
                log.exception("delivery.not_settled", extra={"delivery_id": outcome.delivery.id})


def _report(batch: Sequence[Outcome], settled: Sequence[tuple[Outcome, Settled]]) -> None:
    """One line an attempt, with what became of the delivery folded into it; what went well is told to who asks for it."""
    became = {outcome.delivery.id: each for outcome, each in settled}
    for outcome in batch:
        attempt, answer = outcome.attempt, outcome.answer
        level = logging.DEBUG if answer.category is Category.DELIVERED else logging.INFO
        if not log.isEnabledFor(level):
            continue
        held = became.get(outcome.delivery.id)
        log.log(
            level,
            "delivery.attempted",
            extra={
                "delivery_id": outcome.delivery.id,
                "webhook_id": outcome.delivery.webhook_id,
                "message_id": outcome.delivery.message_id,
                "number": attempt.number,
                "category": str(answer.category),
                "status_code": answer.status_code,
                "duration_ms": attempt.duration_ms,
                "state": "lease_lost" if held is None else str(held.state),
            },
        )
