"""The janitor: puts right what the dead have left, and removes what is past its day.

    round ──▶ one batch of each chore, a unit of work each ──▶ a pause ──▶ the next round, at once if a batch was full

It works beside the service from the first moment on, and nothing waits for it: what a process of before has leased is known by
its owner, so leases need not be voided before anything is served. However much one chore has to do, each of the others has its
batch in every round, and a chore that fails only loses its own turn.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from ringback.domain.call import Call, CallCompletion, CallPhase, has_no_upstream_state, overdue_completion
from ringback.domain.call_completion import UNREPORTED_COMPLETION, is_reported, recover_call
from ringback.domain.call_rows import CallChange, Tombstone
from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.retry import RETRY_SCHEDULES
from ringback.domain.signals import CALL_QUEUED_TOPIC, DELIVERY_DUE_TOPIC, call_changed_topic
from ringback.domain.suspension import SuspensionWatch
from ringback.domain.verification import CHALLENGE_WINDOW_SECONDS, PROOF_VALID_SECONDS
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.domain.webhook_rows import ExpiryPosition
from ringback.notifier.attempts import record_losses
from ringback.notifier.recorder import Recorder
from ringback.waits import wait_first

log = logging.getLogger(__name__)

MaintenanceTask = Callable[[Transaction], Awaitable[bool]]
"""One bounded batch of some work; whether there may be more of it."""

ROUND_PAUSE_SECONDS: Final = 0.02
"""Between two rounds while there is more to do, so that the chores of a neglected store leave most of the writer to others."""
FINISH_BATCH_SIZE: Final = 50
"""Calls that one unit of work may end: each also writes its event and the deliveries of that."""
SCHEDULING_TIME_SAVE_SECONDS: Final = 60.0
"""How much of scheduling time the next process may have to go through again, if the clock was set back before it starts."""
RELEASE_WEBHOOKS_MAX: Final = 4
"""Times `RELEASE_STEP`: with a full step of each, a chore still takes some tens of milliseconds."""
GIVE_UP_SECONDS_MAX: Final = max(ladder.give_up_seconds for ladder in RETRY_SCHEDULES.values())
OVERDUE_GRACE_SECONDS: Final = 60.0
"""How long a runner has for telling the upstream of a queued call that its time is up. Without one it ends all the same."""
LEASE_GRACE_SECONDS: Final = 15.0
"""How long a lease may have run out before its holder counts as dead: it may only have been kept from prolonging it."""
RESUME_GRACE_SECONDS: Final = 30.0
"""How long after the machine was suspended no lease is taken for lapsed: as long as a lease is, of which its holder prolongs
each running call's within a third, and within which each attempt at a delivery has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long what is kept, in seconds after its end. Each must outlive the one before: checked when it is made.

    A resume token expires with its result, so results outlive the last attempt to deliver one: a token that arrives works.
    """

    result_seconds: float = 7 * 24 * 3600.0
    event_seconds: float = 14 * 24 * 3600.0
    tombstone_seconds: float = 30 * 24 * 3600.0

    def __post_init__(self) -> None:
        if not GIVE_UP_SECONDS_MAX < self.result_seconds <= self.event_seconds <= self.tombstone_seconds:
            raise ValueError(
                f"Retention must be in order: results longer than deliveries are tried ({GIVE_UP_SECONDS_MAX:.0f} s), "
                "and at most as long as events; events at most as long as tombstones."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JanitorConfig:
    retention: Retention = field(default_factory=Retention)
    interval_seconds: float = 5.0
    batch_size: int = 200
    """Rows that one unit of work removes or releases: some ten milliseconds of the one writer's time."""
    exclusive_owner: str | None = None
    """The owner of every living lease, if no other process serves the store. None: only leases that ran out are void."""


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
        self._expiry_cursor: ExpiryPosition | None = None
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
            self._remove_deliveries,
            self._remove_events,
            self._remove_origins,
            self._remove_expired_webhooks,
            self._remove_tombstones,
            self._remove_proofs,
            self._save_scheduling_time,
        )

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                more = await self.run_once()
            except StoreUnavailable:
                log.warning("janitor.store_unavailable")
                more = False
            await wait_first(
                stop.wait(), self._clock.sleep(ROUND_PAUSE_SECONDS if more else self._config.interval_seconds)
            )

    async def run_once(self) -> bool:
        """One batch of every chore; whether any of them has more to do.

        A round that a failure has cut short goes on, the next time, with the chore after the one that failed.
        """
        has_more = False
        for _ in self._tasks:
            task = self._tasks[self._next_task % len(self._tasks)]
            self._next_task += 1
            has_more |= await self._store.write(task)
        return has_more

    # -- chores: each returns whether there may be more of it --

    async def _recover_calls_of_others(self, tx: Transaction) -> bool:
        """Calls that a process of before has left running. No such call can come up later, so this is over one day."""
        owner, limit = self._config.exclusive_owner, min(FINISH_BATCH_SIZE, self._config.batch_size)
        if owner is None or self._recovered_foreign_calls:
            return False
        abandoned = await tx.call_queue.find_leased_by_others(owner=owner, limit=limit)
        await self._recover_calls(tx, abandoned)
        self._recovered_foreign_calls = not abandoned
        return len(abandoned) == limit

    async def _release_deliveries_of_others(self, tx: Transaction) -> bool:
        """Deliveries that a process of before has left leased: they go again, under the same webhook-id."""
        owner, limit = self._config.exclusive_owner, self._config.batch_size
        if owner is None or self._released_foreign_deliveries:
            return False
        released = await tx.delivery_maintenance.release_leases_of_others(owner=owner, limit=limit)
        if released:
            tx.notify(DELIVERY_DUE_TOPIC)
        self._released_foreign_deliveries = not released
        return released == limit

    async def _recover_calls_with_expired_lease(self, tx: Transaction) -> bool:
        """Calls whose runner has died: queued again if they can be, else the truth, which is that nobody knows."""
        if not self._suspensions.has_been_awake(RESUME_GRACE_SECONDS, now=tx.now()):
            return False
        limit = min(FINISH_BATCH_SIZE, self._config.batch_size)
        expired = await tx.call_queue.find_lease_expired(now=tx.now() - seconds(LEASE_GRACE_SECONDS), limit=limit)
        await self._recover_calls(tx, expired)
        return len(expired) == limit

    async def _recover_calls(self, tx: Transaction, lost: Sequence[Call]) -> None:
        for call in lost:
            recovered = recover_call(call, now=tx.now())
            if isinstance(recovered, CallCompletion):
                await self._finish_call(tx, call, recovered)
            else:
                await tx.calls.update(recovered, CallChange.QUEUED, expected=call.status, lease_token=None)
                tx.notify(CALL_QUEUED_TOPIC, call_changed_topic(call.id))

    async def _finish_overdue_calls(self, tx: Transaction) -> bool:
        """Calls that waited for a runner, for answers, or for a report, until their deadline had passed."""
        late, limit = tx.now() - seconds(OVERDUE_GRACE_SECONDS), min(FINISH_BATCH_SIZE, self._config.batch_size)
        ended = 0
        for call in await tx.call_queue.find_past_deadline(now=tx.now(), limit=limit):
            if call.phase is CallPhase.PARKED or has_no_upstream_state(call) or call.deadline_at <= late:
                await self._finish_call(
                    tx, call, UNREPORTED_COMPLETION if is_reported(call) else overdue_completion(call)
                )
                ended += 1
        return ended == limit

    async def _finish_call(self, tx: Transaction, call: Call, completion: CallCompletion) -> None:
        if await self._recorder.finish_call(tx, call, completion, lease_token=None):
            log.info("call.finished", extra={"call_id": call.id, "outcome": str(completion.outcome)})

    async def _release_expired_leases(self, tx: Transaction) -> bool:
        """Deliveries whose dispatcher has died: they go again, under the same webhook-id."""
        if not self._suspensions.has_been_awake(RESUME_GRACE_SECONDS, now=tx.now()):
            return False
        released = await tx.delivery_maintenance.release_expired_leases(now=tx.now(), limit=self._config.batch_size)
        if released:
            tx.notify(DELIVERY_DUE_TOPIC)
        return released == self._config.batch_size

    async def _give_up_held_deliveries(self, tx: Transaction) -> bool:
        """Deliveries whose receiver did not come back in time; it will be told from where to poll.

        What is pending is the dispatcher's to give up, after a last attempt.
        """
        given_up = await tx.delivery_maintenance.give_up_expired_held(now=tx.now(), limit=self._config.batch_size)
        await record_losses(tx, given_up)
        return len(given_up) == self._config.batch_size

    async def _release_held_deliveries(self, tx: Transaction) -> bool:
        """What is still held of webhooks that are active again, a step of each."""
        active = await tx.delivery_maintenance.list_webhooks_to_release(
            limit=RELEASE_WEBHOOKS_MAX, after=self._release_cursor
        )
        released = [
            await tx.webhook_deliveries.release_held(each, now=tx.now(), limit=RELEASE_BATCH_SIZE) for each in active
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
        """One held delivery of each suspended webhook whose pause is over: if it is answered, the webhook is active again."""
        silent = await tx.delivery_maintenance.list_webhooks_to_probe(
            now=tx.now(), limit=self._config.batch_size, after=self._probe_cursor
        )
        for webhook_id in silent:
            await tx.webhook_deliveries.release_held(webhook_id, now=tx.now(), limit=1)
        if silent:
            tx.notify(DELIVERY_DUE_TOPIC)

        def advance_cursor() -> None:
            self._probe_cursor = silent.next_position or ""

        tx.on_commit(advance_cursor)
        return silent.next_position is not None

    async def _remove_expired_webhooks(self, tx: Transaction) -> bool:
        """Webhooks past their day; those of which something is still open are looked at again in the next round."""
        removed = await tx.webhooks.remove_expired(
            now=tx.now(), limit=self._config.batch_size, after=self._expiry_cursor
        )

        def advance_cursor() -> None:
            self._expiry_cursor = removed.next_position

        tx.on_commit(advance_cursor)
        return removed.next_position is not None

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
        return self._is_full_batch(await tx.tombstones.remove(cutoff=old, limit=self._config.batch_size))

    async def _remove_proofs(self, tx: Transaction) -> bool:
        proofs = await tx.proofs.remove(cutoff=tx.now() - seconds(PROOF_VALID_SECONDS), limit=self._config.batch_size)
        sent = await tx.challenges.remove_sent(
            cutoff=tx.now() - seconds(CHALLENGE_WINDOW_SECONDS), limit=self._config.batch_size
        )
        return self._is_full_batch(max(proofs, sent))

    async def _save_scheduling_time(self, tx: Transaction) -> bool:
        """Once a minute, because it is the one thing that an idle service writes."""
        last, now = self._saved_scheduling_time, tx.now()
        if last is None or now - last >= seconds(SCHEDULING_TIME_SAVE_SECONDS):
            await tx.scheduling_time.save(now)

            def note() -> None:
                self._saved_scheduling_time = now

            tx.on_commit(note)
        return False

    def _event_cutoff(self, tx: Transaction) -> datetime:
        return tx.now() - seconds(self._config.retention.event_seconds)

    def _is_full_batch(self, rows: int) -> bool:
        return rows >= self._config.batch_size
