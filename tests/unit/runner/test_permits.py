"""A call that waits after a refusal of its upstream does so without a permit, and takes the next free one after that."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from ringback.domain.principal import Principal
from ringback.runner.permits import PAUSED_CALLS_MAX, CallPermit, Permits
from ringback.upstreams.dispatch_records import WAITING_PRINCIPALS_MAX
from tests.support.builders import make_call
from tests.support.examples import ALICE, BOB

pytestmark = pytest.mark.requirement("R11")

UPSTREAM = make_call().upstream


class Node:
    """Runs calls of one upstream, and counts the ends of pauses and the permits that the runner learns of."""

    def __init__(self, capacity: int, *, has_several_principals: bool = True) -> None:
        self.capacity = capacity
        self.ended_pauses = 0
        self.returned = 0
        self.permits = Permits(lambda: {UPSTREAM: self.capacity}, has_several_principals=has_several_principals)

    @property
    def free(self) -> int:
        return self.permits.count_free(UPSTREAM)

    @property
    def held(self) -> list[Principal]:
        return list(self.permits.list_held(UPSTREAM))

    def start_call(self, principal: Principal = ALICE) -> CallPermit:
        self.permits.reserve(UPSTREAM, 1)
        self.permits.assign(UPSTREAM, principal)
        return CallPermit(
            self.permits,
            make_call(principal=principal),
            give_back=self.give_back,
            on_pause_end=self.note_end,
            leave_to_others=lambda: None,
        )

    def give_back(self, upstream: str, principal: Principal) -> None:
        self.returned += 1
        self.permits.release(upstream, principal)

    def note_end(self) -> None:
        self.ended_pauses += 1


async def run_steps() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def pause(permit: CallPermit, over: asyncio.Event, then: Callable[[], None] = lambda: None) -> asyncio.Task[None]:
    async def wait() -> None:
        async with permit.given_back():
            await over.wait()
        then()

    return asyncio.create_task(wait())


async def wait_for_permit_behind_another_call() -> tuple[Node, CallPermit, asyncio.Task[None], CallPermit]:
    """A node of one place, the permit and the task of a call whose pause is over, and that of a call which has the place."""
    node, over = Node(capacity=1), asyncio.Event()
    permit = node.start_call()
    waiting = pause(permit, over)
    await run_steps()
    other = node.start_call(BOB)
    over.set()
    await run_steps()
    return node, permit, waiting, other


async def test_a_call_that_waits_leaves_its_permit_to_another_and_returns_when_that_one_has_ended() -> None:
    node, over = Node(capacity=1), asyncio.Event()
    waiting = pause(node.start_call(), over)
    await run_steps()
    assert node.free == 1

    other = node.start_call(BOB)
    over.set()
    await run_steps()
    assert (waiting.done(), node.free) == (False, 0)

    other.release()
    await waiting
    assert (node.free, node.ended_pauses) == (0, 1)


async def test_calls_return_in_the_order_in_which_their_pauses_end_and_no_more_than_the_capacity_run() -> None:
    node, order = Node(capacity=2, has_several_principals=False), list[int]()
    pauses = [asyncio.Event() for _ in range(4)]
    permits = list[CallPermit]()
    for number, over in enumerate(pauses):
        permits.append(node.start_call())
        pause(permits[-1], over, lambda number=number: order.append(number))
        await run_steps()

    for number in (2, 0, 3, 1):
        pauses[number].set()
        await run_steps()
    assert (order, node.free) == ([2, 0], 0)

    permits[2].release()
    permits[0].release()
    await run_steps()
    assert (order, node.free) == ([2, 0, 3, 1], 0)


@pytest.mark.parametrize(("capacity", "count_each"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (16, 12), (256, 192)])
async def test_one_principal_may_have_three_quarters_of_the_permits(capacity: int, count_each: int) -> None:
    assert Node(capacity).permits.count_each(UPSTREAM) == count_each
    assert Node(capacity, has_several_principals=False).permits.count_each(UPSTREAM) == capacity


async def test_a_principal_may_have_all_permits_once_it_is_the_only_one_and_leaves_some_once_it_no_longer_is() -> None:
    node = Node(capacity=2, has_several_principals=False)
    permits = [node.start_call() for _ in range(2)]

    node.permits.has_several_principals = True
    assert (node.free, node.permits.is_full(UPSTREAM, ALICE), node.permits.has_full(UPSTREAM)) == (0, True, True)
    permits[0].release()
    assert (node.free, node.permits.is_full(UPSTREAM, ALICE), node.permits.is_full(UPSTREAM, BOB)) == (1, True, False)

    node.permits.has_several_principals = False
    assert not node.permits.is_full(UPSTREAM, ALICE)


async def test_a_call_returns_once_its_principal_is_the_only_one() -> None:
    node, over = Node(capacity=2), asyncio.Event()
    waiting = pause(node.start_call(), over)
    await run_steps()
    node.start_call()
    over.set()
    await run_steps()
    assert (waiting.done(), node.free) == (False, 1)

    node.permits.has_several_principals = False
    node.permits.admit_paused_calls(UPSTREAM)
    await waiting

    assert node.free == 0


async def test_a_principal_is_full_only_while_its_calls_have_all_the_permits_that_one_may_have() -> None:
    node = Node(capacity=4)
    permits = [node.start_call() for _ in range(3)]

    assert (node.permits.is_full(UPSTREAM, ALICE), node.permits.is_full(UPSTREAM, BOB)) == (True, False)
    permits[0].release()
    assert not node.permits.is_full(UPSTREAM, ALICE)
    assert node.permits.count_of_principals(UPSTREAM) == {ALICE: 2}


async def test_a_call_that_returns_passes_those_of_a_principal_that_has_all_the_permits_that_one_may_have() -> None:
    node, order = Node(capacity=2), list[Principal]()
    pauses = {ALICE: asyncio.Event(), BOB: asyncio.Event()}
    for principal, over in pauses.items():
        pause(node.start_call(principal), over, partial(order.append, principal))
        await run_steps()
    running = node.start_call(ALICE)

    for over in pauses.values():
        over.set()
        await run_steps()
    assert (order, node.free) == ([BOB], 0)

    running.release()
    await run_steps()
    assert order == [BOB, ALICE]


async def test_a_call_that_is_cancelled_before_it_returns_takes_no_permit() -> None:
    node, _, waiting, other = await wait_for_permit_behind_another_call()

    waiting.cancel()
    other.release()
    await asyncio.gather(waiting, return_exceptions=True)

    assert (waiting.cancelled(), node.free, node.permits.count_of_principals(UPSTREAM)) == (True, 1, {})


async def test_the_queued_calls_of_a_principal_are_held_while_a_quarter_of_the_permits_waits_for_it() -> None:
    node, over = Node(capacity=8), asyncio.Event()
    pause(node.start_call(BOB), over)
    one = pause(node.start_call(), asyncio.Event())
    await run_steps()
    assert node.held == []

    pause(node.start_call(), over)
    await run_steps()
    assert node.held == [ALICE]

    one.cancel()
    await run_steps()
    assert (node.held, node.ended_pauses) == ([], 1)


@pytest.mark.parametrize("cancels_first", [True, False])
async def test_a_call_that_ends_while_it_waits_for_a_permit_takes_none(*, cancels_first: bool) -> None:
    node, permit, waiting, other = await wait_for_permit_behind_another_call()

    for step in (waiting.cancel, other.release) if cancels_first else (other.release, waiting.cancel):
        step()
    await asyncio.wait([waiting])
    permit.release()

    assert (waiting.cancelled(), node.free, node.held) == (True, 1, [])


async def test_the_runner_learns_of_a_permit_that_a_call_gets_in_the_moment_of_its_end() -> None:
    """It did not: the next queued call began with the next poll, up to 5 s later."""
    node, permit, sending, other = await wait_for_permit_behind_another_call()
    permit.release()
    other.release()
    returned = node.returned

    sending.cancel()
    await asyncio.wait([sending])

    assert (node.free, node.returned - returned) == (1, 1)


async def test_a_transport_that_outlives_its_execution_keeps_no_permit_and_holds_no_principal() -> None:
    node, over = Node(capacity=1), asyncio.Event()
    permit = node.start_call()
    sending = pause(permit, over)
    await run_steps()

    permit.release()
    assert (node.held, node.ended_pauses) == ([], 1)
    over.set()
    await sending

    assert (node.free, node.ended_pauses) == (1, 1)


async def test_a_call_returns_once_its_upstream_may_run_more_calls() -> None:
    node, over = Node(capacity=1), asyncio.Event()
    waiting = pause(node.start_call(), over)
    await run_steps()
    node.start_call(BOB)
    over.set()
    await run_steps()

    node.capacity = 2
    node.permits.admit_paused_calls(UPSTREAM)
    await waiting

    assert node.free == 0


async def test_beyond_a_number_of_principals_a_call_waits_with_its_permit_unless_its_principal_has_one_that_waits() -> (
    None
):
    node = Node(capacity=WAITING_PRINCIPALS_MAX + 3)
    principals = [Principal(f"p{number}") for number in range(WAITING_PRINCIPALS_MAX)]
    waiting = [pause(node.start_call(principal), asyncio.Event()) for principal in (*principals, ALICE, principals[0])]
    await run_steps()

    assert (len(waiting), node.free) == (node.capacity - 1, node.capacity - 1)


async def test_beyond_a_number_of_calls_one_waits_with_its_permit_whoever_they_are_of() -> None:
    node = Node(capacity=PAUSED_CALLS_MAX + 2)
    waiting = [pause(node.start_call(), asyncio.Event()) for _ in range(PAUSED_CALLS_MAX + 1)]
    await run_steps()

    assert (len(waiting), node.free) == (node.capacity - 1, node.capacity - 1)
