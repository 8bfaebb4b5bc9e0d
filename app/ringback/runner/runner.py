"""The runner leases queued calls, as many as each upstream takes, and runs each in a task of its own."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, Final, NamedTuple

from ringback.admission import AdmissionGate
from ringback.attended_calls import AttendedCalls
from ringback.domain.call import Call, is_dispatched_by_lease
from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import CallId, IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.log_context import log_facts
from ringback.notifier.completion_batcher import CompletionBatcher
from ringback.notifier.recorder import Recorder
from ringback.post_commit import CallHandoff
from ringback.runner.drivers.driver import CallSessionProvider
from ringback.runner.execution import CallExecution, ShutdownSignal
from ringback.runner.held_execution import HeldExecution
from ringback.runner.key_owner_watch import KeyOwnerWatch
from ringback.runner.leasing import CallLeasing, PossibleCallers, RunnerConfig
from ringback.runner.lost_leases import LostLeases
from ringback.runner.permits import CallPermit
from ringback.runner.run_spans import trace_run
from ringback.services.logins.login_waits import LoginWaits
from ringback.telemetry.logs import call_facts
from ringback.telemetry.spans import Tracer
from ringback.upstreams.notification_hub import NotificationHub
from ringback.waits import LocalWaiter, notify_when_set, wait_first

log = logging.getLogger(__name__)

LOCKED_UNITS_MAX: Final = 64
"""Units that extend leases of locked rows, most often one row each: a row that stays locked delays those of its unit."""
EXTEND_SECONDS_MAX: Final = 10.0
"""How long one extension of the leases may take: a heartbeat. One that hangs must not prevent the next."""
QUEUE_DUE_BATCH_SIZE: Final = 200
"""Scheduled calls that one transaction queues: some 5 ms. If more are due, the next transaction follows at once."""


_StartExecution = Callable[[Call, float, asyncio.Event, CallPermit], "asyncio.Task[None] | None"]


class _LeasedCalls(NamedTuple):
    leased: Sequence[Call]
    pause_seconds: float
    """Until the next scheduled call."""


class Runner:
    name = "runner"

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        recorder: Recorder,
        attended_calls: AttendedCalls,
        sessions: CallSessionProvider,
        notification_hub: NotificationHub,
        call_handoff: CallHandoff,
        admission: AdmissionGate,
        login_waits: LoginWaits,
        config: RunnerConfig,
        tracer: Tracer | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._completion_batcher = CompletionBatcher(store=store, recorder=recorder, attended_calls=attended_calls)
        self._sessions = sessions
        self._notification_hub = notification_hub
        self._call_handoff = call_handoff
        self._admission = admission
        self._login_waits = login_waits
        self._config = config
        self._tracer = tracer
        self._executions: dict[CallId, CallExecution] = {}
        self._execution_ended = LocalWaiter()
        self._start_execution: _StartExecution | None = None
        """None before and after `run`."""
        self._leasing = CallLeasing(
            ids=ids,
            clock=clock,
            config=config,
            get_capacity=sessions.get_capacity,
            can_send_at_once=self._can_send_at_once,
            hold_call=self._hold_execution,
            is_shared=not store.is_exclusive,
        )
        self._lost_leases = LostLeases(store=store, recorder=recorder, unused=self._leasing.unused, config=config)

    async def run(self, stop: asyncio.Event) -> None:
        """Run calls until `stop` is set. Calls in flight then have `drain_seconds` to end; what remains is aborted."""
        shutdown = ShutdownSignal()
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(work) for work in self._list_background_work()]
            async with asyncio.TaskGroup() as executions:
                with self._accept_leased_calls(executions, shutdown):
                    await self._lease_until_stopped(stop)
                    shutdown.drain_requested.set()
                    await self._drain_executions(shutdown)
                    await self._leasing.wait_for_uncommitted_dispatches()
            for each in background:
                each.cancel()
        await self._completion_batcher.drain()

    def _list_background_work(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What goes on until the last execution has ended."""
        if self._config.possible_callers is not PossibleCallers.KEY_OWNERS:
            return [self._run_heartbeats()]
        watch = KeyOwnerWatch(
            store=self._store, on_look=self._leasing.set_principals, poll_seconds=self._config.poll_seconds
        )
        return [self._run_heartbeats(), watch.run()]

    @contextmanager
    def _accept_leased_calls(self, executions: asyncio.TaskGroup, shutdown: ShutdownSignal) -> Generator[None]:
        # An execution begins in the task that writes its lease, and must not inherit the context of that task.
        context = copy_context()

        def start_execution(
            call: Call, trusted_until: float, committed: asyncio.Event, permit: CallPermit
        ) -> asyncio.Task[None] | None:
            work = self._execute_call(call, trusted_until, committed, permit, shutdown)
            try:
                return executions.create_task(work, context=context.copy())
            except RuntimeError:  # the task group is ending because of a bug: the lease of this call expires
                work.close()
                return None

        self._start_execution = start_execution
        try:
            yield
        finally:
            self._start_execution = None

    async def _lease_until_stopped(self, stop: asyncio.Event) -> None:
        """Lease what the transactions that start calls did not lease themselves, and what found no capacity."""
        with (
            self._store.signals.listen(CALL_QUEUED_TOPIC) as waiter,
            self._call_handoff.attach(self._leasing.prepare_leases),
        ):
            self._leasing.waiter = waiter
            async with notify_when_set(waiter, stop):
                while not stop.is_set():
                    pause_seconds = self._config.poll_seconds
                    if upstreams := self._leasing.find_upstreams_with_capacity():
                        pause_seconds = min(pause_seconds, await self._lease_queued_calls(upstreams))
                    await waiter.wait(pause_seconds)

    async def _drain_executions(self, shutdown: ShutdownSignal) -> None:
        log.info("service.draining", extra={"calls": len(self._executions), "seconds": self._config.drain_seconds})
        ends_at = self._clock.monotonic() + self._config.drain_seconds
        while self._executions and (remaining := ends_at - self._clock.monotonic()) > 0:
            await wait_first(self._execution_ended.wait(), self._clock.sleep(remaining))
        shutdown.abort_requested.set()

    def _can_send_at_once(self, call: Call) -> bool:
        """Whether the execution of this call, if it begins now, waits for nothing before it sends the request."""
        is_running = self._call_handoff.consumer is not None
        return is_running and self._admission.is_quiet and self._sessions.has_open_session(call)

    def _hold_execution(self, call: Call, trusted_until: float) -> HeldExecution:
        permit = self._leasing.make_permit(call)

        def create(committed: asyncio.Event) -> asyncio.Task[None] | None:
            start = self._start_execution
            return None if start is None else start(call, trusted_until, committed, permit)

        return HeldExecution(create, release_capacity=permit.release)

    async def _execute_call(
        self,
        call: Call,
        trusted_until: float,
        committed: asyncio.Event,
        permit: CallPermit,
        shutdown: ShutdownSignal,
    ) -> None:
        execution = CallExecution(
            call,
            permit=permit,
            committed=committed,
            trusted_until=trusted_until,
            store=self._store,
            clock=self._clock,
            recorder=self._recorder,
            completion_batcher=self._completion_batcher,
            sessions=self._sessions,
            shutdown=shutdown,
            notification_hub=self._notification_hub,
            login_waits=self._login_waits,
            admission=self._admission,
        )
        if (previous := self._executions.get(call.id)) is not None:
            previous.abandon_lease()  # it still waits for a store that was unavailable for longer than its lease
        self._executions[call.id] = execution
        try:
            with log_facts(call_facts(call)), trace_run(self._tracer, call):
                if not is_dispatched_by_lease(call):
                    await self._admission.wait_for_background_turn(call.principal)
                await execution.run()
        except (
            Exception
        ):  # a bug in one execution must not end the others; the lease expires and the janitor recovers the call
            log.exception("call.abandoned", extra=call_facts(call))
        finally:
            if self._executions.get(call.id) is execution:
                del self._executions[call.id]
            self._execution_ended.notify()

    # -- leases --

    async def _lease_queued_calls(self, upstreams: Sequence[str]) -> float:
        """Queue the scheduled calls that are due, and lease queued calls. Return the seconds until the next scheduled call."""
        leases = self._leasing.prepare_leases()

        async def lease_all(tx: Transaction) -> _LeasedCalls:
            now = tx.confirmed_now()  # a clock that is far ahead must not start calls of next week
            next_start_at = await tx.scheduled_calls.queue_due(now=now, limit=QUEUE_DUE_BATCH_SIZE)
            queued = await self._leasing.find_queued_upstreams(tx, upstreams)
            leased = [call for upstream in queued for call in await leases.lease_queued(tx, upstream)]
            pause_seconds = math.inf if next_start_at is None else (next_start_at - now).total_seconds()
            return _LeasedCalls(leased, max(0.0, pause_seconds))

        try:
            return (await self._store.write(lease_all)).pause_seconds
        except StoreUnavailable:
            log.debug("calls.lease_failed")
            return math.inf

    async def _run_heartbeats(self) -> None:
        while True:
            await self._clock.sleep(self._config.heartbeat_seconds)
            try:
                async with asyncio.timeout(EXTEND_SECONDS_MAX):
                    if others := await self._extend_leases(self._list_committed()):
                        await self._extend_and_recover(others)
                    else:
                        await self._lost_leases.recover()
            except TimeoutError:
                log.warning("leases.not_extended")
            except StoreUnavailable:
                log.debug("leases.not_recovered")

    async def _extend_and_recover(self, locked: Mapping[CallId, CallExecution]) -> None:
        """Beside each other: either may wait for a row as long as a heartbeat takes."""
        outcomes = await asyncio.gather(
            self._extend_locked_leases(locked), self._lost_leases.recover(), return_exceptions=True
        )
        for problem in filter(None, outcomes):
            raise problem

    async def _extend_leases(self, executions: Mapping[CallId, CallExecution]) -> Mapping[CallId, CallExecution]:
        """Extend the leases of these executions. Return those whose rows another unit has locked, or whose lease is gone.

        An execution also learns that its cancellation was requested, because a notification from another node can be lost.
        """
        if not executions:
            return {}
        try:
            return await self._extend(executions, self._store.write_heartbeat, skip_locked=True)
        except StoreUnavailable:
            log.debug("leases.not_extended")
            return {}

    async def _extend_locked_leases(self, executions: Mapping[CallId, CallExecution]) -> None:
        """Wait for the rows, and extend the leases. An execution whose lease is gone stops its own work.

        Only the store says that a lease is gone. While the store is away, or after a freeze of this process, the requests
        upstream go on: to stop them would end the calls as `unknown`, although perhaps no other node has leased them.

        Of ten thousand rows some are locked at any time, for milliseconds. If they waited in one unit with a row that stays
        locked, their leases would run out, too.
        """
        groups = _split_by_principal(self._keep_running(executions))
        await asyncio.gather(*(self._extend_group(group) for group in groups))

    async def _extend_group(self, executions: Mapping[CallId, CallExecution]) -> None:
        """Of calls of one principal."""
        principal = next(iter(executions.values())).call.principal
        try:
            gone = await self._extend(executions, partial(self._store.write_for, principal), skip_locked=False)
        except StoreUnavailable:
            log.debug("leases.not_extended")
            return
        for execution in self._keep_running(gone).values():
            execution.abandon_lease()

    def _list_committed(self) -> Mapping[CallId, CallExecution]:
        """The executions of committed calls. Of others the store has no row yet, which would look like a lost lease."""
        return {call_id: execution for call_id, execution in self._executions.items() if execution.committed.is_set()}

    def _keep_running(self, executions: Mapping[CallId, CallExecution]) -> Mapping[CallId, CallExecution]:
        """Without those that have ended. Their calls may run here again meanwhile, under another lease."""
        return {call_id: each for call_id, each in executions.items() if self._executions.get(call_id) is each}

    async def _extend(
        self, executions: Mapping[CallId, CallExecution], write: Callable[..., Awaitable[Any]], *, skip_locked: bool
    ) -> Mapping[CallId, CallExecution]:
        """Extend the leases of these executions, and return the others. With `skip_locked`, it waits for no other unit."""
        call_ids = list(executions)
        trusted_until = self._leasing.new_trust_deadline()

        async def extend(tx: Transaction) -> Mapping[CallId, bool]:
            until = tx.now() + seconds(self._config.lease_seconds)
            return await tx.call_queue.extend_leases(self._config.owner, call_ids, until=until, skip_locked=skip_locked)

        extended: Mapping[CallId, bool] = await write(extend)
        for call_id, is_cancelled in extended.items():
            executions[call_id].trusted_until = trusted_until
            if is_cancelled:
                executions[call_id].notice_cancellation()
        return {call_id: each for call_id, each in executions.items() if call_id not in extended}


def _split_by_principal(executions: Mapping[CallId, CallExecution]) -> Sequence[Mapping[CallId, CallExecution]]:
    """Groups of calls of one principal: one call each, or as many as make `LOCKED_UNITS_MAX` groups of all."""
    size = max(1, math.ceil(len(executions) / LOCKED_UNITS_MAX))
    by_principal: dict[Principal, list[tuple[CallId, CallExecution]]] = {}
    for item in executions.items():
        by_principal.setdefault(item[1].call.principal, []).append(item)
    return [
        dict(those[start : start + size]) for those in by_principal.values() for start in range(0, len(those), size)
    ]
