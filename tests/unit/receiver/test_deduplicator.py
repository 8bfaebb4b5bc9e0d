"""Work runs once for each remembered message."""

import asyncio

import pytest

from ringback.receiver.deduplicator import Deduplicator
from tests.support.limits import WAIT_SECONDS


class Work:
    def __init__(self) -> None:
        self.runs = 0

    async def __call__(self) -> None:
        self.runs += 1


async def test_the_message_that_was_silent_longest_is_forgotten_first() -> None:
    once, work = Deduplicator(capacity=2), Work()

    for message_id in ("a", "b", "a", "c"):  # b is now the one to forget
        await once.run_unless_handled(("wh_1", message_id), work)
    assert work.runs == 3

    await once.run_unless_handled(("wh_1", "a"), work)
    assert work.runs == 3
    await once.run_unless_handled(("wh_1", "b"), work)
    assert work.runs == 4


async def test_the_message_after_a_cancelled_one_is_handled() -> None:
    once, work = Deduplicator(capacity=2), Work()
    entered = asyncio.Event()

    async def endless() -> None:
        entered.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(WAIT_SECONDS):
        first = asyncio.create_task(once.run_unless_handled(("wh_1", "a"), endless))
        await entered.wait()
        second = asyncio.create_task(once.run_unless_handled(("wh_1", "a"), work))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await second

    assert work.runs == 1
