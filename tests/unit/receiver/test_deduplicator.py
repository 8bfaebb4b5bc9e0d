"""Work runs once for each remembered message."""

import asyncio

import pytest

from ringback.receiver.deduplicator import FETCHED, Deduplicator
from tests.support.limits import WAIT_SECONDS


class Work:
    def __init__(self) -> None:
        self.runs = 0

    async def __call__(self) -> None:
        self.runs += 1


async def test_the_message_that_was_silent_longest_is_forgotten_first() -> None:
    once, work = Deduplicator(capacity=2), Work()

    for message_id in ("a", "b", "a", "c"):  # b is now the one to forget
        await once.run_unless_handled(message_id, "wh_1", work)
    assert work.runs == 3

    await once.run_unless_handled("a", "wh_1", work)
    assert work.runs == 3
    await once.run_unless_handled("b", "wh_1", work)
    assert work.runs == 4


async def test_the_message_after_a_cancelled_one_is_handled() -> None:
    once, work = Deduplicator(capacity=2), Work()
    entered = asyncio.Event()

    async def endless() -> None:
        entered.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(WAIT_SECONDS):
        first = asyncio.create_task(once.run_unless_handled("a", "wh_1", endless))
        await entered.wait()
        second = asyncio.create_task(once.run_unless_handled("a", "wh_1", work))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await second

    assert work.runs == 1


async def test_a_delivered_event_and_the_same_event_from_the_log_are_one() -> None:
    once, work = Deduplicator(capacity=10), Work()

    for message_id, subscriptions in (("a", ("wh_1", FETCHED)), ("b", (FETCHED, "wh_1", "wh_2"))):
        for subscription_id in subscriptions:
            await once.run_unless_handled(message_id, subscription_id, work)

    assert work.runs == 2


async def test_a_message_with_ever_new_subscriptions_takes_no_more_room_than_others() -> None:
    once, work = Deduplicator(capacity=3), Work()

    for number in range(10):
        await once.run_unless_handled("a", f"wh_{number}", work)
    await once.run_unless_handled("b", "wh_1", work)

    assert work.runs == 11
    await once.run_unless_handled("b", "wh_1", work)
    assert work.runs == 11
