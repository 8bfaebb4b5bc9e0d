"""Runner, notifier and janitor over a real store, with scripted tools and receivers.

engine = Engine(store, clock)
tool = BlockingTool()
await engine.insert_calls(make_call())
async with engine.running_runner(ScriptedUpstreams(tool)):
    await tool.wait_until_inside(1)
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar

import httpx

from ringback.admission import AdmissionGate
from ringback.attended_calls import AttendedCalls
from ringback.domain.call import Call, Progress
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import Clock, SystemClock
from ringback.domain.delivery import Delivery
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.domain.webhook import Webhook
from ringback.janitor.config import JanitorConfig, Retention
from ringback.janitor.janitor import Janitor
from ringback.measurements import Measurements
from ringback.notifier.catch_up import CatchUps, CatchUpWorker
from ringback.notifier.completion_batcher import CompletionBatcher
from ringback.notifier.dispatcher import Dispatcher, DispatcherConfig
from ringback.notifier.fan_out import FanOut
from ringback.notifier.http.httpx_sender import HttpxSender
from ringback.notifier.payload import PayloadBuilder
from ringback.notifier.recorder import Recorder
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.post_commit import CallHandoff, DeliveryHandoff
from ringback.runner.drivers.driver import BoundDriverPort, CallContext, CallSessionProvider
from ringback.runner.drivers.selection import BoundDriverProvider
from ringback.runner.execution import CallExecution, ShutdownSignal
from ringback.runner.held_execution import HeldExecution
from ringback.runner.leasing import CallLeasing, RunnerConfig
from ringback.runner.runner import Runner
from ringback.services.logins.login_waits import LoginWaits
from ringback.signing.resume_token import ResumeTokenCodec
from ringback.upstreams.notification_hub import NotificationHub
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.builders import make_delivery
from tests.support.limits import WAIT_SECONDS, growing_pauses
from tests.support.resolvers import PUBLIC_POLICY
from tests.support.stored_work import COMPLETED_RESULT, LEASE_SECONDS, OWNER, StoredWork

R = TypeVar("R", bound=Recorder)

RETENTION: Final = Retention()
PUBLIC_URL: Final = "https://ringback.example"


Sessions = CallSessionProvider | UpstreamRegistry


def bind_drivers(sessions: Sessions) -> CallSessionProvider:
    if isinstance(sessions, UpstreamRegistry):
        return BoundDriverProvider(sessions, clock=SystemClock())
    return sessions


def hold_nothing(_call: Call, _trusted_until: float) -> HeldExecution:
    """The `hold_call` of a node whose executions never begin."""
    return HeldExecution(lambda _: None, release_capacity=lambda: None)


async def wait_until(reached: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition holds, for changes without a notification."""
    async with asyncio.timeout(WAIT_SECONDS):
        for pause in growing_pauses():
            if await reached():
                return
            await asyncio.sleep(pause)


# -- upstreams --------------------------------------------------------------------------------------------------------------

OnProgress = Callable[[Progress], Awaitable[None]]
Tool = Callable[[Call, OnProgress], Awaitable[CallCompletion]]


async def complete_at_once(call: Call, on_progress: OnProgress) -> CallCompletion:
    """A tool that returns at once."""
    return COMPLETED_RESULT


class BlockingTool:
    """A tool that waits until the test releases it, and records cancelled calls."""

    def __init__(self) -> None:
        self.inside: list[Call] = []
        self.inside_max = 0
        self.cancelled: list[Call] = []
        self.release = asyncio.Event()
        self._changed = asyncio.Event()

    async def __call__(self, call: Call, on_progress: OnProgress) -> CallCompletion:  # noqa: ARG002 - what a tool is given
        self.inside.append(call)
        self.inside_max = max(self.inside_max, len(self.inside))
        self._changed.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.append(call)
            raise
        finally:
            self.inside.remove(call)
            self._changed.set()
        return COMPLETED_RESULT

    async def wait_until_inside(self, count: int) -> None:
        await self._wait_until(lambda: len(self.inside) == count)

    async def wait_until_cancelled(self, count: int) -> None:
        await self._wait_until(lambda: len(self.cancelled) == count)

    async def _wait_until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not reached():
                self._changed.clear()
                await self._changed.wait()


class ScriptedUpstreams:
    """Implements `drivers.CallSessionProvider`: one function of the test is every tool of every upstream.

    A session of an upstream in `away` never opens.
    """

    def __init__(
        self,
        tool: Tool = complete_at_once,
        *,
        capacity: Mapping[str, int] | None = None,
        away: frozenset[str] = frozenset(),
    ) -> None:
        self._tool = tool
        self._capacity = capacity or {"git": 16}
        self._unreachable = away
        self.session_requested = asyncio.Event()
        """Set when a session is requested."""
        self.session_looked_up = asyncio.Event()
        """Set when the runner asks whether a session is open: in the transaction of a call whose client waits."""
        self.called: list[Call] = []
        self.cancelled: list[Call] = []

    def get_capacity(self) -> Mapping[str, int]:
        return self._capacity

    def has_open_session(self, call: Call) -> bool:
        self.session_looked_up.set()
        return call.upstream not in self._unreachable

    def get_login_owner(self, call: Call) -> Principal:  # noqa: ARG002 - a CallSessionProvider's name
        return SHARED_OWNER

    @asynccontextmanager
    async def open_call_session(self, call: Call) -> AsyncGenerator[BoundDriverPort]:
        self.session_requested.set()
        if call.upstream in self._unreachable:
            await asyncio.Event().wait()
        yield self

    async def run_call(self, context: CallContext) -> CallCompletion:
        self.called.append(context.call)
        return await self._tool(context.call, context.report_progress)

    async def cancel_call(self, call: Call) -> CallCompletion:
        self.cancelled.append(call)
        return CANCELLED_COMPLETION


# -- the components ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running_dispatcher(dispatcher: Dispatcher) -> AsyncGenerator[asyncio.Event]:
    """A running dispatcher, which accepts new deliveries after their commit. The event or the end of the context stops it."""
    stop = asyncio.Event()
    work = asyncio.create_task(dispatcher.run(stop))
    await asyncio.sleep(0)  # its first step
    try:
        yield stop
    finally:
        stop.set()
        await asyncio.wait_for(work, WAIT_SECONDS)


class Engine(StoredWork):
    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, IdGenerator(clock))
        self.clock = clock
        self.notification_hub = NotificationHub()
        self.call_handoff = CallHandoff()
        self.admission = AdmissionGate()
        self.tokens = CallResumeTokens(
            ResumeTokenCodec([b"k" * 32], audience="ringback"), result_retention_seconds=RETENTION.result_seconds
        )
        self.measurements = Measurements()
        self.attended_calls = AttendedCalls()
        self.delivery_handoff = DeliveryHandoff()
        self.payloads = PayloadBuilder(tokens=self.tokens, public_url=PUBLIC_URL)
        self.catch_ups = CatchUps(FanOut(ids=self.ids, payloads=self.payloads, delivery_handoff=self.delivery_handoff))
        self.recorder = self.make_recorder(Recorder)
        self.login_waits = LoginWaits(recorder=self.recorder, public_url=PUBLIC_URL)

    async def insert_due_deliveries(
        self, webhook: Webhook, count: int, *, order_key: str | None = None
    ) -> list[Delivery]:
        now = self.clock.now()
        deliveries = [
            make_delivery(
                principal=webhook.principal,
                webhook_id=webhook.id,
                seq=seq,
                due_at=now,
                give_up_at=now + timedelta(days=4),
                order_key=order_key,
            )
            for seq in range(1, count + 1)
        ]
        await self.insert_deliveries(*deliveries)
        return deliveries

    def make_recorder(self, kind: type[R], *, payloads: PayloadBuilder | None = None) -> R:
        return kind(
            ids=self.ids,
            fan_out=FanOut(ids=self.ids, payloads=payloads or self.payloads, delivery_handoff=self.delivery_handoff),
            attended_calls=self.attended_calls,
            measurements=self.measurements,
            result_retention_seconds=RETENTION.result_seconds,
        )

    def make_completion_batcher(self, store: Store | None = None) -> CompletionBatcher:
        return CompletionBatcher(store=store or self.store, recorder=self.recorder, attended_calls=self.attended_calls)

    def make_execution(
        self,
        call: Call,
        sessions: Sessions,
        *,
        shutdown: ShutdownSignal | None = None,
        trusted_for_seconds: float = LEASE_SECONDS,
        committed: asyncio.Event | None = None,
    ) -> CallExecution:
        if committed is None:
            committed = asyncio.Event()
            committed.set()
        return CallExecution(
            call,
            permit=None,
            committed=committed,
            trusted_until=self.clock.monotonic() + trusted_for_seconds,
            store=self.store,
            clock=self.clock,
            recorder=self.recorder,
            completion_batcher=self.make_completion_batcher(),
            sessions=bind_drivers(sessions),
            shutdown=shutdown or ShutdownSignal(),
            notification_hub=self.notification_hub,
            login_waits=self.login_waits,
            admission=self.admission,
        )

    def make_runner(self, sessions: Sessions, *, recorder: Recorder | None = None, **config: Any) -> Runner:
        return Runner(
            store=self.store,
            clock=self.clock,
            ids=self.ids,
            recorder=recorder or self.recorder,
            attended_calls=self.attended_calls,
            sessions=bind_drivers(sessions),
            notification_hub=self.notification_hub,
            call_handoff=self.call_handoff,
            admission=self.admission,
            login_waits=self.login_waits,
            config=RunnerConfig(owner=OWNER, **config),
        )

    async def lease_dispatched_call(self, call: Call, *, owner: str = OWNER) -> Call:
        """Store a call as leased and dispatched in one transaction. Its execution has not begun."""
        leasing = CallLeasing(
            ids=self.ids,
            clock=self.clock,
            config=RunnerConfig(owner=owner, lease_seconds=LEASE_SECONDS),
            get_capacity=lambda: {call.upstream: 1},
            can_send_at_once=lambda _: True,
            hold_call=hold_nothing,
            is_shared=False,
        )

        async def insert(tx: Transaction) -> Call:
            leased = await leasing.lease_new(tx, call, may_dispatch=True, trusted_until=0.0)
            assert leased is not None
            await tx.calls.insert(leased)
            return leased

        return await self.store.write(insert)

    @asynccontextmanager
    async def running_runner(self, sessions: Sessions, **config: Any) -> AsyncGenerator[asyncio.Event]:
        """A running runner. The event or the end of the context stops it."""
        stop = asyncio.Event()
        work = asyncio.create_task(self.make_runner(sessions, **config).run(stop))
        try:
            yield stop
        finally:
            stop.set()
            await asyncio.wait_for(work, WAIT_SECONDS)

    def make_dispatcher(
        self,
        answer: Callable[[httpx.Request], httpx.Response]
        | Callable[[httpx.Request], Coroutine[None, None, httpx.Response]],
        *,
        admission: AdmissionGate | None = None,
        **config: Any,
    ) -> Dispatcher:
        """A dispatcher whose POSTs are answered by the test's function, without jitter."""
        return Dispatcher(
            store=self.store,
            clock=self.clock,
            ids=self.ids,
            sender=HttpxSender(httpx.MockTransport(answer), clock=self.clock),
            recorder=self.recorder,
            delivery_handoff=self.delivery_handoff,
            measurements=self.measurements,
            policy=PUBLIC_POLICY,
            random_fraction=lambda: 0.5,
            admission=admission,
            config=DispatcherConfig(owner=OWNER, **config),
        )

    def make_janitor(self, **config: Any) -> Janitor:
        return Janitor(
            store=self.store,
            recorder=self.recorder,
            measurements=self.measurements,
            clock=self.clock,
            config=JanitorConfig(**config),
        )

    async def run_recovery(self, janitor: Janitor | None = None) -> None:
        """Do what the next process of the service does: void all leases and run all maintenance tasks to their end."""
        janitor = janitor or self.make_janitor(exclusive_owner="the next process")
        while await janitor.run_once():
            pass

    def make_catch_up_worker(self) -> CatchUpWorker:
        return CatchUpWorker(store=self.store, catch_ups=self.catch_ups, clock=self.clock)


async def insert_dispatched_call(engine: Engine, call: Call) -> Call:
    """The call as its runner left it when it died: leased, and on its way."""
    leased = await engine.lease_call(call)
    running = replace(leased, dispatched_at=engine.clock.now(), runs=1)
    await engine.store.write(
        lambda tx: tx.calls.update(running, CallChange.DISPATCHED, expected=leased.status, lease_token=None)
    )
    return running
