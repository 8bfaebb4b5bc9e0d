"""Transactions of one process that are open at once never lease more calls than an upstream runs at once."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import pytest

from ringback.domain.call import Call
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import CALL_QUEUED_TOPIC, Waiter
from ringback.runner.held_execution import HeldExecution
from ringback.runner.leasing import CallLeasing, PossibleCallers, RunnerConfig
from ringback.waits import LocalWaiter
from tests.support.builders import START, make_call
from tests.support.clock import FakeClock
from tests.support.examples import ALICE, BOB
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R34")

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


async def test_starts_that_run_at_once_lease_no_more_calls_than_the_capacity() -> None:
    node = Node(capacity=2)
    starts = [node.lease_new() for _ in range(8)]

    await node.answer()

    assert sum(leased is not None for leased in await asyncio.gather(*starts)) == 2


async def test_transactions_that_lease_queued_calls_at_once_lease_no_more_than_the_capacity() -> None:
    node = Node(capacity=3, queued=10)
    rounds = [node.lease_queued() for _ in range(4)]

    await node.answer()

    assert sum(map(len, await asyncio.gather(*rounds))) == 3


async def test_capacity_that_a_transaction_does_not_use_is_free_again() -> None:
    node = Node(capacity=3, queued=1)
    node.queue.answers.set()

    await node.lease_queued()

    assert node.leasing.find_upstreams_with_capacity() == [UPSTREAM]
    node.queue.queued = 10
    assert len(await node.lease_queued()) == 2


async def test_a_rollback_frees_only_what_the_transaction_still_had() -> None:
    node, tx = Node(capacity=3, queued=1), FakeTransaction(FakeQueue(0))
    tx.call_queue = node.queue
    node.queue.answers.set()
    await node.lease_queued(tx)

    for action in tx.rolled_back:
        action()
    node.queue.queued = 10

    assert len(await node.lease_queued()) == 3


async def test_a_transaction_that_found_no_capacity_makes_the_runner_look_again_once_some_is_given_back() -> None:
    node = Node(capacity=1)
    looking, starting = node.lease_queued(), node.lease_new()

    await node.answer()

    assert (await looking, await starting) == ([], None)
    assert await node.woken.wait(0)


async def test_a_transaction_that_leaves_capacity_unused_wakes_no_waiter_if_none_was_refused() -> None:
    node = Node(capacity=2, queued=1)
    node.queue.answers.set()

    await node.lease_queued()

    assert not await node.woken.wait(0)


async def test_capacity_that_becomes_free_while_all_of_it_is_leased_makes_the_runner_look_again() -> None:
    node = Node(capacity=2)
    node.queue.answers.set()
    assert await node.lease_new() is not None
    node.queue.queued, node.queue.answers = 5, asyncio.Event()
    full = node.lease_queued()
    await asyncio.sleep(0)
    node.leasing.release_capacity(UPSTREAM, ALICE)

    await node.answer()

    assert len(await full) == 1
    assert await node.woken.wait(0)


@pytest.mark.parametrize("starter_goes_first", [False, True])
async def test_a_call_whose_starter_goes_first_begins_after_the_commit_and_not_beside_it(
    *, starter_goes_first: bool
) -> None:
    """Its request names the level of the log messages, for which its starter subscribes after the commit."""
    node = Node(capacity=1, can_send_at_once=True)
    node.queue.answers.set()
    tx = FakeTransaction(node.queue)

    leased = await node.leasing.lease_new(
        cast("Transaction", tx),
        make_call(),
        may_dispatch=True,
        trusted_until=1.0,
        starter_goes_first=starter_goes_first,
    )

    assert leased is not None
    assert leased.dispatched_at == START
    assert len(tx.committing) == (0 if starter_goes_first else 1)
    for action in (*tx.committing, *tx.committed):
        action()
    assert node.begun == [leased]


async def test_a_principal_with_all_the_permits_that_one_may_have_starts_no_more_calls_until_one_of_its_calls_ends() -> (
    None
):
    node = Node(capacity=4, has_several_principals=True)
    node.queue.answers.set()

    starts = [await node.lease_new() for _ in range(5)]

    assert [leased is not None for leased in starts] == [True, True, True, False, False]
    node.leasing.release_capacity(UPSTREAM, ALICE)
    assert await node.lease_new() is not None


async def test_the_runner_looks_again_when_a_call_ends_whose_principal_has_more_of_them_in_the_queue() -> None:
    node = Node(capacity=8, queued=7, has_several_principals=True)
    node.queue.answers.set()

    assert len(await node.lease_queued()) == 6
    node.leasing.release_capacity(UPSTREAM, ALICE)

    assert await node.woken.wait(0)
    assert len(await node.lease_queued()) == 1


async def test_permits_of_a_transaction_that_is_rolled_back_are_their_principals_again() -> None:
    node = Node(capacity=4, queued=8, has_several_principals=True)
    node.queue.answers.set()
    tx = FakeTransaction(node.queue)
    await node.lease_queued(tx)

    tx.roll_back()

    assert len(await node.lease_queued()) == 3


async def test_transactions_that_run_at_once_give_one_principal_no_more_permits_than_it_may_have() -> None:
    node = Node(capacity=8, has_several_principals=True)
    await node.run_calls(2, BOB)
    leasing = await node.begin_lease(queued=20)
    for _ in range(2):
        node.leasing.release_capacity(UPSTREAM, BOB)
    other_lease, start = node.lease_queued(), node.lease_new()

    await node.answer()

    assert (len(await leasing), await other_lease, await start) == (6, [], None)


async def test_a_call_that_returns_takes_no_permit_that_its_principal_may_not_have_once_an_open_transaction_ends() -> (
    None
):
    node = Node(capacity=8, has_several_principals=True)
    await node.run_calls(2, BOB)
    leasing = await node.begin_lease(queued=20)
    returning = asyncio.ensure_future(
        node.leasing.permits.reacquire_permit(UPSTREAM, ALICE, give_back=node.leasing.release_capacity)
    )
    await asyncio.sleep(0)
    node.leasing.release_capacity(UPSTREAM, BOB)

    await node.answer()

    assert len(await leasing) == 6
    await asyncio.sleep(0)
    assert not returning.done()
    node.leasing.release_capacity(UPSTREAM, ALICE)
    await asyncio.wait_for(returning, WAIT_SECONDS)


async def test_a_call_that_returns_gets_its_permit_when_an_open_transaction_has_leased_calls_of_others() -> None:
    node = Node(capacity=8, has_several_principals=True)
    await node.run_calls(2, BOB)
    leasing = await node.begin_lease(queued=20)
    returning = asyncio.ensure_future(
        node.leasing.permits.reacquire_permit(UPSTREAM, BOB, give_back=node.leasing.release_capacity)
    )
    await asyncio.sleep(0)
    node.leasing.release_capacity(UPSTREAM, BOB)
    await asyncio.sleep(0)
    assert not returning.done()  # the six permits may all become those of calls of its principal

    await node.answer()

    await asyncio.gather(leasing, asyncio.wait_for(returning, WAIT_SECONDS))


async def test_the_runner_looks_again_when_a_call_ends_while_a_transaction_leases_all_that_its_principal_may_have() -> (
    None
):
    node = Node(capacity=8, has_several_principals=True)
    await node.run_calls(5)
    leasing = await node.begin_lease(queued=3)
    node.leasing.release_capacity(UPSTREAM, ALICE)

    await node.answer()

    assert len(await leasing) == 1
    assert await node.woken.wait(0)
    assert len(await node.lease_queued()) == 1


async def test_a_rollback_makes_the_runner_look_again_if_a_principal_had_too_few_permits_because_of_it() -> None:
    node = Node(capacity=8, queued=20, has_several_principals=True)
    node.queue.answers.set()
    tx = FakeTransaction(node.queue)

    assert (len(await node.lease_queued(tx)), await node.lease_queued()) == (6, [])
    assert not await node.woken.wait(0)
    tx.roll_back()

    assert await node.woken.wait(0)


async def test_a_rollback_alone_wakes_no_runner_so_that_a_store_that_refuses_each_commit_is_not_asked_at_once() -> None:
    node = Node(capacity=8, queued=20, has_several_principals=True)
    node.queue.answers.set()
    tx = FakeTransaction(node.queue)

    await node.lease_queued(tx)
    tx.roll_back()

    assert not await node.woken.wait(0)


async def test_a_start_on_the_seemingly_empty_queue_of_an_open_transaction_lets_the_runner_look_again_later() -> None:
    node = Node(capacity=8, queued=20, has_several_principals=True)
    node.queue.answers.set()
    assert len(await node.lease_queued()) == 6
    node.queue.queued = 0  # as another transaction sees it: this one has queued the calls and is not committed

    await node.run_calls(1, BOB)
    node.leasing.release_capacity(UPSTREAM, ALICE)

    assert await node.woken.wait(0)


@pytest.mark.parametrize(
    ("running", "queued", "is_notified"), [(0, 20, True), (5, 1, True), (6, 20, False), (0, 5, False)]
)
async def test_another_node_looks_if_it_perhaps_skipped_calls_of_which_one_principal_may_have_no_more_here(
    running: int, queued: int, *, is_notified: bool
) -> None:
    node = Node(capacity=8, has_several_principals=True, is_shared=True)
    await node.run_calls(running)
    node.queue.queued = queued
    tx = FakeTransaction(node.queue)

    await node.lease_queued(tx)

    assert tx.topics == [CALL_QUEUED_TOPIC] * is_notified


async def test_a_start_whose_principal_has_all_permits_that_one_may_have_does_not_query_the_queue() -> None:
    node = Node(capacity=8, has_several_principals=True)
    await node.run_calls(6)
    node.queue.queued = 1

    assert (await node.lease_queued(starter=ALICE), node.queue.leases) == ([], 0)
    node.leasing.release_capacity(UPSTREAM, ALICE)
    assert await node.woken.wait(0)


async def test_the_runner_looks_again_when_a_principal_is_the_only_one_because_its_queued_calls_may_begin() -> None:
    node = Node(capacity=8, queued=20, has_several_principals=True)
    node.queue.answers.set()
    assert len(await node.lease_queued()) == 6

    node.leasing.set_principals(are_several=True)
    assert not await node.woken.wait(0)
    node.leasing.set_principals(are_several=False)

    assert await node.woken.wait(0)
    assert len(await node.lease_queued()) == 2


async def test_a_second_principal_wakes_no_runner_and_gets_what_the_first_one_may_no_longer_have() -> None:
    node = Node(capacity=2, queued=3)
    node.queue.answers.set()
    assert len(await node.lease_queued()) == 2

    node.leasing.set_principals(are_several=True)
    assert not await node.woken.wait(0)
    node.leasing.release_capacity(UPSTREAM, ALICE)
    assert (await node.woken.wait(0), await node.lease_queued()) == (True, [])

    node.queue.queued = 0
    assert (await node.lease_new(ALICE), await node.lease_new(BOB) is not None) == (None, True)


async def test_the_runner_looks_again_after_a_transaction_that_began_before_its_principal_was_the_only_one() -> None:
    node = Node(capacity=8, has_several_principals=True)
    leasing = await node.begin_lease(queued=20)
    node.leasing.set_principals(are_several=False)
    assert await node.woken.wait(0)
    looking = node.lease_queued()

    await node.answer()

    assert (len(await leasing), await looking) == (6, [])
    assert await node.woken.wait(0)
    assert len(await node.lease_queued()) == 2


async def test_only_upstreams_with_queued_calls_are_leased_from() -> None:
    node = Node(capacity=1, queued=1)
    node.queue.answers.set()

    assert await node.find_queued("time", UPSTREAM) == [UPSTREAM]
    node.queue.queued = 0
    assert await node.find_queued("time", UPSTREAM) == []


async def test_the_only_upstream_is_leased_from_without_a_look_at_its_queue() -> None:
    node = Node(capacity=1)

    assert await asyncio.wait_for(node.find_queued(UPSTREAM), WAIT_SECONDS) == (UPSTREAM,)


async def test_an_empty_queue_is_looked_at_again_if_a_start_was_refused_meanwhile() -> None:
    node = Node(capacity=1)
    node.queue.answers.set()
    await node.lease_new()
    node.queue.answers.clear()
    looking = node.find_queued("time", UPSTREAM)
    await asyncio.sleep(0)

    refused = node.lease_new()
    await node.answer()

    assert (await looking, await refused) == ([], None)
    node.leasing.release_capacity(UPSTREAM, ALICE)
    assert await node.woken.wait(0.0)


async def test_queued_upstreams_are_in_the_order_of_their_names_whatever_order_a_node_has_configured() -> None:
    node = Node(capacity=1, queued=3)
    node.queue.queued_upstreams = {"beta", "alpha", "gamma"}
    node.queue.answers.set()

    assert await node.find_queued("gamma", "alpha", "beta") == ["alpha", "beta", "gamma"]
