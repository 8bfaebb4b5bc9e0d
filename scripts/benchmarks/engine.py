"""The production store, recorder, dispatcher and sender, without entry points and upstreams."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import ip_network
from typing import Final

from ringback.attended_calls import AttendedCalls
from ringback.domain.call import Call
from ringback.domain.call_outcome import completion_from_result
from ringback.domain.clock import SystemClock
from ringback.domain.delivery import AttemptResult
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.measurements import Measurements
from ringback.notifier.batcher import BATCH_SIZE_MAX
from ringback.notifier.call_ends import LeasedCompletion
from ringback.notifier.completion_batcher import CompletionBatcher
from ringback.notifier.dispatcher import Dispatcher, DispatcherConfig
from ringback.notifier.fan_out import FanOut
from ringback.notifier.http.caching_resolver import NO_PRINCIPAL
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.resolver import Resolver
from ringback.notifier.http.sender import ATTEMPT_SECONDS
from ringback.notifier.http.target import Target, TargetPolicy
from ringback.notifier.recorder import Recorder
from ringback.post_commit import DeliveryHandoff
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer
from ringback.storage.open import open_store
from scripts.benchmarks.databases import Databases
from scripts.benchmarks.measurement import Measured, measuring
from scripts.benchmarks.signed_post import (
    HANDOFF_LEASE,
    PRINCIPAL,
    RESULT,
    RETENTION_SECONDS,
    make_payload_builder,
    new_webhook,
    running_call,
)

LOOPBACK: Final = TargetPolicy(private_cidrs=(ip_network("127.0.0.0/8"),), allows_private_http=True)
OPEN_MAX: Final = 256
"""Ended calls with outstanding callbacks in the sustained run: enough to keep 64 in flight while others are recorded. With a
growing backlog, the run would measure a drain."""
FINISH_CONCURRENCY: Final = BATCH_SIZE_MAX
"""Tasks that end one call after the other: as many as one commit records, so that the next batch is ready after a commit."""
INSERT_BATCH_SIZE: Final = 500


class CountingSender:
    """The production sender; reports every response, so that a run knows its end.

    It sends requests for an origin in `names` to that host name instead of the literal address, which includes the resolver in
    the measurement. A callback URL without TLS may only name localhost, and TLS would be most of the measured time.
    """

    def __init__(self, sender: Http1Sender, names: Mapping[str, str]) -> None:
        self._sender = sender
        self._names = names
        self.answered: Callable[[], None] = lambda: None

    async def post(
        self,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        *,
        principal: Principal = NO_PRINCIPAL,
        deadline_seconds: float = ATTEMPT_SECONDS,
    ) -> AttemptResult:
        if target.origin in self._names:
            target = replace(target, host=self._names[target.origin])
        answer = await self._sender.post(target, headers, body, principal=principal, deadline_seconds=deadline_seconds)
        self.answered()
        return answer

    async def aclose(self) -> None:
        await self._sender.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkEngine:
    store: Store
    ids: IdGenerator
    clock: SystemClock
    completion_batcher: CompletionBatcher
    dispatcher: Dispatcher
    sender: CountingSender

    async def insert_webhooks(self, urls: Sequence[str], principal: Principal = PRINCIPAL) -> None:
        """Register a webhook for each URL, filtered by a session of the same name."""
        webhooks = [new_webhook(self.ids, self.clock, url=url, session=url, principal=principal) for url in urls]

        async def insert(tx: Transaction) -> None:
            for webhook in webhooks:
                await tx.webhooks.insert(webhook)

        await self.store.write(insert)

    async def running_calls(self, urls: Sequence[str], count: int, principal: Principal = PRINCIPAL) -> list[Call]:
        """Insert dispatched calls, for each URL in turn."""
        calls = [
            running_call(self.ids, self.clock, session=urls[number % len(urls)], principal=principal)
            for number in range(count)
        ]
        for start in range(0, count, INSERT_BATCH_SIZE):
            await self.store.write(lambda tx, chunk=calls[start : start + INSERT_BATCH_SIZE]: _insert(tx, chunk))
        return calls

    async def finish_call(self, call: Call) -> None:
        """Finish calls as the runner does: one transaction writes call, result, event and deliveries."""
        completion = completion_from_result(RESULT, is_error=False)
        finished = await self.completion_batcher.finish_call(
            LeasedCompletion(
                call_id=call.id,
                principal=call.principal,
                lease_token=HANDOFF_LEASE,
                completion=completion,
                progress=None,
            )
        )
        if finished is None:
            raise RuntimeError("the recorder refused the end of a call; without its callbacks the run would never end")

    async def finish_calls(self, calls: Sequence[Call]) -> None:
        """Store a backlog, in batches of one commit."""
        left = iter(calls)

        async def end_some() -> None:
            for call in left:
                await self.finish_call(call)

        await asyncio.gather(*(end_some() for _ in range(FINISH_CONCURRENCY)))

    @asynccontextmanager
    async def running_dispatcher(self) -> AsyncGenerator[asyncio.Event]:
        """Run the dispatcher. Set the event to drain; otherwise attempts in flight are cancelled."""
        stop = asyncio.Event()
        task = asyncio.create_task(self.dispatcher.run(stop))
        try:
            yield stop
            if stop.is_set():
                await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@asynccontextmanager
async def engine(
    urls: Sequence[str],
    databases: Databases,
    *,
    resolver: Resolver | None = None,
    names: Mapping[str, str] | None = None,
) -> AsyncGenerator[BenchmarkEngine]:
    """An engine over an empty database, with a webhook for each URL."""
    async with databases.empty_database() as url, open_engine(url, resolver=resolver, names=names) as made:
        await made.insert_webhooks(urls)
        yield made


@asynccontextmanager
async def open_engine(
    database_url: str, *, resolver: Resolver | None = None, names: Mapping[str, str] | None = None
) -> AsyncGenerator[BenchmarkEngine]:
    """An engine over this database. Several engines may share one on PostgreSQL, if they have the same keys."""
    clock = SystemClock()
    ids = IdGenerator(clock)
    guard = TargetGuard(LOOPBACK, resolver=resolver)
    sender = CountingSender(Http1Sender(guard, clock=clock), names or {})
    sealer = AesGcmSealer({"benchmark": b"k" * KEY_BYTES}, current="benchmark", random_bytes=ids.random_bytes)
    async with open_store(database_url, clock=clock, sealer=sealer, exclusive=True) as store:
        measurements, attended_calls, delivery_handoff = Measurements(), AttendedCalls(), DeliveryHandoff()
        recorder = Recorder(
            ids=ids,
            fan_out=FanOut(ids=ids, payloads=make_payload_builder(), delivery_handoff=delivery_handoff),
            attended_calls=attended_calls,
            measurements=measurements,
            result_retention_seconds=RETENTION_SECONDS,
        )
        yield BenchmarkEngine(
            store=store,
            ids=ids,
            clock=clock,
            completion_batcher=CompletionBatcher(store=store, recorder=recorder, attended_calls=attended_calls),
            dispatcher=Dispatcher(
                store=store,
                clock=clock,
                ids=ids,
                sender=sender,
                recorder=recorder,
                delivery_handoff=delivery_handoff,
                measurements=measurements,
                policy=LOOPBACK,
                random_fraction=random.SystemRandom().random,
                config=DispatcherConfig(owner=ids.new_lease_token()),
            ),
            sender=sender,
        )
        await sender.aclose()
        await guard.aclose()


async def sustained(urls: Sequence[str], databases: Databases, deliveries: int) -> Measured:
    """End calls, record them and deliver their callbacks concurrently; measured until the last attempt is recorded."""
    async with engine(urls, databases) as made:
        left = iter(await made.running_calls(urls, deliveries))
        room = asyncio.Semaphore(OPEN_MAX)
        all_answered = count_until(made.sender, deliveries, room.release)

        async def end_calls() -> None:
            for call in left:
                await room.acquire()
                await made.finish_call(call)

        with measuring(deliveries) as measured:
            async with made.running_dispatcher() as stop:
                await asyncio.gather(*(end_calls() for _ in range(FINISH_CONCURRENCY)))
                await all_answered.wait()
                stop.set()
    return measured


async def drain(urls: Sequence[str], databases: Databases, deliveries: int) -> Measured:
    """Deliver a stored backlog; measured from the dispatcher's start until the last attempt is recorded."""
    async with engine(urls, databases) as made:
        await made.finish_calls(await made.running_calls(urls, deliveries))
        all_answered = count_until(made.sender, deliveries)
        with measuring(deliveries) as measured:
            async with made.running_dispatcher() as stop:
                await all_answered.wait()
                stop.set()
    return measured


async def _insert(tx: Transaction, calls: Sequence[Call]) -> None:
    for call in calls:
        await tx.calls.insert(call)


def count_until(sender: CountingSender, count: int, each: Callable[[], None] = lambda: None) -> asyncio.Event:
    """Set after `count` responses."""
    done = asyncio.Event()
    left = count

    def answered_one() -> None:
        nonlocal left
        left -= 1
        each()
        if left == 0:
            done.set()

    sender.answered = answered_one
    return done
