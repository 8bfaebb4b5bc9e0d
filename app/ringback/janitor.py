"""The janitor recovers the work of processes that died, and removes expired rows.

    round ──▶ one batch of each task, a transaction each ──▶ a pause, short if a batch was full ──▶ the next round

It runs beside the service from the start, and nothing waits for it: the leases of an earlier process carry another owner, so
they need not be voided before the service accepts requests. A task with much to do does not delay the others: each has one
batch in every round. A task that fails only loses its own turn.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from ringback.domain.call import CallPhase, has_no_upstream_state, overdue_completion
from ringback.domain.call_completion import UNREPORTED_COMPLETION, is_reported
from ringback.domain.call_rows import Tombstone
from ringback.domain.clock import Clock, seconds
from ringback.domain.erasure import ErasureState
from ringback.domain.errors import StoreUnavailable
from ringback.domain.event_subscriptions import TOMBSTONE_SECONDS
from ringback.domain.ports import Store, Transaction
from ringback.domain.retry import RETRY_SCHEDULES
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.suspension import FREEZE_SECONDS, SuspensionWatch
from ringback.domain.verification import CHALLENGE_WINDOW_SECONDS, PROOF_VALID_SECONDS
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.domain.webhook_rows import ExpiryPosition
from ringback.notifier.attempts import record_losses
from ringback.notifier.recorder import CompletionRequest, Recorder
from ringback.notifier.recovery import recover_calls
from ringback.services.erasure_batches import erase_batch
from ringback.services.subscription_ends import terminate_abandoned, terminate_of_keys
from ringback.waits import wait_first

log = logging.getLogger(__name__)

MaintenanceTask = Callable[[Transaction], Awaitable[bool]]
"""Runs one bounded batch; returns whether there may be more to do."""

ROUND_PAUSE_SECONDS: Final = 0.02
"""The pause between two rounds while there is more to do. It leaves most of the writer's time to the service."""
FINISH_BATCH_SIZE: Final = 50
"""Calls that one transaction may finish: each also writes its event and its deliveries."""
SCHEDULING_TIME_SAVE_SECONDS: Final = 60.0
"""How far scheduling time may fall back if the clock is set back before the next process starts."""
RELEASE_WEBHOOKS_MAX: Final = 4
"""Webhooks in one batch, with up to `RELEASE_BATCH_SIZE` deliveries each: some tens of milliseconds."""
GIVE_UP_SECONDS_MAX: Final = max(schedule.give_up_seconds for schedule in RETRY_SCHEDULES.values())
OVERDUE_GRACE_SECONDS: Final = 60.0
"""How long past the deadline a runner may cancel a queued call at its upstream. After that the janitor finishes the call."""
LEASE_GRACE_SECONDS: Final = 15.0
"""How long a lease must have expired before its holder counts as dead: the holder may only have been delayed."""
RESUME_GRACE_SECONDS: Final = 30.0
"""How long after a suspension of the machine or an outage of the store no lease counts as expired: the length of a lease.
Within a third of it a holder extends the lease of each running call, and within it each delivery attempt ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long rows are kept after their end, in seconds. The constructor checks that no period is shorter than the one before.

    A resume token expires with its result, so results are kept beyond the last delivery attempt: a token that arrives works.
    """

    result_seconds: float = 7 * 24 * 3600.0
    event_seconds: float = 14 * 24 * 3600.0
    tombstone_seconds: float = 30 * 24 * 3600.0

    def __post_init__(self) -> None:
        if not GIVE_UP_SECONDS_MAX < self.result_seconds <= self.event_seconds <= self.tombstone_seconds:
            raise ValueError(
                f"Retention must be in order: results longer than deliveries are attempted ({GIVE_UP_SECONDS_MAX:.0f} s), "
                "and at most as long as events; events at most as long as tombstones."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JanitorConfig:
    retention: Retention = field(default_factory=Retention)
    interval_seconds: float = 5.0
    batch_size: int = 200
    """Rows that one transaction removes or releases: about ten milliseconds of the one writer's time."""
    exclusive_owner: str | None = None
    """The owner of all valid leases, if no other process serves the store. None: only expired leases are void."""


async def hand_back_leases(store: Store, recorder: Recorder, *, owner: str) -> None:
    """Release what a node still has leased when all its workers have stopped, so that other nodes continue it at once.

    The workers release their leases themselves. What remains was committed while they stopped, or could not be recorded.
    """

    async def hand_back(tx: Transaction) -> bool:
        calls = await tx.call_queue.find_leased(owner=owner, own=True, limit=FINISH_BATCH_SIZE)
        await recover_calls(tx, recorder, calls)
        released = await tx.delivery_maintenance.release_leases(owner=owner, own=True, limit=RELEASE_BATCH_SIZE)
        if released:
            tx.notify(DELIVERY_DUE_TOPIC)
        return bool(calls) or bool(released)

    try:
        while await store.write(hand_back):
            pass
    except StoreUnavailable:
        log.warning("leases.not_handed_back")  # they run out


class Janitor:
    name = "janitor"

    def __init__(self, *, store: Store, recorder: Recorder, clock: Clock, config: JanitorConfig) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._config = config
        self._suspensions = SuspensionWatch(clock)
        self._next_task = 0
        self._release_cursor = ""
        self._probe_cursor = ""
        self._failing_cursor: str | None = None
        self._expiry_cursor: ExpiryPosition | None = None
        self._key_cursor = ""
        self._saved_scheduling_time: datetime | None = None
        self._recovered_foreign_calls = False
        self._released_foreign_deliveries = False
        self._tasks: Sequence[MaintenanceTask] = (
            self._recover_calls_with_expired_lease,
            self._recover_calls_of_others,
            self._release_deliveries_of_others,
            self._finish_overdue_calls,
            self._release_expired_leases,
            self._give_up_held_deliveries,
            self._release_held_deliveries,
            self._probe_suspended_webhooks,
            self._archive_expired_calls,
            self._erase,
            self._remove_deliveries,
            self._remove_events,
            self._remove_origins,
            self._terminate_subscriptions,
            self._terminate_abandoned_subscriptions,
            self._remove_expired_webhooks,
            self._remove_tombstones,
            self._remove_erasures,
            self._remove_proofs,
            self._remove_expired_sessions,
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

    # -- tasks: each returns whether there may be more to do --

    async def _recover_calls_of_others(self, tx: Transaction) -> bool:
        """Recover the calls that an earlier process left running. No new ones can appear, so this ends once none is left."""
        owner, limit = self._config.exclusive_owner, min(FINISH_BATCH_SIZE, self._config.batch_size)
        if owner is None or self._recovered_foreign_calls:
            return False
        abandoned = await tx.call_queue.find_leased(owner=owner, own=False, limit=limit)
        await recover_calls(tx, self._recorder, abandoned)
        self._recovered_foreign_calls = not abandoned
        return len(abandoned) == limit

    async def _release_deliveries_of_others(self, tx: Transaction) -> bool:
        """Release the deliveries that an earlier process left leased: they are sent again with the same webhook-id."""
        owner, limit = self._config.exclusive_owner, self._config.batch_size
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
        limit = min(FINISH_BATCH_SIZE, self._config.batch_size)
        expired = await tx.call_queue.find_lease_expired(now=tx.now() - seconds(LEASE_GRACE_SECONDS), limit=limit)
        await recover_calls(tx, self._recorder, expired)
        return len(expired) == limit

    async def _finish_overdue_calls(self, tx: Transaction) -> bool:
        """Finish the calls that waited for a runner, an answer or a report beyond their deadline."""
        grace_end, limit = tx.now() - seconds(OVERDUE_GRACE_SECONDS), min(FINISH_BATCH_SIZE, self._config.batch_size)
        requests = [
            CompletionRequest(
                call=call,
                completion=UNREPORTED_COMPLETION if is_reported(call) else overdue_completion(call),
                lease_token=None,
            )
            for call in await tx.call_queue.find_past_deadline(now=tx.now(), limit=limit)
            if call.phase is CallPhase.PARKED or has_no_upstream_state(call) or call.deadline_at <= grace_end
        ]
        await self._recorder.finish_calls(tx, requests)
        return len(requests) == limit

    async def _release_expired_leases(self, tx: Transaction) -> bool:
        """Release the deliveries whose dispatcher died: they are sent again with the same webhook-id."""
        if not self._suspensions.has_been_awake(RESUME_GRACE_SECONDS, now=tx.now()):
            return False
        released = await tx.delivery_maintenance.release_expired_leases(now=tx.now(), limit=self._config.batch_size)
        if released:
            tx.notify(DELIVERY_DUE_TOPIC)
        return released == self._config.batch_size

    async def _give_up_held_deliveries(self, tx: Transaction) -> bool:
        """Give up the held deliveries whose time is over. The gap delivery names the cursor from which to poll.

        The dispatcher gives up pending deliveries, after a last attempt.
        """
        given_up = await tx.delivery_maintenance.give_up_expired_held(now=tx.now(), limit=self._config.batch_size)
        await record_losses(tx, given_up, self._recorder.measurements)
        return len(given_up) == self._config.batch_size

    async def _release_held_deliveries(self, tx: Transaction) -> bool:
        """Release held deliveries of webhooks that are active again, one batch for each webhook."""
        active = await tx.delivery_maintenance.list_webhooks_to_release(
            limit=RELEASE_WEBHOOKS_MAX, after=self._release_cursor
        )
        released = [
            await tx.webhook_deliveries.release_held(webhook_id, now=tx.now(), limit=RELEASE_BATCH_SIZE)
            for webhook_id in active
        ]
        if any(released):
            tx.notify(DELIVERY_DUE_TOPIC)
        is_full = RELEASE_BATCH_SIZE in released
        position = self._release_cursor if is_full else active.next_position

        def advance_cursor() -> None:
            self._release_cursor = position or ""

        tx.on_commit(advance_cursor)
        return is_full or active.next_position is not None

    async def _probe_suspended_webhooks(self, tx: Transaction) -> bool:
        """Release one held delivery of each suspended webhook whose pause is over. A success makes the webhook active again."""
        suspended = await tx.delivery_maintenance.list_webhooks_to_probe(
            now=tx.now(), limit=self._config.batch_size, after=self._probe_cursor
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
            now=tx.now(), limit=self._config.batch_size, after=self._expiry_cursor
        )

        def advance_cursor() -> None:
            self._expiry_cursor = removed.next_position

        tx.on_commit(advance_cursor)
        return removed.next_position is not None

    async def _terminate_subscriptions(self, tx: Transaction) -> bool:
        """End the event subscriptions whose API key was revoked or has expired, some keys in each round."""
        position = await terminate_of_keys(tx, self._recorder, after=self._key_cursor)

        def advance_cursor() -> None:
            self._key_cursor = position or ""

        tx.on_commit(advance_cursor)
        return position is not None

    async def _terminate_abandoned_subscriptions(self, tx: Transaction) -> bool:
        """End the event subscriptions without expiry whose receivers have failed for a week."""
        position = await terminate_abandoned(tx, self._recorder, position=self._failing_cursor)

        def advance_cursor() -> None:
            self._failing_cursor = position

        tx.on_commit(advance_cursor)
        return position is not None

    async def _archive_expired_calls(self, tx: Transaction) -> bool:
        expired = await tx.call_queue.find_expired(now=tx.now(), limit=self._config.batch_size)
        for call in expired:
            await tx.tombstones.archive(
                Tombstone(
                    call_id=call.id,
                    principal=call.principal,
                    idempotency_key=call.idempotency_key,
                    request_hash=call.request_hash,
                    expired_at=tx.now(),
                )
            )
        return len(expired) == self._config.batch_size

    async def _erase(self, tx: Transaction) -> bool:
        """Erase a batch of the erasure that has waited longest."""
        erasure = await tx.erasures.find_next()
        if erasure is None:
            return False
        return (await erase_batch(tx, self._recorder, erasure)).state is not ErasureState.WAITING

    async def _remove_deliveries(self, tx: Transaction) -> bool:
        return self._is_full_batch(
            await tx.deliveries.remove(cutoff=self._event_cutoff(tx), limit=self._config.batch_size)
        )

    async def _remove_events(self, tx: Transaction) -> bool:
        return self._is_full_batch(await tx.events.remove(cutoff=self._event_cutoff(tx), limit=self._config.batch_size))

    async def _remove_origins(self, tx: Transaction) -> bool:
        return self._is_full_batch(
            await tx.origin_breakers.remove(cutoff=self._event_cutoff(tx), limit=self._config.batch_size)
        )

    async def _remove_tombstones(self, tx: Transaction) -> bool:
        old = tx.now() - seconds(self._config.retention.tombstone_seconds)
        calls = await tx.tombstones.remove(cutoff=old, limit=self._config.batch_size)
        subscriptions = await tx.subscriptions.remove_ended(
            cutoff=tx.now() - seconds(TOMBSTONE_SECONDS), limit=self._config.batch_size
        )
        return self._is_full_batch(max(calls, subscriptions))

    async def _remove_erasures(self, tx: Transaction) -> bool:
        old = tx.now() - seconds(self._config.retention.tombstone_seconds)
        return self._is_full_batch(await tx.erasures.remove(cutoff=old, limit=self._config.batch_size))

    async def _remove_proofs(self, tx: Transaction) -> bool:
        proofs = await tx.proofs.remove(cutoff=tx.now() - seconds(PROOF_VALID_SECONDS), limit=self._config.batch_size)
        sent = await tx.challenges.remove_sent(
            cutoff=tx.now() - seconds(CHALLENGE_WINDOW_SECONDS), limit=self._config.batch_size
        )
        return self._is_full_batch(max(proofs, sent))

    async def _remove_expired_sessions(self, tx: Transaction) -> bool:
        return self._is_full_batch(await tx.mcp_sessions.remove_expired(now=tx.now(), limit=self._config.batch_size))

    async def _save_scheduling_time(self, tx: Transaction) -> bool:
        """Save it once a minute: an idle service writes nothing else."""
        last, now = self._saved_scheduling_time, tx.now()
        if last is None or now - last >= seconds(SCHEDULING_TIME_SAVE_SECONDS):
            await tx.scheduling_time.save(now)

            def remember() -> None:
                self._saved_scheduling_time = now

            tx.on_commit(remember)
        return False

    def _event_cutoff(self, tx: Transaction) -> datetime:
        return tx.now() - seconds(self._config.retention.event_seconds)

    def _is_full_batch(self, rows: int) -> bool:
        return rows >= self._config.batch_size
