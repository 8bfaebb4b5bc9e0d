"""One principal leaves permits to others in transactions that are open at once, and no call waits for a permit that is free."""

import asyncio

import pytest

from ringback.domain.signals import CALL_QUEUED_TOPIC
from tests.support.examples import ALICE, BOB
from tests.support.leasing_node import UPSTREAM, FakeTransaction, Node
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R34")


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
