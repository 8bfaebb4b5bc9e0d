"""The CPU budget of live lists: what it allows in all, whose turn it is, and what it measures."""

import asyncio
import time
from contextlib import suppress

import pytest

from ringback.domain.principal import Principal
from ringback.services.live.budget import BUSY_SHARE, CREDIT_SECONDS_MAX, WALL_SHARE, CpuBudget
from tests.support.clock import FakeClock

ALICE, BOB = Principal("alice"), Principal("bob")
READS = 100
READ_SECONDS = 0.02


@pytest.mark.parametrize("cpu_share", [0.0, 0.5, 1.0], ids=["idle", "beside other processes", "saturated"])
async def test_lists_use_a_small_share_of_the_time_and_of_the_processs_own_cpu_time(cpu_share: float) -> None:
    clock = FakeClock()
    budget = CpuBudget(clock=clock, read_cpu_seconds=lambda: clock.monotonic() * cpu_share)
    for _ in range(READS):
        async with budget.wait_for_turn(ALICE):
            budget.spend(ALICE, READ_SECONDS)

    allowed = clock.monotonic() * (WALL_SHARE + BUSY_SHARE * cpu_share) + CREDIT_SECONDS_MAX + READ_SECONDS
    assert 0.9 * allowed < READS * READ_SECONDS <= allowed


async def test_principals_share_the_budget_and_not_the_turns() -> None:
    clock = FakeClock()
    budget = CpuBudget(clock=clock, read_cpu_seconds=clock.monotonic)
    used = {ALICE: 0.0, BOB: 0.0}

    async def read(owner: Principal, cpu_seconds: float) -> None:
        while clock.monotonic() < 100:
            async with budget.wait_for_turn(owner):
                budget.spend(owner, cpu_seconds)
                used[owner] += cpu_seconds

    await asyncio.gather(*(read(ALICE, 0.05) for _ in range(8)), read(BOB, 0.001), read(BOB, 0.001))

    assert used[BOB] > used[ALICE] / 2


async def test_an_owner_that_was_alone_for_long_is_not_held_up_by_one_that_comes_later() -> None:
    budget = CpuBudget(clock=FakeClock(), read_cpu_seconds=lambda: 0.0)
    turns: list[Principal] = []

    async def read(owner: Principal) -> None:
        async with budget.wait_for_turn(owner):
            turns.append(owner)
            budget.spend(owner, READ_SECONDS)

    for _ in range(READS):
        await read(ALICE)
    turns.clear()
    async with budget.wait_for_turn(BOB):
        reads = [asyncio.create_task(read(owner)) for owner in [BOB] * 20 + [ALICE] * 2]
        await asyncio.sleep(0)
        budget.spend(BOB, READ_SECONDS)
    await asyncio.gather(*reads)

    assert ALICE in turns[:4]


async def test_a_cancelled_turn_goes_to_the_next_one() -> None:
    budget = CpuBudget(clock=FakeClock())
    turns: list[str] = []

    async def read(name: str) -> None:
        async with budget.wait_for_turn(ALICE):
            turns.append(name)

    async with budget.wait_for_turn(ALICE):
        first, second = asyncio.create_task(read("first")), asyncio.create_task(read("second"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    first.cancel()  # it has the turn already
    await asyncio.wait([first, second])

    assert turns == ["second"]


async def test_measured_work_counts_its_own_steps_and_keeps_result_and_cancellation() -> None:
    budget = CpuBudget(clock=FakeClock(), read_cpu_seconds=lambda: 0.0)
    spent: list[float] = []
    budget.spend = lambda _, cpu_seconds: spent.append(cpu_seconds)  # type: ignore[method-assign]
    ended: list[str] = []

    async def work() -> str:
        burn(0.01)
        await asyncio.sleep(0)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return "never"

    task = asyncio.create_task(budget.measure(ALICE, work()))
    for _ in range(3):
        await asyncio.sleep(0)
        burn(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert ended == ["cancelled"]
    assert task.cancelled()
    assert 0.01 <= sum(spent) < 0.02
    assert await budget.measure(ALICE, asyncio.sleep(0, result="done")) == "done"


def burn(cpu_seconds: float) -> None:
    until = time.thread_time() + cpu_seconds
    while time.thread_time() < until:
        pass
