"""The dispatcher: sends what is due and what is just born, each in an attempt of its own.

handover ─born leased──┐
claims ──due, leased───┴▶ attempt ──▶ sender.post ──▶ settler ──▶ one unit of work for many
   ▲                                                     │
   └─────────────── a slot is free again ◀───────────────┘
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from ringback.admission import AdmissionGate
from ringback.domain.clock import Clock, seconds
from ringback.domain.delivery import Answer, Attempt, Category, Delivery
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import Ids
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import DUE, Bell
from ringback.domain.webhook import Webhook, signing_secrets
from ringback.notifier.claims import Claimed, Claims, Leased
from ringback.notifier.handover import Lease
from ringback.notifier.headers import callback_headers
from ringback.notifier.lanes import LaneLimits, Lanes
from ringback.notifier.record import Recorder
from ringback.notifier.sender import ATTEMPT_SECONDS, Sender
from ringback.notifier.settlement import Outcome, Settlement
from ringback.notifier.settler import Settler
from ringback.notifier.target_guard import TargetPolicy
from ringback.notifier.targets import Targets
from ringback.signing.ed25519 import SigningKey
from ringback.waits import first_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfig(LaneLimits):
    owner: str
    """Names this process in leases."""
    lease_seconds: float = 30.0
    poll_seconds: float = 1.0
    """How long a missed ring can cost, and how late a pause is noticed to be over."""

    def __post_init__(self) -> None:
        if self.lease_seconds < 2 * ATTEMPT_SECONDS:
            raise ValueError(
                f"lease_seconds must be at least {2 * ATTEMPT_SECONDS}: an attempt must end within its lease"
            )


class Dispatcher:
    name = "dispatcher"

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: Ids,
        sender: Sender,
        recorder: Recorder,
        policy: TargetPolicy,
        chance: Callable[[], float],
        admission: AdmissionGate | None = None,
        config: DispatcherConfig,
        signing_keys: Sequence[SigningKey] = (),
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._ids = ids
        self._sender = sender
        self._keys = signing_keys
        self._admission = admission or AdmissionGate()
        self._handover = recorder.handover
        self._targets = Targets(policy)
        self._lanes = Lanes(self._config)
        self._claims = Claims(
            store=store,
            ids=ids,
            lanes=self._lanes,
            targets=self._targets,
            owner=config.owner,
            lease_seconds=config.lease_seconds,
        )
        settlement = Settlement(recorder=recorder, ids=ids, lanes=self._lanes, chance=chance)
        self._settler = Settler(store=store, settlement=settlement, on_settled=self._leave)
        self._room = asyncio.Event()
        self._overdue: datetime | None = None
        """When the oldest delivery became due that was claimed for once more and yet was not leased."""
        self._taking: str | None = None
        """The token of what is born leased, while it is taken."""

    async def run(self, stop: asyncio.Event) -> None:
        """Dispatch until told to stop; then let the attempts in flight end, which each does within its deadline."""
        try:
            async with asyncio.TaskGroup() as attempts:
                with self._store.signals.listen(DUE) as bell, self._taking_births(attempts):
                    while not stop.is_set():
                        claimed = await self._claim_or_nothing()
                        for leased in claimed.leased:
                            attempts.create_task(self._attempt(leased))
                        if not claimed.more:
                            await self._idle(bell, stop)
        finally:
            await self._settler.drain()

    async def run_once(self) -> int:
        """Claim once and finish everything that was claimed; how many deliveries that were."""
        claimed = await self._claims.claim()
        async with asyncio.TaskGroup() as attempts:
            for leased in claimed.leased:
                attempts.create_task(self._attempt(leased))
        await self._settler.drain()
        return len(claimed.leased)

    @contextmanager
    def _taking_births(self, attempts: asyncio.TaskGroup) -> Generator[None]:
        token = self._taking = self._ids.lease()

        def grant(tx: Transaction, webhook: Webhook) -> Lease | None:
            slot = self._claims.slot_at_birth(tx, webhook)
            if slot is None:
                return None

            def hand_over(delivery: Delivery) -> None:
                leased = Leased(delivery=delivery, webhook=webhook, slot=slot)
                tx.at_end(partial(self._begin, attempts, leased))

            return Lease(self._config.owner, token, tx.now() + seconds(self._config.lease_seconds), hand_over)

        try:
            with self._handover.open(grant):
                yield
        finally:
            self._taking = None

    def _begin(self, attempts: asyncio.TaskGroup, leased: Leased, committed: bool) -> None:  # noqa: FBT001 - what `at_end` tells
        if not committed:
            return  # the claim gives its slot back
        if leased.delivery.lease_token == self._taking:
            attempts.create_task(self._attempt(leased))
        else:  # committed while the dispatcher stopped: its lease runs out, or is voided at the next start
            self._lanes.leave(leased.slot)

    async def _claim_or_nothing(self) -> Claimed:
        self._room.clear()
        try:
            return await self._claims.claim()
        except StoreUnavailable:
            log.warning("deliveries.claim_failed")
            return Claimed([], more=False)

    async def _idle(self, bell: Bell, stop: asyncio.Event) -> None:
        """Until something is due, room was made for somebody who waits, or the poll interval is over."""
        await first_of(bell.wait(await self._until_next_due()), self._room.wait(), stop.wait())

    async def _until_next_due(self) -> float:
        async def next_due(tx: Transaction) -> float | None:
            due = await tx.delivery_queue.next_due()
            if due is None or due == self._overdue:
                return None
            if due <= tx.now():
                self._overdue = due  # perhaps it became due after the last claim: one more claim decides
            return max(0.0, (due - tx.now()).total_seconds())

        try:
            due_in = await self._store.read(next_due)
        except StoreUnavailable:
            due_in = None
        # What is due and was not leased twice waits for room, which rings by itself, or for the end of a pause.
        return self._config.poll_seconds if due_in is None else min(due_in, self._config.poll_seconds)

    async def _attempt(self, leased: Leased) -> None:
        try:
            await self._admission.pass_background()
            if self._is_too_late(leased):
                self._let_go(leased)
                return
            started_at, began = self._clock.wall(), self._clock.monotonic()
            answer = await self._post(leased, signed_at=started_at)
        except asyncio.CancelledError:
            self._lanes.leave(leased.slot)
            raise
        attempt = Attempt(
            id=self._ids.attempt(),
            delivery_id=leased.delivery.id,
            number=leased.delivery.attempts,
            started_at=started_at,
            duration_ms=round((self._clock.monotonic() - began) * 1000),
            category=answer.category,
            status_code=answer.status_code,
            excerpt=answer.excerpt,
        )
        self._settler.add(
            Outcome(
                delivery=leased.delivery,
                attempt=attempt,
                answer=answer,
                origin=leased.slot.receiver.origin,
                slot=leased.slot,
            )
        )

    def _is_too_late(self, leased: Leased) -> bool:
        """Whether the attempt might outlast its lease, because it was held for so long: then somebody else may send it too."""
        until = leased.delivery.lease_until
        return until is not None and until < self._clock.now() + seconds(ATTEMPT_SECONDS)

    def _let_go(self, leased: Leased) -> None:
        """It is sent again once its lease has run out."""
        log.warning("delivery.held_too_long", extra={"delivery_id": leased.delivery.id})
        if self._lanes.leave(leased.slot):
            self._room.set()

    async def _post(self, leased: Leased, *, signed_at: datetime) -> Answer:
        delivery, webhook = leased.delivery, leased.webhook
        target = self._targets.of(webhook.url)
        if target is None:
            return Answer(category=Category.CONNECTION_REFUSED)
        try:
            headers = callback_headers(
                webhook_id=webhook.id,
                message_id=delivery.message_id,
                body=delivery.body,
                secrets=signing_secrets(webhook, now=self._clock.now()),
                keys=self._keys,
                now=signed_at,
            )
            return await self._sender.post(
                target, headers, delivery.body, principal=delivery.principal, deadline_seconds=ATTEMPT_SECONDS
            )
        except Exception:  # the boundary between a sender, which may be a user's own, and everybody else's deliveries
            log.exception("delivery.sender_failed", extra={"delivery_id": delivery.id})
            return Answer(category=Category.CONNECTION_REFUSED)

    def _leave(self, outcome: Outcome) -> None:
        if self._lanes.leave(outcome.slot):
            self._room.set()
