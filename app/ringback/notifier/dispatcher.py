"""The dispatcher: sends due deliveries, and deliveries that fan-out has just inserted as leased.

fan_out ── post_commit: inserted as leased ──┐
leasing ── due, leased ──────────────────────┴▶ attempt ──▶ http.Sender.post ──▶ Batcher ──▶ AttemptRecorder
▲                                                                               │
└──────────────────────── concurrency_limiter: a permit is free ◀───────────────┘
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from ringback.admission import AdmissionGate
from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.clock import Clock, seconds
from ringback.domain.delivery import Attempt, AttemptResult, Delivery
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC, Waiter
from ringback.domain.webhook import Webhook, signing_secrets
from ringback.log_context import add_log_facts
from ringback.measurements import Measurements
from ringback.notifier.attempt_spans import AttemptTracer, end_attempt_span
from ringback.notifier.attempts import (
    AttemptRecorder,
    FinishedAttempt,
    RecordedAttempt,
    log_attempts,
    log_unrecorded_attempts,
    redact_result,
)
from ringback.notifier.batcher import Batcher
from ringback.notifier.concurrency_limiter import ConcurrencyLimiter, ConcurrencyLimits
from ringback.notifier.delivery_facts import delivery_facts
from ringback.notifier.http.sender import ATTEMPT_SECONDS, Sender
from ringback.notifier.http.target import Target, TargetCache, TargetPolicy
from ringback.notifier.leasing import DeliveryLeasing, LeasedBatch, LeasedDelivery
from ringback.notifier.payload import build_callback_headers, choose_message_id
from ringback.notifier.permits import Permit
from ringback.notifier.recorder import Recorder
from ringback.post_commit import DeliveryHandoff, DeliveryLease
from ringback.signing.ed25519 import SigningKey
from ringback.waits import notify_when_set

log = logging.getLogger(__name__)


RECORD_AGAIN_SECONDS: Final = 1.0
"""The pause before attempts that the store refused are recorded again."""
RELEASE_UNUSED_SECONDS: Final = 5.0
"""A lost commit is rare, and its deliveries then wait for half of this on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfig(ConcurrencyLimits):
    owner: str
    """Names this process in leases."""
    lease_seconds: float = 30.0
    poll_seconds: float = 1.0
    """The longest delay after a missed notification, and after the end of a circuit breaker's pause."""

    def __post_init__(self) -> None:
        if self.lease_seconds < 2 * ATTEMPT_SECONDS:
            raise ValueError(
                f"lease_seconds must be at least {2 * ATTEMPT_SECONDS}: an attempt must end within its lease"
            )


AttemptBatcher = Batcher[FinishedAttempt, Sequence[RecordedAttempt]]


class Dispatcher:
    name = "dispatcher"

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        sender: Sender,
        recorder: Recorder,
        delivery_handoff: DeliveryHandoff,
        measurements: Measurements,
        policy: TargetPolicy,
        random_fraction: Callable[[], float],
        admission: AdmissionGate | None = None,
        config: DispatcherConfig,
        signing_keys: Sequence[SigningKey] = (),
        attempt_tracer: AttemptTracer | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._ids = ids
        self._sender = sender
        self._signing_keys = signing_keys
        self._attempt_tracer = attempt_tracer
        self._admission = admission or AdmissionGate()
        self._delivery_handoff = delivery_handoff
        self._measurements = measurements
        self._target_cache = target_cache = TargetCache(policy)
        self._limiter = limiter = ConcurrencyLimiter(config)
        self._leasing = DeliveryLeasing(
            store=store,
            ids=ids,
            limiter=limiter,
            target_cache=target_cache,
            owner=config.owner,
            lease_seconds=config.lease_seconds,
            clock=clock,
            measurements=measurements,
        )
        attempts = AttemptRecorder(recorder=recorder, ids=ids, limiter=limiter, random_fraction=random_fraction)
        self._attempt_batcher: AttemptBatcher = Batcher(
            store=store,
            write_batch=attempts.record_attempts,
            on_written=self._complete_recorded,
            on_failed=self._complete_unrecorded,
            principal_of=lambda finished: finished.delivery.principal,
        )
        self._waiter: Waiter | None = None
        """Of `run`."""
        self._unleased_due_at: datetime | None = None
        """The due time of the oldest delivery that one more lease query has not leased."""
        self._handoff_attempts: asyncio.TaskGroup | None = None
        """The attempts of handed-off deliveries, while the dispatcher accepts them."""
        self._release_unused_at = 0.0
        self._unrecorded: list[FinishedAttempt] = []
        """Attempts that the store refused. They keep their permits."""
        self._record_again_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Dispatch until `stop` is set, then wait for the attempts in flight, each of which ends within its deadline."""
        try:
            async with asyncio.TaskGroup() as attempts:
                with self._store.signals.listen(DELIVERY_DUE_TOPIC) as self._waiter, self._accept_handoffs(attempts):
                    async with notify_when_set(self._waiter, stop):
                        while not stop.is_set():
                            self._record_again_in_time()
                            batch = await self._lease_due_or_nothing()
                            self._start_batch(attempts, batch)
                            if not batch.has_more:
                                await self._wait_for_work(self._waiter, batch.idle_seconds)
                        self._leasing.follow_ups.cancel()
        finally:
            self._leasing.stop_watching()
            await self._attempt_batcher.drain()
            self._record_again()
            await self._attempt_batcher.drain()

    async def run_once(self) -> int:
        """Lease once, and make one attempt for each leased delivery; returns their number."""
        self._record_again_in_time()
        batch = await self._leasing.lease_due()
        async with asyncio.TaskGroup() as attempts:
            self._start_batch(attempts, batch)
        await self._attempt_batcher.drain()
        return len(batch.deliveries)

    @contextmanager
    def _accept_handoffs(self, attempts: asyncio.TaskGroup) -> Generator[None]:
        self._handoff_attempts = attempts
        try:
            with self._delivery_handoff.attach(partial(self._lease_new_delivery, attempts)):
                yield
        finally:
            self._handoff_attempts = None

    def _lease_new_delivery(
        self, attempts: asyncio.TaskGroup, tx: Transaction, webhook: Webhook
    ) -> DeliveryLease | None:
        """The lease with which fan-out inserts a delivery; None if the webhook has to wait for a permit."""
        permit = self._leasing.acquire_handoff_permit(tx, webhook)
        if permit is None:
            return None

        def hand_off(delivery: Delivery) -> None:
            counted = self._limiter.count_body(permit, delivery.body)  # before the next webhook asks for a permit
            tx.on_rollback(partial(self._limiter.discount_body, counted))
            leased = LeasedDelivery(delivery=delivery, webhook=webhook, permit=counted)
            tx.on_commit(partial(self._start_handed_off, attempts, leased))

        return self._leasing.grant_lease(tx, hand_off)

    def _start_handed_off(self, attempts: asyncio.TaskGroup, leased: LeasedDelivery) -> None:
        if self._handoff_attempts is attempts:
            self._start_attempt(attempts, leased)
        else:  # committed while the dispatcher stopped: the lease expires, or the janitor voids it at the next start
            self._limiter.release_permit(leased.permit)

    def _start_batch(self, attempts: asyncio.TaskGroup, batch: LeasedBatch) -> None:
        for leased in batch.deliveries:
            permit = self._limiter.count_body(leased.permit, leased.delivery.body)
            self._start_attempt(attempts, replace(leased, permit=permit))
        self._leasing.follow_ups.start_units(attempts, batch.follow_ups, on_end=self._wake)

    def _start_attempt(self, attempts: asyncio.TaskGroup, leased: LeasedDelivery) -> None:
        attempt = self._run_attempt(leased)
        try:
            task = attempts.create_task(attempt)
        except RuntimeError:  # the task group is ending because of a bug: the lease of this delivery expires
            attempt.close()
            self._release_permit(leased.permit)
        else:
            task.add_done_callback(partial(self._release_unused_permit, leased.permit))

    def _release_unused_permit(self, permit: Permit, attempt: asyncio.Task[bool]) -> None:
        """A callback, because a task that is cancelled before its first step runs no `except`."""
        if attempt.cancelled() or attempt.exception() is not None or not attempt.result():
            self._release_permit(permit)

    async def _lease_due_or_nothing(self) -> LeasedBatch:
        try:
            if self._clock.monotonic() >= self._release_unused_at:
                self._release_unused_at = self._clock.monotonic() + RELEASE_UNUSED_SECONDS
                await self._leasing.release_unused()
            return await self._leasing.lease_due()
        except StoreUnavailable:
            log.debug("deliveries.lease_failed")
            return LeasedBatch([], has_more=False)

    async def _wait_for_work(self, waiter: Waiter, idle_seconds: float | None) -> None:
        """Wait until a delivery is due, a waiting webhook may get a permit, or the poll interval is over.

        What was notified during the last lease is leased at once: reading when to wake is three round trips to PostgreSQL.
        """
        if idle_seconds is not None:
            await waiter.wait(min(idle_seconds, self._config.poll_seconds))
        elif not await waiter.wait(0.0):
            await waiter.wait(await self._seconds_until_due())

    async def _seconds_until_due(self) -> float:
        async def next_due(tx: Transaction) -> float | None:
            permit_in = self._limiter.backlogs.seconds_until_permit(now=tx.now())
            due = await tx.delivery_queue.next_due_at()
            if due is None or due == self._unleased_due_at:
                return permit_in
            if due <= tx.now():
                self._unleased_due_at = due  # it may have become due after the last lease query: query once more
            due_in = max(0.0, (due - tx.now()).total_seconds())
            return due_in if permit_in is None else min(due_in, permit_in)

        try:
            due_in = await self._store.read(next_due)
        except StoreUnavailable:
            due_in = None
        # A delivery that two queries did not lease waits for a permit, which wakes the dispatcher, or for the end of a pause.
        return self._config.poll_seconds if due_in is None else min(due_in, self._config.poll_seconds)

    async def _run_attempt(self, leased: LeasedDelivery) -> bool:
        """Whether an attempt was made. Its permit is then released after it is recorded."""
        delivery = leased.delivery
        add_log_facts(delivery_id=delivery.id, webhook_id=delivery.webhook_id, call_id=delivery.call_id)
        await self._admission.wait_for_background_turn(delivery.principal, is_attempt=True)
        if self._may_outlast_lease(leased):  # whichever process leases it after this lease expires sends it
            log.warning("delivery.held_too_long", extra=delivery_facts(delivery))
            return False
        await self._make_attempt(leased)
        return True

    async def _make_attempt(self, leased: LeasedDelivery) -> None:
        started_at, started_monotonic = self._clock.wall_time(), self._clock.monotonic()
        result = await self._post_callback(leased, signed_at=started_at)
        attempt = Attempt(
            id=self._ids.new_attempt_id(),
            delivery_id=leased.delivery.id,
            number=leased.delivery.attempts,
            started_at=started_at,
            duration_ms=round((self._clock.monotonic() - started_monotonic) * 1000),
            category=result.category,
            status_code=result.status_code,
            excerpt=result.excerpt,
            detail=result.detail,
        )
        self._attempt_batcher.submit(
            FinishedAttempt(
                delivery=leased.delivery,
                attempt=attempt,
                result=result,
                origin=leased.permit.receiver_key.origin,
                permit=leased.permit,
            )
        )

    def _may_outlast_lease(self, leased: LeasedDelivery) -> bool:
        """Whether the attempt started so late that it could outlast its lease and overlap with another attempt."""
        until = leased.delivery.lease_until
        return until is not None and until < self._clock.now() + seconds(ATTEMPT_SECONDS)

    async def _post_callback(self, leased: LeasedDelivery, *, signed_at: datetime) -> AttemptResult:
        delivery, webhook = leased.delivery, leased.webhook
        target = self._target_cache.get_target(webhook.url)
        if target is None:
            return AttemptResult(category=AttemptCategory.URL_NOT_ALLOWED)
        try:
            headers = build_callback_headers(
                webhook_id=webhook.id,
                message_id=choose_message_id(delivery, webhook),
                body=delivery.body,
                secrets=signing_secrets(webhook, now=self._clock.now()),
                signing_keys=self._signing_keys,
                now=signed_at,
            )
            result = await self._post_traced(leased, target, dict(webhook.headers) | headers)
            return redact_result(result, webhook.headers)
        except Exception:  # a bug in the sender, which may be the user's own, must not affect other deliveries
            log.exception("delivery.sender_failed", extra=delivery_facts(delivery))
            return AttemptResult(category=AttemptCategory.INTERNAL_ERROR)

    async def _post_traced(self, leased: LeasedDelivery, target: Target, headers: Mapping[str, str]) -> AttemptResult:
        if self._attempt_tracer is None:
            return await self._post(leased.delivery, target, headers)
        span = self._attempt_tracer.start_span(leased, target)
        result = AttemptResult(category=AttemptCategory.INTERNAL_ERROR)
        try:
            traced = {**headers, **self._attempt_tracer.build_headers(span, headers)}
            result = await self._post(leased.delivery, target, traced)
            return result
        finally:
            end_attempt_span(span, result)

    async def _post(self, delivery: Delivery, target: Target, headers: Mapping[str, str]) -> AttemptResult:
        return await self._sender.post(
            target, headers, delivery.body, principal=delivery.principal, deadline_seconds=ATTEMPT_SECONDS
        )

    def _complete_recorded(self, batch: Sequence[FinishedAttempt], recorded: Sequence[RecordedAttempt]) -> None:
        log_attempts(batch, recorded)
        for finished, update in recorded:
            self._measurements.record_attempt(finished.result.category, update)
        for finished in batch:
            self._release_permit(finished.permit)

    def _complete_unrecorded(self, batch: Sequence[FinishedAttempt], error: Exception) -> None:
        """Keep the attempts if the store is unavailable; the other deliveries are sent again when their leases expire."""
        log_unrecorded_attempts(batch, error)
        if isinstance(error, StoreUnavailable):
            self._unrecorded += [replace(finished, was_refused=True) for finished in batch]
            self._record_again_at = self._clock.monotonic() + RECORD_AGAIN_SECONDS
            return
        for finished in batch:
            self._release_permit(finished.permit)

    def _record_again_in_time(self) -> None:
        if self._clock.monotonic() >= self._record_again_at:
            self._record_again()

    def _record_again(self) -> None:
        """Record the attempts that the store refused, while their leases last."""
        refused, self._unrecorded = self._unrecorded, []
        now = self._clock.now()
        self._attempt_batcher.submit_apart([each for each in refused if _is_leased(each.delivery, now)])
        for finished in refused:
            if not _is_leased(finished.delivery, now):
                self._release_permit(finished.permit)

    def _release_permit(self, permit: Permit) -> None:
        if self._limiter.release_permit(permit):
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            self._waiter.notify()


def _is_leased(delivery: Delivery, now: datetime) -> bool:
    return delivery.lease_until is not None and now < delivery.lease_until
