"""Keeps webhooks going: held deliveries are released or given up; expired webhooks and abandoned subscriptions end."""

from collections.abc import Sequence
from typing import Final

from ringback.domain.ports import Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.upkeep import Upkeep
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.domain.webhook_rows import ExpiryPosition
from ringback.janitor.config import BatchRows, MaintenanceTask
from ringback.measurements import Measurements
from ringback.notifier.attempts import record_losses
from ringback.notifier.recorder import Recorder
from ringback.services.webhooks.subscription_ends import terminate_abandoned, terminate_of_keys
from ringback.services.webhooks.subscription_log import log_expired

RELEASE_WEBHOOKS_MAX: Final = 4
"""Webhooks in one batch, with up to as many deliveries each as `BatchRows` allows: some tens of milliseconds."""


class WebhookTasks:
    """Each task goes on from its cursor, which moves once its batch is committed."""

    def __init__(self, recorder: Recorder, measurements: Measurements, batch: BatchRows) -> None:
        self._recorder = recorder
        self._measurements = measurements
        self._batch = batch
        self._release_cursor = ""
        self._probe_cursor = ""
        self._failing_cursor: str | None = None
        self._expiry_cursor: ExpiryPosition | None = None
        self._key_cursor = ""
        self.tasks: Sequence[MaintenanceTask] = (
            MaintenanceTask(self._give_up_held_deliveries, {Upkeep.HELD_DELIVERIES: 0.0}),
            MaintenanceTask(self._release_held_deliveries, {Upkeep.HELD_DELIVERIES: None}),
            MaintenanceTask(self._probe_suspended_webhooks, {Upkeep.HELD_DELIVERIES: None}),
            MaintenanceTask(self._terminate_subscriptions, {Upkeep.SUBSCRIPTIONS: None}),
            MaintenanceTask(self._terminate_abandoned_subscriptions, {Upkeep.FAILING_WEBHOOKS: None}),
            MaintenanceTask(self._remove_expired_webhooks, {Upkeep.WEBHOOK_EXPIRIES: 0.0}),
        )

    async def _give_up_held_deliveries(self, tx: Transaction) -> bool:
        """Give up the held deliveries whose time is over. The gap delivery names the cursor from which to poll.

        The dispatcher gives up pending deliveries, after a last attempt.
        """
        given_up = await tx.delivery_maintenance.give_up_expired_held(now=tx.confirmed_now(), limit=self._batch.rows)
        await record_losses(tx, given_up, self._measurements)
        return bool(given_up)  # large ones may be left

    async def _release_held_deliveries(self, tx: Transaction) -> bool:
        """Release held deliveries of webhooks that are active again, one batch for each webhook."""
        limit = self._batch.at_most(RELEASE_BATCH_SIZE)
        active = await tx.delivery_maintenance.list_webhooks_to_release(
            limit=RELEASE_WEBHOOKS_MAX, after=self._release_cursor
        )
        released = [
            await tx.webhook_deliveries.release_held(webhook_id, now=tx.now(), limit=limit) for webhook_id in active
        ]
        if any(released):
            tx.notify(DELIVERY_DUE_TOPIC)
        is_full = limit in released
        position = self._release_cursor if is_full else active.next_position

        def advance_cursor() -> None:
            self._release_cursor = position or ""

        tx.on_commit(advance_cursor)
        return is_full or active.next_position is not None

    async def _probe_suspended_webhooks(self, tx: Transaction) -> bool:
        """Release one held delivery of each suspended webhook whose pause is over. A success makes the webhook active again."""
        suspended = await tx.delivery_maintenance.list_webhooks_to_probe(
            now=tx.now(), limit=self._batch.rows, after=self._probe_cursor
        )
        for webhook_id in suspended:
            await tx.webhook_deliveries.release_held(webhook_id, now=tx.now(), limit=1)
        if suspended:
            tx.notify(DELIVERY_DUE_TOPIC)

        def advance_cursor() -> None:
            self._probe_cursor = suspended.next_position or ""

        tx.on_commit(advance_cursor)
        return suspended.next_position is not None

    async def _remove_expired_webhooks(self, tx: Transaction) -> bool:
        """Remove expired webhooks. One with open deliveries is checked again in the next round."""
        removed = await tx.webhooks.remove_expired(
            now=tx.confirmed_now(), limit=self._batch.rows, after=self._expiry_cursor
        )
        await log_expired(tx, removed)

        def advance_cursor() -> None:
            self._expiry_cursor = removed.next_position

        tx.on_commit(advance_cursor)
        return removed.next_position is not None

    async def _terminate_subscriptions(self, tx: Transaction) -> bool:
        """End the event subscriptions whose API key was revoked or has expired, some keys in each round."""
        position = await terminate_of_keys(tx, self._recorder, after=self._key_cursor, rows_max=self._batch.rows)

        def advance_cursor() -> None:
            self._key_cursor = position or ""

        tx.on_commit(advance_cursor)
        return position is not None

    async def _terminate_abandoned_subscriptions(self, tx: Transaction) -> bool:
        """End the event subscriptions without expiry whose receivers have failed for a week."""
        position = await terminate_abandoned(
            tx, self._recorder, position=self._failing_cursor, rows_max=self._batch.rows
        )

        def advance_cursor() -> None:
            self._failing_cursor = position

        tx.on_commit(advance_cursor)
        return position is not None
