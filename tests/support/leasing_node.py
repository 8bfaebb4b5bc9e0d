"""A node that leases calls in transactions whose database answers when the test lets it."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from ringback.domain.call import Call
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import Waiter
from ringback.runner.held_execution import HeldExecution
from ringback.runner.leasing import CallLeasing, PossibleCallers, RunnerConfig
from ringback.waits import LocalWaiter
from tests.support.builders import START, make_call
from tests.support.clock import FakeClock
from tests.support.examples import ALICE

UPSTREAM = make_call().upstream


class FakeQueue:
    """Answers once the test lets it, as a database does."""

    def __init__(self, queued: int) -> None:
        self.queued = queued
        self.leases = 0
        self.queued_upstreams = {UPSTREAM}
        self.answers = asyncio.Event()

    async def find_queued_upstreams(self, _upstreams: Collection[str]) -> Collection[str]:
        await self.answers.wait()
        return self.queued_upstreams if self.queued else set()

    async def take_turn(self, _upstream: str, _principal: str) -> bool:
        await self.answers.wait()
        return self.queued == 0

    async def lease_queued(
        self, _upstream: str, *, limit: int, limit_each: int, running: Mapping[str, int], **_: Any
    ) -> Sequence[Call]:
        self.leases += 1
        limit_each -= running.get(ALICE, 0)
        await self.answers.wait()
        leased = max(0, min(limit, self.queued, limit_each))
        self.queued -= leased
        return [make_call() for _ in range(leased)]


class FakeTransaction:
    def __init__(self, queue: FakeQueue) -> None:
        self.call_queue = queue
        self.committed: list[Callable[[], None]] = []
        self.rolled_back: list[Callable[[], None]] = []
        self.committing: list[Callable[[], None]] = []
        self.on_commit, self.on_rollback = self.committed.append, self.rolled_back.append
        self.on_committing = self.committing.append
        self.topics: list[str] = []
        self.notify = self.topics.append

    def roll_back(self) -> None:
        for action in self.rolled_back:
            action()

    def now(self) -> Any:
        return START


class Node:
    def __init__(
        self,
        *,
        capacity: int,
        queued: int = 0,
        can_send_at_once: bool = False,
        has_several_principals: bool = False,
        is_shared: bool = False,
    ) -> None:
        self.queue, self.begun, self.woken = FakeQueue(queued), list[Call](), LocalWaiter()
        possible_callers = PossibleCallers.ANYBODY if has_several_principals else PossibleCallers.ONE
        self.leasing = CallLeasing(
            ids=IdGenerator(FakeClock(START)),
            clock=FakeClock(START),
            config=RunnerConfig(owner="node", possible_callers=possible_callers),
            get_capacity=lambda: {UPSTREAM: capacity},
            can_send_at_once=lambda _: can_send_at_once,
            is_shared=is_shared,
            hold_call=self._hold_call,
        )
        self.leasing.waiter = cast("Waiter", self.woken)

    def _hold_call(self, call: Call, _trusted_until: float) -> HeldExecution:
        return HeldExecution(lambda _: self.begun.append(call), release_capacity=lambda: None)

    def lease_queued(
        self, tx: FakeTransaction | None = None, *, starter: Principal | None = None
    ) -> "asyncio.Task[Sequence[Call]]":
        transaction = cast("Transaction", tx or FakeTransaction(self.queue))
        return asyncio.ensure_future(
            self.leasing.lease_queued(transaction, UPSTREAM, trusted_until=1.0, starter=starter)
        )

    def find_queued(self, *upstreams: str) -> "asyncio.Task[Sequence[str]]":
        tx = cast("Transaction", FakeTransaction(self.queue))
        return asyncio.ensure_future(self.leasing.find_queued_upstreams(tx, upstreams))

    def lease_new(self, principal: Principal = ALICE) -> "asyncio.Task[Call | None]":
        tx, call = cast("Transaction", FakeTransaction(self.queue)), make_call(principal=principal)
        return asyncio.ensure_future(self.leasing.lease_new(tx, call, may_dispatch=False, trusted_until=1.0))

    async def run_calls(self, count: int, principal: Principal = ALICE) -> None:
        self.queue.answers.set()
        for _ in range(count):
            assert await self.lease_new(principal) is not None

    async def begin_lease(self, *, queued: int) -> "asyncio.Task[Sequence[Call]]":
        """Return while the database has not answered."""
        self.queue.queued, self.queue.answers = queued, asyncio.Event()
        leasing = self.lease_queued()
        await asyncio.sleep(0)
        return leasing

    async def answer(self) -> None:
        """Let the database answer, once each open transaction has sent its query."""
        await asyncio.sleep(0)
        self.queue.answers.set()
