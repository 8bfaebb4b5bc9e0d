"""Readiness: concurrent checks share one write, and its result is valid for a second."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.services.insights.readiness import CHECK_TTL_SECONDS, SharedCheck, WriteHealthCheck
from tests.support.clock import FakeClock
from tests.support.stores import FailingStore, StoreWrapper, open_test_store

T = TypeVar("T")


class CountingProbeStore(StoreWrapper):
    writes = 0

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self.writes += 1
        return await super().write(work)


async def test_any_number_of_checks_causes_one_write_per_second(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_test_store(tmp_path, clock) as opened:
        store = CountingProbeStore(opened)
        check = WriteHealthCheck(store=store, clock=clock)

        await asyncio.gather(*(check.require_writable() for _ in range(50)))
        await check.require_writable()
        assert store.writes == 1
        clock.advance(CHECK_TTL_SECONDS)
        await asyncio.gather(*(check.require_writable() for _ in range(50)))
        assert store.writes == 2


async def test_a_failed_write_is_reported_to_every_waiter_and_cleared_by_the_next_write(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_test_store(tmp_path, clock) as opened:
        store = FailingStore(opened)
        check = WriteHealthCheck(store=store, clock=clock)
        store.refusals = 1

        answers = await asyncio.gather(*(check.require_writable() for _ in range(5)), return_exceptions=True)
        assert [str(answer) for answer in answers] == ["The disk is full."] * 5
        with pytest.raises(StoreUnavailable):
            await check.require_writable()
        clock.advance(CHECK_TTL_SECONDS)
        await check.require_writable()


async def test_a_check_that_raised_is_run_again_and_one_caller_that_leaves_ends_it_for_no_other() -> None:
    released, runs = asyncio.Event(), 0

    async def run() -> int:
        nonlocal runs
        runs += 1
        await released.wait()
        if runs == 1:
            raise StoreUnavailable("The database is away.")
        return runs

    check = SharedCheck(run, clock=FakeClock())
    leaving, staying = asyncio.create_task(check.get_result()), asyncio.create_task(check.get_result())
    await asyncio.sleep(0)
    leaving.cancel()
    released.set()

    with pytest.raises(StoreUnavailable):
        await staying
    assert [await check.get_result() for _ in range(3)] == [2, 2, 2]
