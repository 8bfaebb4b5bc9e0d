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

from ringback.domain.call import Call, Ending, Phase, left_nothing, overdue
from ringback.domain.call_rows import Change, Tombstone
from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import StoreUnavailable
from ringback.domain.health import RELEASE_STEP
from ringback.domain.ports import Store, Transaction
from ringback.domain.recovery import recover
from ringback.domain.reported import VANISHED, is_reported
from ringback.domain.retry import LADDERS
from ringback.domain.signals import DUE, QUEUED, changed
from ringback.domain.suspension import SuspensionWatch
from ringback.domain.verification import PROOF_SECONDS, RATE_SECONDS
from ringback.domain.webhook_rows import ExpiredPlace
from ringback.notifier.record import Recorder
from ringback.notifier.settlement import write_off
from ringback.waits import first_of

log = logging.getLogger(__name__)

Chore = Callable[[Transaction], Awaitable[bool]]
"""One bounded batch of some work; whether there may be more of it."""

PAUSE_SECONDS: Final = 0.02
"""Between two rounds while there is more to do, so that the chores of a neglected store leave most of the writer to others."""
ENDED_AT_ONCE: Final = 50
"""Calls that one unit of work may end: each also writes its event and the deliveries of that."""
KEEP_TIME_SECONDS: Final = 60.0
"""How much of scheduling time the next process may have to go through again, if the clock was set back before it starts."""
WEBHOOKS_AT_ONCE: Final = 4
"""Times `RELEASE_STEP`: with a full step of each, a chore still takes some tens of milliseconds."""
GIVE_UP_SECONDS: Final = max(ladder.give_up_seconds for ladder in LADDERS.values())
OVERDUE_GRACE_SECONDS: Final = 60.0
"""How long a runner has for telling the upstream of a queued call that its time is up. Without one it ends all the same."""
LAPSE_GRACE_SECONDS: Final = 15.0
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
        if not GIVE_UP_SECONDS < self.result_seconds <= self.event_seconds <= self.tombstone_seconds:
            raise ValueError(
                f"Retention must be in order: results longer than deliveries are tried ({GIVE_UP_SECONDS:.0f} s), "
                "and at most as long as events; events at most as long as tombstones."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JanitorConfig:
    retention: Retention = field(default_factory=Retention)
    every_seconds: float = 5.0
    batch: int = 200
    """Rows that one unit of work removes or releases: some ten milliseconds of the one writer's time."""
    only_owner: str | None = None
    """The owner of every living lease, if no other process serves the store. None: only leases that ran out are void."""


class Janitor:
    name = "janitor"

    def __init__(self, *, store: Store, recorder: Recorder, clock: Clock, config: JanitorConfig) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._config = config
        self._suspensions = SuspensionWatch(clock)
        self._turn = 0
        self._release_after = ""
        self._probe_after = ""
        self._expired_after: ExpiredPlace | None = None
        self._kept_scheduling_time: datetime | None = None
        self._no_abandoned_calls = False
        self._no_abandoned_deliveries = False
        self._chores: Sequence[Chore] = (
            self._recover_lapsed,
            self._recover_abandoned,
            self._release_abandoned,
            self._end_overdue,
            self._release_lapsed,
            self._give_up_held,
            self._release_held,
            self._probe_suspended,
            self._bury_expired_calls,
            self._remove_deliveries,
            self._remove_events,
            self._remove_origins,
            self._remove_expired_webhooks,
            self._remove_tombstones,
            self._remove_proofs,
            self._keep_scheduling_time,
        )

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                more = await self.run_once()
            except StoreUnavailable:
                log.warning("janitor.store_unavailable")
                more = False
            await first_of(stop.wait(), self._clock.sleep(PAUSE_SECONDS if more else self._config.every_seconds))

    async def run_once(self) -> bool:
        """One batch of every chore; whether any of them has more to do.

        A round that a failure has cut short goes on, the next time, with the chore after the one that failed.
        """
        more = False
        for _ in self._chores:
            chore = self._chores[self._turn % len(self._chores)]
            self._turn += 1
            more |= await self._store.write(chore)
        return more

    # -- chores: each returns whether there may be more of it --

    async def _recover_abandoned(self, tx: Transaction) -> bool:
        """Calls that a process of before has left running. No such call can come up later, so this is over one day."""
        owner, limit = self._config.only_owner, min(ENDED_AT_ONCE, self._config.batch)
        if owner is None or self._no_abandoned_calls:
            return False
        abandoned = await tx.call_queue.abandoned(owner=owner, limit=limit)
        await self._recover(tx, abandoned)
        self._no_abandoned_calls = not abandoned
        return len(abandoned) == limit

    async def _release_abandoned(self, tx: Transaction) -> bool:
        """Deliveries that a process of before has left leased: they go again, under the same webhook-id."""
        owner, limit = self._config.only_owner, self._config.batch
        if owner is None or self._no_abandoned_deliveries:
            return False
        released = await tx.delivery_upkeep.release_abandoned(owner=owner, limit=limit)
        if released:
            tx.ring(DUE)
        self._no_abandoned_deliveries = not released
        return released == limit

    async def _recover_lapsed(self, tx: Transaction) -> bool:
        """Calls whose runner has died: queued again if they can be, else the truth, which is that nobody knows."""
        if not self._suspensions.has_been_awake(RESUME_GRACE_SECONDS, now=tx.now()):
            return False
        limit = min(ENDED_AT_ONCE, self._config.batch)
        lapsed = await tx.call_queue.lapsed(now=tx.now() - seconds(LAPSE_GRACE_SECONDS), limit=limit)
        await self._recover(tx, lapsed)
        return len(lapsed) == limit

    async def _recover(self, tx: Transaction, lost: Sequence[Call]) -> None:
        for call in lost:
            recovered = recover(call, now=tx.now())
            if isinstance(recovered, Ending):
                await self._finish(tx, call, recovered)
            else:
                await tx.calls.update(recovered, Change.QUEUED, expected=call.status, lease_token=None)
                tx.ring(QUEUED, changed(call.id))

    async def _end_overdue(self, tx: Transaction) -> bool:
        """Calls that waited for a runner, for answers, or for a report, until their deadline had passed."""
        late, limit = tx.now() - seconds(OVERDUE_GRACE_SECONDS), min(ENDED_AT_ONCE, self._config.batch)
        ended = 0
        for call in await tx.call_queue.overdue(now=tx.now(), limit=limit):
            if call.phase is Phase.PARKED or left_nothing(call) or call.deadline_at <= late:
                await self._finish(tx, call, VANISHED if is_reported(call) else overdue(call))
                ended += 1
        return ended == limit

    async def _finish(self, tx: Transaction, call: Call, ending: Ending) -> None:
        if await self._recorder.finish(tx, call, ending, lease_token=None):
            log.info("call.finished", extra={"call_id": call.id, "outcome": str(ending.outcome)})

    async def _release_lapsed(self, tx: Transaction) -> bool:
        """Deliveries whose dispatcher has died: they go again, under the same webhook-id."""
        if not self._suspensions.has_been_awake(RESUME_GRACE_SECONDS, now=tx.now()):
            return False
        released = await tx.delivery_upkeep.release_lapsed(now=tx.now(), limit=self._config.batch)
        if released:
            tx.ring(DUE)
        return released == self._config.batch

    async def _give_up_held(self, tx: Transaction) -> bool:
        """Deliveries whose receiver did not come back in time; it will be told from where to poll.

        What is pending is the dispatcher's to give up, after a last attempt.
        """
        given_up = await tx.delivery_upkeep.give_up_held(now=tx.now(), limit=self._config.batch)
        await write_off(tx, given_up)
        return len(given_up) == self._config.batch

    async def _release_held(self, tx: Transaction) -> bool:
        """What is still held of webhooks that are active again, a step of each."""
        active = await tx.delivery_upkeep.to_release(limit=WEBHOOKS_AT_ONCE, after=self._release_after)
        released = [await tx.delivery_lanes.release(each, now=tx.now(), limit=RELEASE_STEP) for each in active]
        if any(released):
            tx.ring(DUE)
        full = RELEASE_STEP in released
        place = self._release_after if full else active.next_place

        def go_on(committed: bool) -> None:  # noqa: FBT001 - what `at_end` tells
            if committed:
                self._release_after = place or ""

        tx.at_end(go_on)
        return full or active.next_place is not None

    async def _probe_suspended(self, tx: Transaction) -> bool:
        """One held delivery of each suspended webhook whose pause is over: if it is answered, the webhook is active again."""
        silent = await tx.delivery_upkeep.to_probe(now=tx.now(), limit=self._config.batch, after=self._probe_after)
        for webhook_id in silent:
            await tx.delivery_lanes.release(webhook_id, now=tx.now(), limit=1)
        if silent:
            tx.ring(DUE)

        def go_on(committed: bool) -> None:  # noqa: FBT001 - what `at_end` tells
            if committed:
                self._probe_after = silent.next_place or ""

        tx.at_end(go_on)
        return silent.next_place is not None

    async def _remove_expired_webhooks(self, tx: Transaction) -> bool:
        """Webhooks past their day; those of which something is still open are looked at again in the next round."""
        removed = await tx.webhooks.remove_expired(now=tx.now(), limit=self._config.batch, after=self._expired_after)

        def go_on(committed: bool) -> None:  # noqa: FBT001 - what `at_end` tells
            if committed:
                self._expired_after = removed.next_place

        tx.at_end(go_on)
        return removed.next_place is not None

    async def _bury_expired_calls(self, tx: Transaction) -> bool:
        expired = await tx.call_queue.expired(now=tx.now(), limit=self._config.batch)
        for call in expired:
            await tx.tombstones.bury(
                Tombstone(
                    call_id=call.id,
                    principal=call.principal,
                    idempotency_key=call.idempotency_key,
                    request_hash=call.request_hash,
                    expired_at=tx.now(),
                )
            )
        return len(expired) == self._config.batch

    async def _remove_deliveries(self, tx: Transaction) -> bool:
        return self._full(await tx.deliveries.remove(older_than=self._end_of_events(tx), limit=self._config.batch))

    async def _remove_events(self, tx: Transaction) -> bool:
        return self._full(await tx.events.remove(older_than=self._end_of_events(tx), limit=self._config.batch))

    async def _remove_origins(self, tx: Transaction) -> bool:
        return self._full(await tx.origins.remove(older_than=self._end_of_events(tx), limit=self._config.batch))

    async def _remove_tombstones(self, tx: Transaction) -> bool:
        old = tx.now() - seconds(self._config.retention.tombstone_seconds)
        return self._full(await tx.tombstones.remove(older_than=old, limit=self._config.batch))

    async def _remove_proofs(self, tx: Transaction) -> bool:
        proofs = await tx.proofs.remove(older_than=tx.now() - seconds(PROOF_SECONDS), limit=self._config.batch)
        sent = await tx.challenges.forget(older_than=tx.now() - seconds(RATE_SECONDS), limit=self._config.batch)
        return self._full(max(proofs, sent))

    async def _keep_scheduling_time(self, tx: Transaction) -> bool:
        """Once a minute, because it is the one thing that an idle service writes."""
        last, now = self._kept_scheduling_time, tx.now()
        if last is None or now - last >= seconds(KEEP_TIME_SECONDS):
            await tx.scheduling_time.keep(now)

            def note(committed: bool) -> None:  # noqa: FBT001 - what `at_end` tells
                if committed:
                    self._kept_scheduling_time = now

            tx.at_end(note)
        return False

    def _end_of_events(self, tx: Transaction) -> datetime:
        return tx.now() - seconds(self._config.retention.event_seconds)

    def _full(self, rows: int) -> bool:
        return rows >= self._config.batch
