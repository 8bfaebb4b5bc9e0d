"""The parts behind the API over a real store, and their two edges in a test's hands.

Tools do as they are told, and callbacks are answered as a test says:

    engine = Engine(store, clock)
    tool = Holding()
    await engine.queue(a_call())
    async with engine.running(ScriptedUpstreams(tool)):
        await tool.until_inside(1)
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx

from ringback.admission import AdmissionGate
from ringback.domain.call import CANCELLED, Call, Ending, Progress, answered
from ringback.domain.clock import Clock, seconds
from ringback.domain.delivery import Attempt, Delivery
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import Ids, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import DUE
from ringback.domain.webhook import Webhook
from ringback.janitor import Janitor, JanitorConfig, Retention
from ringback.notifier.body import Bodies
from ringback.notifier.catch_up_worker import CatchUpWorker
from ringback.notifier.dispatcher import Dispatcher, DispatcherConfig
from ringback.notifier.ends import Ends
from ringback.notifier.httpx_sender import HttpxSender
from ringback.notifier.record import Recorder
from ringback.notifier.resume_tokens import CallTokens
from ringback.runner.drive import Drive, Halt, Sessions
from ringback.runner.drivers import CallSession, Desk
from ringback.runner.live import LiveHub
from ringback.runner.runner import Runner, RunnerConfig
from ringback.services.births import Births
from ringback.signing.resume_token import ResumeTokens
from tests.support.examples import ALICE
from tests.support.limits import WAIT_SECONDS
from tests.support.targets import PUBLIC

RETENTION: Final = Retention()
RESULT: Final = b'{"content":[{"type":"text","text":"done"}],"isError":false}'
OWNER: Final = "runner-1"
LEASE_SECONDS: Final = 30.0
PUBLIC_URL: Final = "https://ringback.example"
DONE: Final = answered(RESULT, is_error=False)


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again, for what nobody rings a bell for."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not await reached():  # noqa: ASYNC110 - the store's rows ring no bell
            await asyncio.sleep(0.002)  # leaves the core to whoever is waited for


# -- upstreams --------------------------------------------------------------------------------------------------------------

OnProgress = Callable[[Progress], Awaitable[None]]
Tool = Callable[[Call, OnProgress], Awaitable[Ending]]


async def done(call: Call, on_progress: OnProgress) -> Ending:
    """A tool that answers at once."""
    return DONE


class Holding:
    """A tool that keeps its callers until it is let go, and knows who was called off."""

    def __init__(self) -> None:
        self.inside: list[Call] = []
        self.inside_max = 0
        self.called_off: list[Call] = []
        self.release = asyncio.Event()
        self._moved = asyncio.Event()

    async def __call__(self, call: Call, on_progress: OnProgress) -> Ending:  # noqa: ARG002 - what a tool is given
        self.inside.append(call)
        self.inside_max = max(self.inside_max, len(self.inside))
        self._moved.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.called_off.append(call)
            raise
        finally:
            self.inside.remove(call)
            self._moved.set()
        return DONE

    async def until_inside(self, count: int) -> None:
        await self._until(lambda: len(self.inside) == count)

    async def until_called_off(self, count: int) -> None:
        await self._until(lambda: len(self.called_off) == count)

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not reached():
                self._moved.clear()
                await self._moved.wait()


class ScriptedUpstreams:
    """Implements `runner.drive.Sessions`: every tool of every upstream is one function of a test's.

    Upstreams named in `away` keep whoever wants a session waiting.
    """

    def __init__(
        self, tool: Tool = done, *, capacity: Mapping[str, int] | None = None, away: frozenset[str] = frozenset()
    ) -> None:
        self._tool = tool
        self._capacity = capacity or {"git": 16}
        self._away = away
        self.wanted = asyncio.Event()
        """Set when somebody has asked for a session."""
        self.called: list[Call] = []
        self.told_to_stop: list[Call] = []

    def capacity(self) -> Mapping[str, int]:
        return self._capacity

    @asynccontextmanager
    async def session(self, call: Call) -> AsyncGenerator[CallSession]:
        self.wanted.set()
        if call.upstream in self._away:
            await asyncio.Event().wait()
        yield self

    async def drive(self, desk: Desk) -> Ending:
        self.called.append(desk.call)
        return await self._tool(desk.call, desk.progress)

    async def cancel(self, call: Call) -> Ending:
        self.told_to_stop.append(call)
        return CANCELLED


# -- the parts --------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def dispatching(dispatcher: Dispatcher) -> AsyncGenerator[asyncio.Event]:
    """A dispatcher at work, which takes what is born from now on; the event stops it, and so does the end."""
    stop = asyncio.Event()
    work = asyncio.create_task(dispatcher.run(stop))
    await asyncio.sleep(0)  # its first step
    try:
        yield stop
    finally:
        stop.set()
        await asyncio.wait_for(work, WAIT_SECONDS)


class Engine:
    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.ids = Ids(clock)
        self.live = LiveHub()
        self.births = Births()
        self.tokens = CallTokens(
            ResumeTokens([b"k" * 32], audience="ringback"), result_retention_seconds=RETENTION.result_seconds
        )
        self.recorder = self.recorder_with(Bodies(tokens=self.tokens, public_url=PUBLIC_URL))

    def recorder_with(self, bodies: Bodies) -> Recorder:
        return Recorder(ids=self.ids, bodies=bodies, result_retention_seconds=RETENTION.result_seconds)

    def drive(self, call: Call, sessions: Sessions, *, halt: Halt | None = None) -> Drive:
        return Drive(
            call,
            trusted_until=self.clock.monotonic() + LEASE_SECONDS,
            store=self.store,
            clock=self.clock,
            recorder=self.recorder,
            ends=Ends(store=self.store, recorder=self.recorder),
            sessions=sessions,
            halt=halt or Halt(),
            live=self.live,
        )

    def runner(self, sessions: Sessions, *, recorder: Recorder | None = None, **config: Any) -> Runner:
        return Runner(
            store=self.store,
            clock=self.clock,
            ids=self.ids,
            recorder=recorder or self.recorder,
            sessions=sessions,
            live=self.live,
            births=self.births,
            admission=AdmissionGate(),
            config=RunnerConfig(owner=OWNER, **config),
        )

    @asynccontextmanager
    async def running(self, sessions: Sessions, **config: Any) -> AsyncGenerator[asyncio.Event]:
        """A runner at work; the event stops it, and so does the end."""
        stop = asyncio.Event()
        work = asyncio.create_task(self.runner(sessions, **config).run(stop))
        try:
            yield stop
        finally:
            stop.set()
            await asyncio.wait_for(work, WAIT_SECONDS)

    def dispatcher(
        self,
        answer: Callable[[httpx.Request], httpx.Response]
        | Callable[[httpx.Request], Coroutine[None, None, httpx.Response]],
        *,
        admission: AdmissionGate | None = None,
        **config: Any,
    ) -> Dispatcher:
        """A dispatcher whose POSTs are answered by a function of a test's. There is no jitter."""
        return Dispatcher(
            store=self.store,
            clock=self.clock,
            ids=self.ids,
            sender=HttpxSender(httpx.MockTransport(answer), clock=self.clock),
            recorder=self.recorder,
            policy=PUBLIC,
            chance=lambda: 0.5,
            admission=admission,
            config=DispatcherConfig(owner=OWNER, **config),
        )

    def janitor(self, **config: Any) -> Janitor:
        return Janitor(store=self.store, recorder=self.recorder, clock=self.clock, config=JanitorConfig(**config))

    async def recover(self, janitor: Janitor | None = None) -> None:
        """As the next process does that serves the store: whatever was leased is void, and all chores are done to their end."""
        janitor = janitor or self.janitor(only_owner="the next process")
        while await janitor.run_once():
            pass

    def catch_up_worker(self) -> CatchUpWorker:
        return CatchUpWorker(store=self.store, catch_ups=self.recorder.catch_ups, clock=self.clock)

    # -- what is there --

    async def queue(self, *calls: Call) -> None:
        async def insert(tx: Transaction) -> None:
            for call in calls:
                await tx.calls.insert(call)
            tx.ring("calls")

        await self.store.write(insert)

    async def register(self, *webhooks: Webhook) -> None:
        async def insert(tx: Transaction) -> None:
            for webhook in webhooks:
                await tx.webhooks.insert(webhook)

        await self.store.write(insert)

    async def lease(self, call: Call) -> Call:
        """Store a call and lease it, as the runner does."""
        await self.queue(call)
        leased = await self.store.write(
            lambda tx: tx.call_queue.lease(
                call.upstream,
                owner=OWNER,
                token=self.ids.lease(),
                until=tx.now() + seconds(LEASE_SECONDS),
                limit=1,
            )
        )
        assert [each.id for each in leased] == [call.id]
        return leased[0]

    async def finish(self, call: Call, ending: Ending = DONE) -> Call:
        """Store a call that has just ended, with its event and the deliveries of it."""
        await self.queue(call)
        ended = await self.store.write(lambda tx: self.recorder.finish(tx, call, ending, lease_token=None))
        assert ended is not None
        return ended

    async def cancel(self, call: Call) -> None:
        """End a call that was not dispatched, as whoever asks for its cancellation does."""
        await self.store.write(lambda tx: self.recorder.finish(tx, call, CANCELLED, lease_token=None))

    async def deliver(self, *deliveries: Delivery) -> None:
        async def insert(tx: Transaction) -> None:
            await tx.deliveries.insert(deliveries)
            tx.ring(DUE)

        await self.store.write(insert)

    async def call(self, call: Call) -> Call:
        found = await self.store.read(lambda tx: tx.calls.get(call.id))
        assert found is not None
        return found

    async def result(self, call: Call) -> bytes | None:
        return await self.store.read(lambda tx: tx.calls.result(call.id))

    async def webhook(self, webhook_id: WebhookId) -> Webhook:
        found = await self.store.read(lambda tx: tx.webhooks.get(webhook_id))
        assert found is not None
        return found

    async def events(self, principal: Principal = ALICE) -> Sequence[Event]:
        return await self.store.read(lambda tx: tx.events.after(principal, 0, EventFilter(), limit=1000))

    async def deliveries(self, principal: Principal = ALICE) -> list[Delivery]:
        """In the order of the log."""
        found = await self.store.read(
            lambda tx: tx.deliveries.page(principal, DeliveryFilter(), before=None, limit=1000)
        )
        return sorted(found, key=lambda delivery: delivery.seq or 0)

    async def delivery(self, delivery: Delivery) -> Delivery:
        found = await self.store.read(lambda tx: tx.deliveries.get(delivery.id))
        assert found is not None
        return found

    async def attempts(self, delivery: Delivery) -> Sequence[Attempt]:
        """Newest first."""
        return await self.store.read(lambda tx: tx.deliveries.attempts(delivery.id))

    async def until_final(self, *calls: Call) -> list[Call]:
        """The calls at their end."""
        async with asyncio.timeout(WAIT_SECONDS):
            return [await self._final(call) for call in calls]

    async def _final(self, call: Call) -> Call:
        with self.store.signals.listen(f"call:{call.id}") as bell:
            while not (found := await self.call(call)).final:
                await bell.wait(WAIT_SECONDS)
            return found
