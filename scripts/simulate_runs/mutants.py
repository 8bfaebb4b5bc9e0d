"""Bugs put in on purpose, one at a time, at run time. They prove that the checks find what they look for.

Each mutant replaces functions of Ringback while it is applied. `scripts/simulate --mutants` prints how many seeds it takes to
find each of them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, cast

from ringback.domain import delivery
from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.call_rows import CallChange
from ringback.domain.delivery import DeliveryState, RetryDecision
from ringback.domain.errors import NotFound, StoreUnavailable
from ringback.domain.event_rows import ReservedPlaces
from ringback.domain.log_appends import CallLeaseKey, LeasedCalls, LogAppend
from ringback.domain.ports import Transaction
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.domain.upkeep import Upkeep
from ringback.notifier import attempts, call_ends
from ringback.notifier.batcher import Batcher
from ringback.notifier.call_ends import CompletionRequest, LeasedCompletion
from ringback.notifier.dispatcher import Dispatcher
from ringback.runner.leased_call import LeasedCall
from ringback.runner.permits import Permits
from ringback.runner.runner import Runner
from ringback.services.calls import resume
from ringback.services.calls.call_starts import CallStarter
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.signing.resume_token import ResumeTokenCodec
from ringback.storage.log_appends import StepwiseLogAppends
from ringback.storage.rows.calls import SqlCallQueue
from ringback.storage.rows.deliveries import SqlWebhookDeliveries
from ringback.storage.rows.delivery_queue import SqlDeliveryQueue
from ringback.storage.rows.events import SqlEvents
from ringback.storage.rows.operations import SqlUpkeep
from scripts.simulate_runs.mutant import Mutant, Patch, keep_task
from scripts.simulate_runs.mutants_of_actions import MUTANTS_OF_ACTIONS
from scripts.simulate_runs.mutants_of_logs import MUTANTS_OF_LOGS
from scripts.simulate_runs.node_store import NodeSignals, NodeStore
from scripts.simulate_runs.sessions import NodeSessions

# -- fences and leases --


def _unfence_completions() -> Sequence[Patch]:
    def build_any(call: Call | None, leased: LeasedCompletion) -> CompletionRequest | None:
        if call is None or call.phase is not CallPhase.RUNNING:
            return None
        return CompletionRequest(call=call, completion=leased.completion, lease_token=None)

    async def lock_running_calls(self: Any, leases: Sequence[CallLeaseKey]) -> LeasedCalls:
        return await _lock_calls(self, leases, lambda call: call.phase is CallPhase.RUNNING)

    return [
        (StepwiseLogAppends, "lock_leased_calls", lock_running_calls),
        (call_ends, "build_completion_request", build_any),
    ]


async def _lock_calls(appends: Any, leases: Sequence[CallLeaseKey], is_wanted: Callable[[Call], bool]) -> LeasedCalls:
    """As `lock_leased_calls`, with another condition than the lease."""
    found = await appends._tx.calls.get_many({each.call_id for each in leases})  # noqa: SLF001
    calls = {call.id: call for call in found if is_wanted(call)}
    return LeasedCalls(calls, await appends.reserve_places(Counter(call.principal for call in calls.values())))


def _unfence_dispatch() -> Sequence[Patch]:
    async def write_dispatched(self: Any, tx: Transaction) -> Call:
        call = await tx.calls.get(self.call.id)
        if call is None or call.handle is not None:
            return self.call
        dispatched = replace(call, dispatched_at=tx.now(), updated_at=tx.now(), runs=call.runs + 1)
        await tx.calls.update(dispatched, CallChange.DISPATCHED, expected=call.status, lease_token=None)
        return dispatched

    return [(LeasedCall, "_write_dispatched", write_dispatched)]


def _trust_leases_of_deliveries_too_long() -> Sequence[Patch]:
    def trust(*_args: Any) -> bool:
        return False

    return [(Dispatcher, "_may_outlast_lease", trust)]


def _void_leases_too_early() -> Sequence[Patch]:
    original = SqlCallQueue.find_lease_expired

    async def find_early(self: Any, *, now: Any, owner: str | None = None, **named: Any) -> Any:
        early = timedelta(seconds=40 if owner is None else 0)  # a node that looks for its own unused leases knows them
        return await original(self, now=now + early, owner=owner, **named)

    return [(SqlCallQueue, "find_lease_expired", find_early)]


def _forget_heartbeats() -> Sequence[Patch]:
    async def extend_nothing(self: Any, held_ids: Any) -> None:
        """Leases run out while their holders are alive."""

    return [(Runner, "_extend_leases", extend_nothing)]


def _send_before_dispatch_is_committed() -> Sequence[Patch]:
    async def mark_later(self: Any, *, trusts_lease: bool) -> None:  # noqa: ARG001
        committed, self._committed = self._committed, None
        if committed is not None:
            self.call = committed
            return
        write = asyncio.create_task(self._store.write(self._write_dispatched))
        write.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.call = replace(self.call, dispatched_at=self._clock.now(), runs=self.call.runs + 1)

    return [(LeasedCall, "mark_dispatched", mark_later)]


# -- transactions --


def _append_events_after_commit() -> Sequence[Patch]:
    original_append, original_write = StepwiseLogAppends.write, NodeStore.write
    running: list[NodeStore] = []

    async def write(self: NodeStore, work: Any) -> Any:
        def remember_store(tx: Transaction) -> Any:
            running[:] = [self]
            return work(tx)

        return await original_write(self, remember_store)

    async def append(self: Any, append: LogAppend) -> None:
        if not append.ends or not running:
            await original_append(self, append)
            return
        store, events = running[0], LogAppend(events=append.events, deliveries=append.deliveries)
        await original_append(self, replace(append, events=(), deliveries=()))

        async def append_later() -> None:
            with suppress(StoreUnavailable):
                await original_write(store, lambda later: later.log_appends.write(events))

        self._tx.on_commit(lambda: keep_task(append_later()))

    return [(NodeStore, "write", write), (StepwiseLogAppends, "write", append)]


def _hand_off_before_commit() -> Sequence[Patch]:
    original = Dispatcher._lease_new_delivery  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    class HastyTransaction:
        """A transaction that runs its end actions at once."""

        def __init__(self, tx: Transaction) -> None:
            self._tx = tx

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tx, name)

        def on_commit(self, action: Callable[[], None]) -> None:
            action()

    def lease_hastily(self: Any, group: Any, tx: Any, webhook: Any) -> Any:
        return original(self, group, HastyTransaction(tx), webhook)  # type: ignore[arg-type]

    return [(Dispatcher, "_lease_new_delivery", lease_hastily)]


def _record_ends_twice() -> Sequence[Patch]:
    async def lock_any_calls(self: Any, leases: Sequence[CallLeaseKey]) -> LeasedCalls:
        return await _lock_calls(self, leases, lambda _: True)

    def build_running(call: Call | None, leased: LeasedCompletion) -> CompletionRequest | None:
        if call is None:
            return None
        running = replace(call, status=CallStatus.WORKING, phase=CallPhase.RUNNING)
        return CompletionRequest(call=running, completion=leased.completion, lease_token=leased.lease_token)

    def accept_all(_append: LogAppend, _ended: Any) -> None:
        return None

    return [
        (StepwiseLogAppends, "lock_leased_calls", lock_any_calls),
        (call_ends, "build_completion_request", build_running),
        (LogAppend, "require_all_ended", accept_all),
    ]


def _lose_items_of_repeated_units() -> Sequence[Patch]:
    original = cast("Any", Batcher)._fill_batch  # noqa: SLF001

    def refill(self: Any, batch: list[Any]) -> None:
        batch.clear()
        original(self, batch)

    return [(Batcher, "_fill_batch", refill)]


def _leave_holes_in_logs() -> Sequence[Patch]:
    original = SqlEvents.reserve_places

    async def reserve_one_more(self: Any, principal: Any, count: int) -> ReservedPlaces:
        return await original(self, principal, count + 1)

    return [(SqlEvents, "reserve_places", reserve_one_more)]


# -- promises to clients --


def _forget_idempotency_keys() -> Sequence[Patch]:
    original = CallStarter._build_call  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    async def find_nothing(*_args: Any) -> None:
        return None

    def build_without_key(self: Any, *args: Any, **named: Any) -> Call:
        return replace(original(self, *args, **named), idempotency_key=None)

    return [(CallStarter, "find_known_call", find_nothing), (CallStarter, "_build_call", build_without_key)]


def _lose_wake_ups_and_do_not_poll() -> Sequence[Patch]:
    original_notify, original_init = NodeSignals.notify, Runner.__init__

    def notify(self: NodeSignals, topics: Any) -> None:
        original_notify(self, [topic for topic in topics if topic != CALL_QUEUED_TOPIC])

    def init(self: Runner, **named: Any) -> None:
        original_init(self, **{**named, "config": replace(named["config"], poll_seconds=1e6)})

    return [(NodeSignals, "notify", notify), (Runner, "__init__", init)]


def _ignore_quotas() -> Sequence[Patch]:
    async def allow(*_args: Any, **_named: Any) -> None:
        return None

    return [(QuotaEnforcer, "require_call_quota", allow)]


def _accept_tokens_of_others() -> Sequence[Patch]:
    def salt(*_args: Any) -> str:
        return "one salt for all"

    async def get_any_call(tx: Transaction, _principal: Any, call_id: Any) -> Call:
        call = await tx.calls.get(call_id)
        if call is None:
            raise NotFound("There is no such call.")
        return call

    return [(ResumeTokenCodec, "_salt", salt), (resume, "get_own_call", get_any_call)]


# -- deliveries --


def _never_release_held_deliveries() -> Sequence[Patch]:
    async def release_nothing(*_args: Any, **_named: Any) -> int:
        return 0

    return [(SqlWebhookDeliveries, "release_held", release_nothing)]


def _overlook_ended_leases() -> Sequence[Patch]:
    original = SqlUpkeep.find_first

    async def find_others(self: Any, *, due_after: datetime, latest: datetime) -> Mapping[Upkeep, datetime]:
        found = await original(self, due_after=due_after, latest=latest)
        return {kind: at for kind, at in found.items() if kind not in {Upkeep.CALL_LEASES, Upkeep.DELIVERY_LEASES}}

    return [(SqlUpkeep, "find_first", find_others)]


def _forget_retries() -> Sequence[Patch]:
    original = delivery.decide_retry

    def give_up(*args: Any, **named: Any) -> RetryDecision:
        decision = original(*args, **named)
        return RetryDecision(state=DeliveryState.DEAD) if decision.state is DeliveryState.PENDING else decision

    return [(attempts, "decide_retry", give_up)]


def _ignore_order() -> Sequence[Patch]:
    original: Any = SqlDeliveryQueue.lease_due

    async def lease_any(self: Any, webhook_id: Any, **named: Any) -> Any:
        return await original(self, webhook_id, **{**named, "ordered": False})

    return [(SqlDeliveryQueue, "lease_due", lease_any)]


# -- capacity --


def _lease_beyond_capacity() -> Sequence[Patch]:
    original = NodeSessions.get_capacity

    def get_more(self: NodeSessions) -> Mapping[str, int]:
        return {upstream: capacity + 1 for upstream, capacity in original(self).items()}

    return [(NodeSessions, "get_capacity", get_more)]


def _leave_no_place_to_others() -> Sequence[Patch]:
    def count_all(self: Permits, upstream: str) -> int:
        return self._get_capacity().get(upstream, 0)  # pyright: ignore[reportPrivateUsage] - a mutant

    return [(Permits, "count_each", count_all)]


MUTANTS: Final = (
    Mutant("unfenced end", "an end is recorded without its lease token", _unfence_completions),
    Mutant("unfenced dispatch", "a call is dispatched without a look at its lease", _unfence_dispatch),
    Mutant("late dispatch", "the request is sent before its dispatch is committed", _send_before_dispatch_is_committed),
    Mutant("long lease", "a callback is sent under a lease that has run out", _trust_leases_of_deliveries_too_long),
    Mutant("short lease", "the janitor voids leases before they run out", _void_leases_too_early),
    Mutant("no heartbeat", "leases are never extended", _forget_heartbeats),
    Mutant("event outside", "the event of an end is written in a second transaction", _append_events_after_commit),
    Mutant("early hand-off", "a callback is sent before its event is committed", _hand_off_before_commit),
    Mutant("second end", "an end is recorded although the call has ended", _record_ends_twice),
    Mutant("forgetful unit", "a unit that runs again loses what its first run took", _lose_items_of_repeated_units),
    Mutant("hole in the log", "a position of the log is reserved and not used", _leave_holes_in_logs),
    Mutant("no deduplication", "an idempotency key starts a second call", _forget_idempotency_keys),
    Mutant("lost wake-up", "queued calls wake no runner, and runners do not poll", _lose_wake_ups_and_do_not_poll),
    Mutant("no quota", "open calls are not counted", _ignore_quotas),
    Mutant("wide token", "a resume token works for every principal", _accept_tokens_of_others),
    Mutant("held for ever", "held deliveries are never released", _never_release_held_deliveries),
    Mutant("overlooked lease", "the janitor does not see which leases have ended", _overlook_ended_leases),
    Mutant("no retry", "the first failed attempt is the last", _forget_retries),
    Mutant("no order", "an ordered webhook gets several deliveries at once", _ignore_order),
    Mutant("no capacity", "a runner leases one call more than its upstream takes", _lease_beyond_capacity),
    Mutant("no place left", "one principal may have all places of an upstream", _leave_no_place_to_others),
    *MUTANTS_OF_ACTIONS,
    *MUTANTS_OF_LOGS,
)
