"""The runner: leases queued calls, as many as each upstream takes, and drives each to its end."""

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass

from ringback.admission import AdmissionGate
from ringback.domain.call import Call
from ringback.domain.clock import Clock, seconds
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import CallId, IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.notifier.completion_batcher import CompletionBatcher
from ringback.notifier.recorder import Recorder
from ringback.runner.execution import CallExecution, CallSessionProvider, ShutdownSignal
from ringback.runner.leasing import CallLeasing
from ringback.services.births import PostCommitHandoff
from ringback.upstreams.notification_hub import NotificationHub
from ringback.waits import wait_first

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    owner: str
    """Names this process in leases."""
    lease_seconds: float = 30.0
    heartbeat_seconds: float = 10.0
    lease_margin_seconds: float = 5.0
    """How long before its end a lease is no longer trusted: for clocks that run apart, and for stopping what runs."""
    poll_seconds: float = 5.0
    """How long a missed ring can cost."""
    drain_seconds: float = 10.0
    """How long calls in flight may go on after the runner was told to stop."""

    def __post_init__(self) -> None:
        if self.trust_window_seconds < 2 * self.heartbeat_seconds:
            raise ValueError(
                "lease_seconds must be at least twice heartbeat_seconds and the margin, so that a heartbeat may be missed"
            )

    @property
    def trust_window_seconds(self) -> float:
        """How long a holder may count on a lease, from the moment before it asked for it."""
        return self.lease_seconds - self.lease_margin_seconds


class Runner:
    name = "runner"

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        recorder: Recorder,
        sessions: CallSessionProvider,
        notification_hub: NotificationHub,
        post_commit: PostCommitHandoff,
        admission: AdmissionGate,
        config: RunnerConfig,
    ) -> None:
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._completion_batcher = CompletionBatcher(store=store, recorder=recorder)
        self._sessions = sessions
        self._notification_hub = notification_hub
        self._post_commit = post_commit
        self._admission = admission
        self._config = config
        self._executions: dict[CallId, CallExecution] = {}
        self._start_execution: Callable[[Call, float], None] | None = None
        """Begins a drive; None before and after a run."""
        self._execution_ended = asyncio.Event()
        """Set whenever a drive has ended."""
        self._leasing = CallLeasing(
            ids=ids,
            clock=clock,
            owner=config.owner,
            lease_seconds=config.lease_seconds,
            trust_window_seconds=config.trust_window_seconds,
            capacity=sessions.get_capacity,
            begin_call=self._begin_execution,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run calls until told to stop; then let those in flight end, and cut off what has not by then."""
        shutdown = ShutdownSignal()
        async with asyncio.TaskGroup() as group:
            keeping = [group.create_task(self._run_heartbeats()), group.create_task(self._stop_untrusted_executions())]
            async with asyncio.TaskGroup() as executions:
                with self._accept_leased_calls(executions, shutdown):
                    await self._lease_until_stopped(stop)
                    shutdown.drain_requested.set()
                    await self._drain_executions(shutdown)
            for task in keeping:
                task.cancel()
        await self._completion_batcher.drain()

    @contextmanager
    def _accept_leased_calls(self, executions: asyncio.TaskGroup, shutdown: ShutdownSignal) -> Generator[None]:
        context = copy_context()  # a drive begins where its lease was committed, and inherits nothing of who did that

        def start(call: Call, trusted_until: float) -> None:
            work = self._execute_call(call, trusted_until, shutdown)
            try:
                execution = executions.create_task(work, context=context.copy())
            except RuntimeError:  # a bug of ours ends all drives; this one's lease runs out
                work.close()
                self._leasing.release_capacity(call.upstream)
                return
            execution.add_done_callback(
                lambda _: self._leasing.release_capacity(call.upstream)
            )  # also if it is cancelled unbegun

        self._start_execution = start
        try:
            yield
        finally:
            self._start_execution = None

    async def _lease_until_stopped(self, stop: asyncio.Event) -> None:
        """What is queued in units of others is leased right there; all the rest, and what found no room, here."""
        with (
            self._store.signals.listen(CALL_QUEUED_TOPIC) as waiter,
            self._post_commit.attach(self._leasing.prepare_lease),
        ):
            while not stop.is_set():
                self._leasing.capacity_freed.clear()
                if upstreams := self._leasing.find_upstreams_with_capacity():
                    await self._lease_queued_calls(upstreams)
                await wait_first(
                    waiter.wait(self._config.poll_seconds), self._leasing.capacity_freed.wait(), stop.wait()
                )

    async def _drain_executions(self, shutdown: ShutdownSignal) -> None:
        ends_at = self._clock.monotonic() + self._config.drain_seconds
        while self._executions and (left := ends_at - self._clock.monotonic()) > 0:
            self._execution_ended.clear()
            await wait_first(self._execution_ended.wait(), self._clock.sleep(left))
        shutdown.abort_requested.set()

    def _begin_execution(self, call: Call, trusted_until: float) -> None:
        if (
            self._start_execution is None
        ):  # committed while the runner stopped: the lease runs out, or is voided at the next start
            self._leasing.release_capacity(call.upstream)
        else:
            self._start_execution(call, trusted_until)

    async def _execute_call(self, call: Call, trusted_until: float, shutdown: ShutdownSignal) -> None:
        execution = CallExecution(
            call,
            trusted_until=trusted_until,
            store=self._store,
            clock=self._clock,
            recorder=self._recorder,
            completion_batcher=self._completion_batcher,
            sessions=self._sessions,
            shutdown=shutdown,
            notification_hub=self._notification_hub,
        )
        if (previous := self._executions.get(call.id)) is not None:
            previous.abandon_lease()  # it waits for a store that was away for longer than its lease
        self._executions[call.id] = execution
        try:
            await self._admission.wait_for_background_turn()
            await execution.run()
        except Exception:  # the boundary between one call and the others: the lease runs out, the janitor ends it
            log.exception("call.abandoned", extra={"call_id": call.id})
        finally:
            if self._executions.get(call.id) is execution:
                del self._executions[call.id]
            self._execution_ended.set()

    # -- leases --

    async def _lease_queued_calls(self, upstreams: Sequence[str]) -> None:
        lease = self._leasing.prepare_lease()

        async def lease_all(tx: Transaction) -> list[Call]:
            return [call for upstream in upstreams for call in await lease(tx, upstream)]

        try:
            await self._store.write(lease_all)
        except StoreUnavailable:
            log.warning("calls.lease_failed")

    async def _run_heartbeats(self) -> None:
        while True:
            await self._clock.sleep(self._config.heartbeat_seconds)
            if self._executions:
                await self._extend_leases()

    async def _extend_leases(self) -> None:
        """Prolong the leases of what is driven here; a drive whose lease is gone stops its own work."""
        held_ids, trusted_until = set(self._executions), self._new_trust_deadline()

        async def extend(tx: Transaction) -> set[CallId]:
            until = tx.now() + seconds(self._config.lease_seconds)
            return set(await tx.call_queue.extend_leases(self._config.owner, held_ids, until=until))

        try:
            still_held = await self._store.write(extend)
        except StoreUnavailable:
            log.warning("leases.not_extended")
            return
        for call_id in held_ids:
            if execution := self._executions.get(call_id):
                if call_id in still_held:
                    execution.trusted_until = trusted_until
                else:
                    execution.abandon_lease()

    async def _stop_untrusted_executions(self) -> None:
        """Stop the drives whose lease was not prolonged in time, also while the store takes for ever to say so."""
        while True:
            now = self._clock.monotonic()
            for execution in list(self._executions.values()):
                if execution.trusted_until <= now:
                    execution.abandon_lease()
            trusted = [drive.trusted_until for drive in self._executions.values() if drive.trusted_until > now]
            await self._clock.sleep(min(trusted) - now if trusted else self._config.heartbeat_seconds)

    def _new_trust_deadline(self) -> float:
        """For leases that are asked for now. The store counts from later, when its transaction begins."""
        return self._clock.monotonic() + self._config.trust_window_seconds
