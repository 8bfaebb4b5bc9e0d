"""Collects what came of attempts and writes it down together."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ringback.domain.delivery import AttemptCategory, DeliveryUpdate
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.notifier.batcher import Batcher
from ringback.notifier.settlement import FinishedAttempt, AttemptRecorder

log = logging.getLogger(__name__)

_LOGGED_IDS_MAX: Final = 10
"""Of what could not be settled, in one line of the log."""


class AttemptBatcher:
    """Settling never fails for whoever adds: what cannot be written down runs out with its lease, and is sent again."""

    def __init__(self, *, store: Store, recorder: AttemptRecorder, on_recorded: Callable[[FinishedAttempt], None]) -> None:
        self._on_recorded = on_recorded
        self._batcher = Batcher(store=store, write_batch=recorder.record_attempts, on_written=self._handle_written, on_failed=self._handle_failure)

    def submit(self, outcome: FinishedAttempt) -> None:
        self._batcher.submit(outcome)

    async def drain(self) -> None:
        """Return when everything that was added is written down."""
        await self._batcher.drain()

    def _handle_written(self, batch: Sequence[FinishedAttempt], recorded: Sequence[tuple[FinishedAttempt, DeliveryUpdate]]) -> None:
        _log_attempts(batch, recorded)
        for outcome in batch:
            self._on_recorded(outcome)

    def _handle_failure(self, batch: Sequence[FinishedAttempt], error: Exception) -> None:
        bug = None if isinstance(error, StoreUnavailable) else error
        extra = {"count": len(batch), "delivery_ids": [outcome.delivery.id for outcome in batch[:_LOGGED_IDS_MAX]]}
        log.log(logging.ERROR if bug else logging.WARNING, "deliveries.not_settled", extra=extra, exc_info=bug)
        for outcome in batch:
            self._on_recorded(outcome)


def _log_attempts(batch: Sequence[FinishedAttempt], recorded: Sequence[tuple[FinishedAttempt, DeliveryUpdate]]) -> None:
    """One line an attempt, with what became of the delivery folded into it; what went well is told to who asks for it."""
    updates_by_id = {outcome.delivery.id: each for outcome, each in recorded}
    for outcome in batch:
        attempt, answer = outcome.attempt, outcome.result
        level = logging.DEBUG if answer.category is AttemptCategory.DELIVERED else logging.INFO
        if not log.isEnabledFor(level):
            continue
        update = updates_by_id.get(outcome.delivery.id)
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
                "state": "lease_lost" if update is None else str(update.state),
            },
        )
