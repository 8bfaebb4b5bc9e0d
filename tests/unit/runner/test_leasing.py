"""Transactions of one process that are open at once never lease more calls than an upstream runs at once."""

import asyncio
from typing import cast

import pytest

from ringback.domain.ports import Transaction
from tests.support.builders import START, make_call
from tests.support.examples import ALICE
from tests.support.leasing_node import UPSTREAM, FakeQueue, FakeTransaction, Node
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R34")


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
