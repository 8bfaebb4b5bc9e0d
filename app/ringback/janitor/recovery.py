"""Recovers what died with its process: calls without a runner, deliveries without a dispatcher, calls beyond their deadline."""

import logging
from collections.abc import Sequence
from typing import Final

from ringback.domain.call import Call, overdue_completion
from ringback.domain.call_completion import UNREPORTED_COMPLETION, is_reported
from ringback.domain.call_outcome import CallCompletion
from ringback.domain.clock import seconds
from ringback.domain.clock_confirmation import latest_of_right_clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.login_waits import awaits_login, unfinished_login_completion
from ringback.domain.ports import Store, Transaction
from ringback.domain.retry import RETRY_PAUSE_SECONDS_MAX
from ringback.domain.signals import CALL_QUEUED_TOPIC, DELIVERY_DUE_TOPIC
from ringback.domain.suspension import SuspensionWatch
from ringback.domain.upkeep import Upkeep
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.janitor.config import FINISH_BATCH_SIZE, BatchRows, JanitorConfig, MaintenanceTask
from ringback.notifier.call_ends import CompletionRequest
from ringback.notifier.recorder import Recorder
from ringback.services.logins.login_waits import RESUMED_BATCH_SIZE, check_next_login, continue_resumption

log = logging.getLogger(__name__)

OVERDUE_GRACE_SECONDS: Final = 60.0
"""How long past the deadline a runner may cancel a queued call at its upstream. After that the janitor finishes the call."""
LEASE_GRACE_SECONDS: Final = 15.0
"""How long a lease must have expired before its holder counts as dead: the holder may only have been delayed."""
SCHEDULED_GRACE_SECONDS: Final = 10.0
"""How long a scheduled call may be due before the janitor queues it: twice the longest pause of a runner that can run it."""
RESUME_GRACE_SECONDS: Final = 30.0
"""How long after a suspension of the machine or an outage of the store no lease counts as expired: the length of a lease.
Within a third of it a holder extends the lease of each running call, and within it each delivery attempt ends."""
SHORTENED_LEASE_SECONDS: Final = 60.0
"""How long a lease goes on that a wrong clock wrote: twice its usual length. A holder that lives extends it long before."""


async def hand_back_leases(store: Store, recorder: Recorder, *, owner: str) -> None:
    """Release what a node still has leased when all its workers have stopped, so that other nodes continue it at once.

    The workers release their leases themselves. What remains was committed while they stopped, or could not be recorded.
    """

    async def hand_back(tx: Transaction) -> bool:
        calls = await tx.call_queue.find_leased(owner=owner, own=True, limit=FINISH_BATCH_SIZE)
        await recorder.recover_calls(tx, calls)
        released = await tx.delivery_maintenance.release_leases(owner=owner, own=True, limit=RELEASE_BATCH_SIZE)
        if released:
            tx.notify(DELIVERY_DUE_TOPIC)
        return bool(calls) or bool(released)

    try:
        while await store.write(hand_back):
            pass
    except StoreUnavailable:
        log.warning("leases.not_handed_back")  # they run out


class RecoveryTasks:
    def __init__(
        self, recorder: Recorder, config: JanitorConfig, batch: BatchRows, suspensions: SuspensionWatch
    ) -> None:
        self._recorder = recorder
        self._config = config
        self._batch = batch
        self._suspensions = suspensions
        self._recovered_foreign_calls = False
        self._released_foreign_deliveries = False
        self.tasks: Sequence[MaintenanceTask] = (
            MaintenanceTask(self._recover_calls_with_expired_lease, {Upkeep.CALL_LEASES: LEASE_GRACE_SECONDS}),
            *self._list_tasks_for_others(),
            MaintenanceTask(self._queue_scheduled_calls, {Upkeep.SCHEDULED_CALLS: SCHEDULED_GRACE_SECONDS}),
            MaintenanceTask(self._finish_overdue_calls, {Upkeep.CALL_DEADLINES: 0.0}),
            MaintenanceTask(self._continue_resumption, {Upkeep.LOGIN_RESUMPTIONS: None}),
            MaintenanceTask(check_next_login, {Upkeep.LOGIN_CHECKS: 0.0}),
            MaintenanceTask(self._release_expired_leases, {Upkeep.DELIVERY_LEASES: 0.0}),
            MaintenanceTask(self._pull_back_deliveries, {Upkeep.LATE_DELIVERIES: None}),
            MaintenanceTask(self._shorten_leases, {Upkeep.LATE_LEASES: None}),
        )

    def _list_tasks_for_others(self) -> Sequence[MaintenanceTask]:
        """What only the sole process of a store can do."""
        if self._config.exclusive_owner is None:
            return ()
        return (
            MaintenanceTask(self._recover_calls_of_others, {Upkeep.CALL_LEASES: None}),
            MaintenanceTask(self._release_deliveries_of_others, {Upkeep.DELIVERY_LEASES: None}),
        )

    async def _recover_calls_of_others(self, tx: Transaction) -> bool:
        """Recover the calls that an earlier process left running. No new ones can appear, so this ends once none is left."""
        owner, limit = self._config.exclusive_owner, self._batch.at_most(FINISH_BATCH_SIZE)
        if owner is None or self._recovered_foreign_calls:
            return False
        abandoned = await tx.call_queue.find_leased(owner=owner, own=False, limit=limit)
        await self._recorder.recover_calls(tx, abandoned)
        self._recovered_foreign_calls = not abandoned
        return len(abandoned) == limit

    async def _release_deliveries_of_others(self, tx: Transaction) -> bool:
        """Release the deliveries that an earlier process left leased: they are sent again with the same webhook-id."""
        owner, limit = self._config.exclusive_owner, self._batch.rows
        if owner is None or self._released_foreign_deliveries:
            return False
        released = await tx.delivery_maintenance.release_leases(owner=owner, own=False, limit=limit)
        if released:
            tx.notify(DELIVERY_DUE_TOPIC)
        self._released_foreign_deliveries = not released
        return released == limit

    async def _recover_calls_with_expired_lease(self, tx: Transaction) -> bool:
        """Recover the calls whose runner died: queue those that can go on, finish the others (`recover_call`)."""
        if not self._suspensions.has_been_awake(RESUME_GRACE_SECONDS, now=tx.now()):
            return False
        limit = self._batch.at_most(FINISH_BATCH_SIZE)
        expired = await tx.call_queue.find_lease_expired(
            now=tx.confirmed_now() - seconds(LEASE_GRACE_SECONDS), limit=limit
        )
        await self._recorder.recover_calls(tx, expired)
        return len(expired) == limit

    async def _queue_scheduled_calls(self, tx: Transaction) -> bool:
        """Queue the calls that no runner has queued, because none has capacity or none runs: only queued calls time out."""
        due = tx.confirmed_now() - seconds(SCHEDULED_GRACE_SECONDS)
        next_start_at = await tx.scheduled_calls.queue_due(now=due, limit=self._batch.rows)
        tx.notify(CALL_QUEUED_TOPIC)
        return next_start_at is not None and next_start_at <= due

    async def _finish_overdue_calls(self, tx: Transaction) -> bool:
        """Finish the calls that waited for a runner, an answer or a report beyond their deadline."""
        now = tx.confirmed_now()
        grace_end, limit = now - seconds(OVERDUE_GRACE_SECONDS), self._batch.at_most(FINISH_BATCH_SIZE)
        requests = [
            CompletionRequest(
                call=call,
                completion=_completion_past_deadline(call),
                lease_token=None,
            )
            for call in await tx.call_queue.find_past_deadline(now=now, grace_end=grace_end, limit=limit)
        ]
        await self._recorder.finish_calls(tx, requests)
        return len(requests) == limit

    async def _continue_resumption(self, tx: Transaction) -> bool:
        """Queue calls whose login is there."""
        return await continue_resumption(tx, limit=self._batch.at_most(RESUMED_BATCH_SIZE))

    async def _release_expired_leases(self, tx: Transaction) -> bool:
        """Release the deliveries whose dispatcher died: they are sent again with the same webhook-id."""
        if not self._suspensions.has_been_awake(RESUME_GRACE_SECONDS, now=tx.now()):
            return False
        released = await tx.delivery_maintenance.release_expired_leases(now=tx.confirmed_now(), limit=self._batch.rows)
        if released:
            tx.notify(DELIVERY_DUE_TOPIC)
        return released == self._batch.rows

    async def _pull_back_deliveries(self, tx: Transaction) -> bool:
        """Send now what only a wrong clock can have scheduled so late: it was far ahead then, or is far behind now."""
        pulled = await tx.delivery_maintenance.pull_back(
            due_after=tx.now() + seconds(RETRY_PAUSE_SECONDS_MAX), now=tx.now(), limit=self._batch.rows
        )
        if pulled:
            tx.notify(DELIVERY_DUE_TOPIC)
        return pulled == self._batch.rows

    async def _shorten_leases(self, tx: Transaction) -> bool:
        """Let leases run out soon that end later than any lease lasts: their clock was far ahead, or this one is far behind.

        A holder that died at such a time keeps its calls and deliveries for weeks otherwise. One that lives keeps them, because
        only the end of its lease changes, and each heartbeat extends it.
        """
        times = {
            "ends_after": latest_of_right_clock(tx.now()),
            "until": tx.now() + seconds(SHORTENED_LEASE_SECONDS),
        }
        limit = self._batch.rows
        calls = await tx.upkeep.shorten_call_leases(**times, limit=limit)
        deliveries = await tx.upkeep.shorten_delivery_leases(**times, limit=limit)
        return limit in (calls, deliveries)


def _completion_past_deadline(call: Call) -> CallCompletion:
    if awaits_login(call):
        return unfinished_login_completion(call, is_refused=False)
    return UNREPORTED_COMPLETION if is_reported(call) else overdue_completion(call)
