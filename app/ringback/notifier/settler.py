"""Collects what came of attempts and writes it down together."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ringback.domain.delivery import Category, Settled
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.notifier.batcher import Batcher
from ringback.notifier.settlement import Outcome, Settlement

log = logging.getLogger(__name__)

_NAMED_MAX: Final = 10
"""Of what could not be settled, in one line of the log."""


class Settler:
    """Settling never fails for whoever adds: what cannot be written down runs out with its lease, and is sent again."""

    def __init__(self, *, store: Store, settlement: Settlement, on_settled: Callable[[Outcome], None]) -> None:
        self._on_settled = on_settled
        self._batcher = Batcher(store=store, work=settlement.settle, written=self._written, refused=self._refused)

    def add(self, outcome: Outcome) -> None:
        self._batcher.add(outcome)

    async def drain(self) -> None:
        """Return when everything that was added is written down."""
        await self._batcher.drain()

    def _written(self, batch: Sequence[Outcome], settled: Sequence[tuple[Outcome, Settled]]) -> None:
        _report(batch, settled)
        for outcome in batch:
            self._on_settled(outcome)

    def _refused(self, batch: Sequence[Outcome], error: Exception) -> None:
        bug = None if isinstance(error, StoreUnavailable) else error
        extra = {"count": len(batch), "delivery_ids": [outcome.delivery.id for outcome in batch[:_NAMED_MAX]]}
        log.log(logging.ERROR if bug else logging.WARNING, "deliveries.not_settled", extra=extra, exc_info=bug)
        for outcome in batch:
            self._on_settled(outcome)


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
