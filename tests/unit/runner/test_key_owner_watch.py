"""The runner learns whether several principals have keys from the store, which may be unavailable."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.domain.signals import API_KEYS_TOPIC
from ringback.runner.key_owner_watch import KeyOwnerWatch
from ringback.storage.signals import LocalSignals
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R11")

NEVER = 3600.0


class FakeStore:
    """Says as the test does whether the owner of the keys is single; None is an outage."""

    def __init__(self, answer: bool | None) -> None:  # noqa: FBT001 - the only argument
        self.answer = answer
        self.reads = 0
        self.was_read_again = asyncio.Event()
        self.signals = LocalSignals()

    async def scan(self, _principal: None, _work: Callable[[Any], Awaitable[Any]]) -> bool:
        self.reads += 1
        if self.reads > 1:
            self.was_read_again.set()
        if self.answer is None:
            raise StoreUnavailable("The database is away.")
        return self.answer


@asynccontextmanager
async def watching(store: FakeStore, *, poll_seconds: float = NEVER) -> AsyncGenerator[list[bool]]:
    answers = list[bool]()

    def note(*, are_several: bool) -> None:
        answers.append(are_several)

    watch = KeyOwnerWatch(store=cast("Store", store), on_look=note, poll_seconds=poll_seconds)
    task = asyncio.create_task(watch.run())
    await run_steps()
    try:
        yield answers
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def run_steps() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_store_is_read_at_the_start_and_after_each_change_of_a_key() -> None:
    store = FakeStore(answer=False)
    async with watching(store) as answers:
        store.answer = True
        await run_steps()
        assert (answers, store.reads) == ([True], 1)

        store.signals.notify([API_KEYS_TOPIC])
        await run_steps()
        assert (answers, store.reads) == ([True, False], 2)


async def test_the_store_is_read_now_and_then_without_a_notification() -> None:
    store = FakeStore(answer=False)
    async with watching(store, poll_seconds=0.001):
        await asyncio.wait_for(store.was_read_again.wait(), WAIT_SECONDS)


async def test_while_the_store_is_unavailable_the_last_answer_holds() -> None:
    store = FakeStore(answer=False)
    async with watching(store) as answers:
        for answer in (None, True):
            store.answer = answer
            store.signals.notify([API_KEYS_TOPIC])
            await run_steps()

    assert (answers, store.reads) == ([True, False], 3)
