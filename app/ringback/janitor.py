"""The janitor: puts right what the dead have left, and removes what is past its day. Bounded batches, one transaction each."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from ringback.domain.call import Call, Ending, Phase, left_nothing, overdue
from ringback.domain.call_rows import Tombstone
from ringback.domain.clock import seconds
from ringback.domain.errors import StoreUnavailable
from ringback.domain.health import RELEASE_STEP
from ringback.domain.ports import Store, Transaction
from ringback.domain.recovery import recover
from ringback.domain.reported import VANISHED, is_reported
from ringback.domain.retry import LADDERS
from ringback.domain.signals import DUE, QUEUED, changed
from ringback.domain.verification import PROOF_SECONDS, RATE_SECONDS
from ringback.domain.webhook_rows import ExpiredPlace
from ringback.notifier.record import Recorder
from ringback.notifier.settlement import write_off
from ringback.waits import first_of

log = logging.getLogger(__name__)

WEBHOOKS_AT_ONCE: Final = 4
"""Times `RELEASE_STEP`: with a full step of each, a chore still takes some tens of milliseconds."""
GIVE_UP_SECONDS: Final = max(ladder.give_up_seconds for ladder in LADDERS.values())
OVERDUE_GRACE_SECONDS: Final = 60.0
"""How long a runner has for telling the upstream of a queued call that its time is up. Without one it ends all the same."""
LAPSE_GRACE_SECONDS: Final = 15.0
"""How long a lease may have run out before its holder counts as dead: it may only have been kept from prolonging it."""


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
    batch: int = 500


class Janitor:
    name = "janitor"

    def __init__(
        self, *, store: Store, recorder: Recorder, sleep: Callable[[float], Awaitable[None]], config: JanitorConfig
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._sleep = sleep
        self._config = config
        self._release_after = ""
        self._probe_after = ""
        self._expired_after: ExpiredPlace | None = None

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                busy = await self.run_once()
            except StoreUnavailable:
                log.warning("janitor.store_unavailable")
                busy = False
            if not busy:
                await first_of(stop.wait(), self._sleep(self._config.every_seconds))

    async def run_once(self) -> bool:
        """One round of every chore; whether any of them filled its batch and should be run again at once."""
        chores = (
            self._recover_the_lost,
            self._end_the_overdue,
            self._release_deliveries,
            self._give_up_held,
            self._release_held,
            self._probe_suspended,
            self._bury_expired_calls,
            self._remove_expired_webhooks,
            self._remove_old,
        )
        return any([await self._store.write(chore) >= self._config.batch for chore in chores])

    async def recover(self) -> None:
        """At the start of a store that proves to be ours alone: no lease in it can be anybody's. Void them and mend."""

        async def void(tx: Transaction) -> tuple[int, int]:
            return await tx.call_queue.release_all(), await tx.delivery_upkeep.release_all()

        calls, deliveries = await self._store.write(void)
        log.info("leases.voided", extra={"calls": calls, "deliveries": deliveries})
        while await self.run_once():
            pass

    async def _recover_the_lost(self, tx: Transaction) -> int:
        """Calls whose runner has died: queued again if they can be, else the truth, which is that nobody knows."""
        lapsed = await tx.call_queue.lapsed(now=tx.now() - seconds(LAPSE_GRACE_SECONDS), limit=self._config.batch)
        for call in lapsed:
            recovered = recover(call, now=tx.now())
            if isinstance(recovered, Ending):
                await self._finish(tx, call, recovered)
            else:
                await tx.calls.update(recovered, expected=call.status, lease_token=None)
                tx.ring(QUEUED, changed(call.id))
        return len(lapsed)

    async def _end_the_overdue(self, tx: Transaction) -> int:
        """Calls that waited for a runner, for answers, or for a report, until their deadline had passed."""
        late = tx.now() - seconds(OVERDUE_GRACE_SECONDS)
        ended = 0
        for call in await tx.call_queue.overdue(now=tx.now(), limit=self._config.batch):
            if call.phase is Phase.PARKED or left_nothing(call) or call.deadline_at <= late:
                await self._finish(tx, call, VANISHED if is_reported(call) else overdue(call))
                ended += 1
        return ended

    async def _finish(self, tx: Transaction, call: Call, ending: Ending) -> None:
        if await self._recorder.finish(tx, call, ending, lease_token=None):
            log.info("call.finished", extra={"call_id": call.id, "outcome": str(ending.outcome)})

    async def _release_deliveries(self, tx: Transaction) -> int:
        """Deliveries whose dispatcher has died: they go again, under the same webhook-id."""
        released = await tx.delivery_upkeep.release_lapsed(now=tx.now())
        if released:
            tx.ring(DUE)
        return 0  # it releases all of them at once, so there is never a rest

    async def _give_up_held(self, tx: Transaction) -> int:
        """Deliveries whose receiver did not come back in time; it will be told from where to poll.

        What is pending is the dispatcher's to give up, after a last attempt.
        """
        given_up = await tx.delivery_upkeep.give_up_held(now=tx.now(), limit=self._config.batch)
        await write_off(tx, given_up)
        return len(given_up)

    async def _release_held(self, tx: Transaction) -> int:
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
        return self._config.batch if full or active.next_place is not None else sum(released)

    async def _probe_suspended(self, tx: Transaction) -> int:
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
        return len(silent) if silent.next_place is None else self._config.batch

    async def _remove_expired_webhooks(self, tx: Transaction) -> int:
        """Webhooks past their day; those of which something is still open are looked at again in the next round."""
        removed = await tx.webhooks.remove_expired(now=tx.now(), limit=self._config.batch, after=self._expired_after)

        def go_on(committed: bool) -> None:  # noqa: FBT001 - what `at_end` tells
            if committed:
                self._expired_after = removed.next_place

        tx.at_end(go_on)
        return len(removed) if removed.next_place is None else self._config.batch

    async def _bury_expired_calls(self, tx: Transaction) -> int:
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
        return len(expired)

    async def _remove_old(self, tx: Transaction) -> int:
        """Events and ended deliveries past their day, tombstones past theirs; the largest batch."""
        retention, limit = self._config.retention, self._config.batch
        old = tx.now() - seconds(retention.event_seconds)
        return max(
            await tx.deliveries.remove(older_than=old, limit=limit),
            await tx.events.remove(older_than=old, limit=limit),
            await tx.tombstones.remove(older_than=tx.now() - seconds(retention.tombstone_seconds), limit=limit),
            await tx.origins.remove(older_than=old, limit=limit),
            await tx.proofs.remove(older_than=tx.now() - seconds(PROOF_SECONDS), limit=limit),
            await tx.challenges.forget(older_than=tx.now() - seconds(RATE_SECONDS), limit=limit),
        )
