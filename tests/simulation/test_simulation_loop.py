"""The loop of scripts/simulate: virtual time, drawn orders, processes that die and freeze, and nothing real."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar

import pytest

from scripts.simulate_runs import loop as simulation_loop
from scripts.simulate_runs.clock import NodeClock
from scripts.simulate_runs.loop import SimulationLoop, StuckSimulation

T = TypeVar("T")


async def pass_time(seconds: float) -> None:
    """Let virtual time pass."""
    await NodeClock(asyncio.get_running_loop()).sleep(seconds)


def simulate(main: Coroutine[Any, Any, T], loop: SimulationLoop | None = None) -> T:
    return (loop or SimulationLoop(Random(1))).run_simulation(main)


def test_days_of_sleep_take_no_time() -> None:
    async def sleep_long() -> float:
        await pass_time(86_400.0)
        return asyncio.get_running_loop().time()

    assert simulate(sleep_long()) == 86_400.0


def test_callbacks_of_one_process_run_in_the_order_in_which_they_were_scheduled() -> None:
    async def schedule() -> list[int]:
        ran: list[int] = []
        for number in range(20):
            asyncio.get_running_loop().call_soon(ran.append, number)
        await pass_time(0.1)
        return ran

    assert simulate(schedule()) == list(range(20))


def run_two_processes(seed: int) -> list[str]:
    """The order in which two processes take their steps."""
    loop = SimulationLoop(Random(seed))
    ran: list[str] = []

    async def take_steps(name: str) -> None:
        for _ in range(10):
            ran.append(name)
            await asyncio.sleep(0)

    async def run_both() -> list[str]:
        contexts = [loop.create_process(name)[1] for name in ("a", "b")]
        tasks = [loop.create_task(take_steps(name), context=each) for name, each in zip("ab", contexts, strict=True)]
        await asyncio.gather(*tasks)
        return ran

    return simulate(run_both(), loop)


def test_the_seed_alone_decides_the_order_of_processes() -> None:
    assert run_two_processes(7) == run_two_processes(7)
    assert len({"".join(run_two_processes(seed)) for seed in range(10)}) > 1


def test_nothing_of_a_killed_process_runs_again_not_even_its_finally() -> None:
    loop = SimulationLoop(Random(1))
    ran: list[str] = []

    async def work() -> None:
        try:
            ran.append("begins")
            await pass_time(1.0)
            ran.append("goes on")
        finally:
            if not loop.has_ended:
                ran.append("cleans up")

    async def kill() -> None:
        process, context = loop.create_process("victim")
        loop.create_task(work(), context=context)
        await pass_time(0.5)
        loop.kill_process(process)
        await pass_time(5.0)

    simulate(kill(), loop)

    assert ran == ["begins"]


def test_a_frozen_process_goes_on_after_its_thaw() -> None:
    loop = SimulationLoop(Random(1))

    async def work() -> float:
        await pass_time(1.0)
        return loop.time()

    async def freeze() -> float:
        process, context = loop.create_process("frozen")
        task = loop.create_task(work(), context=context)
        await pass_time(0.5)
        loop.freeze_process(process)
        await pass_time(60.0)
        assert not task.done()
        loop.thaw_process(process)
        return await task

    assert simulate(freeze(), loop) == 60.5


def test_a_simulation_refuses_threads_and_sockets() -> None:
    async def use_a_thread() -> None:
        await asyncio.to_thread(print)

    async def connect() -> None:
        await asyncio.open_connection("localhost", 80)

    with pytest.raises(RuntimeError, match="A simulation has no threads"):
        simulate(use_a_thread())
    with pytest.raises(RuntimeError, match="A simulation has no sockets"):
        simulate(connect())


def test_an_endless_loop_at_one_instant_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation_loop, "CALLBACKS_AT_ONCE_MAX", 1000)

    async def spin() -> None:
        while True:  # noqa: ASYNC110 - this is the endless loop
            await asyncio.sleep(0)

    with pytest.raises(StuckSimulation, match="runs without an end"):
        simulate(spin())


def test_a_simulation_with_nothing_left_to_run_is_an_error() -> None:
    async def wait_for_nobody() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckSimulation, match="Nothing is left to run"):
        simulate(wait_for_nobody())
