"""The process is frozen for longer than its leases, as by SIGSTOP: both clocks go on, and no lease is extended meanwhile."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from types import CoroutineType
from typing import Any, Final

import pytest

from ringback.domain.call import Call
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.errors import StoreUnavailable
from ringback.janitor.config import JanitorConfig
from ringback.janitor.janitor import SCHEDULING_TIME_SAVE_SECONDS
from ringback.janitor.recovery import LEASE_GRACE_SECONDS, RESUME_GRACE_SECONDS
from ringback.storage.rows.operations import SqlSchedulingTime
from tests.support.builders import make_call
from tests.support.calls import make_calls
from tests.support.clock import ManualClock
from tests.support.engine import BlockingTool, Engine, ScriptedUpstreams, insert_dispatched_call, wait_until
from tests.support.executions import replace_lease
from tests.support.stored_work import LEASE_SECONDS
from tests.support.stores import FailingStore, open_test_store

pytestmark = pytest.mark.requirement("R35")

FREEZE: Final = LEASE_SECONDS + LEASE_GRACE_SECONDS
"""Seconds after which the janitor finishes the calls of a dead runner."""
JANITOR_PAUSE: Final = JanitorConfig().interval_seconds


class RecordingClock(ManualClock):
    def __init__(self) -> None:
        super().__init__()
        self.sleeps = list[float]()

    def sleep(self, seconds: float) -> "CoroutineType[Any, Any, None]":
        self.sleeps.append(seconds)
        return super().sleep(seconds)

    async def has_slept(self, seconds: float, times: int) -> bool:
        return self.sleeps.count(seconds) >= times


@pytest.fixture
def clock() -> RecordingClock:
    return RecordingClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: RecordingClock) -> AsyncGenerator[Engine]:
    async with open_test_store(tmp_path, clock) as store:
        yield Engine(store, clock)


@asynccontextmanager
async def running_janitor(engine: Engine) -> AsyncGenerator[None]:
    stop = asyncio.Event()
    work = asyncio.create_task(engine.make_janitor().run(stop))
    try:
        yield
    finally:
        stop.set()
        await work


async def is_prolonged(engine: Engine, before: Call) -> bool:
    return (await engine.read_call(before)).lease_until != before.lease_until


async def test_running_calls_go_on_after_a_freeze(engine: Engine, clock: RecordingClock) -> None:
    (call,), tool = make_calls(engine, 1), BlockingTool()
    await engine.insert_calls(call)

    async with engine.running_runner(ScriptedUpstreams(tool)), running_janitor(engine):
        await tool.wait_until_inside(1)
        await wait_until(partial(clock.has_slept, JANITOR_PAUSE, 1))
        before = await engine.read_call(call)
        clock.advance(FREEZE)
        await wait_until(partial(clock.has_slept, JANITOR_PAUSE, 2))
        await wait_until(partial(is_prolonged, engine, before))
        tool.release.set()
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, ended.runs, tool.cancelled) == (CallOutcome.RESULT, 1, [])


async def test_a_call_that_another_runner_took_meanwhile_is_left_to_it(engine: Engine, clock: RecordingClock) -> None:
    (call,), tool = make_calls(engine, 1), BlockingTool()
    await engine.insert_calls(call)

    async with engine.running_runner(ScriptedUpstreams(tool)):
        await tool.wait_until_inside(1)
        taken = await replace_lease(engine, call)
        clock.advance(FREEZE)
        await tool.wait_until_cancelled(1)

    assert await engine.read_call(call) == taken


@pytest.mark.parametrize("refusals", [0, 1], ids=["before it started", "in its first round"])
async def test_the_janitor_voids_no_lease_soon_after_the_store_may_have_been_away(
    engine: Engine, clock: RecordingClock, refusals: int
) -> None:
    """Its holder could not extend it either, and may do so now."""
    call, store = await insert_dispatched_call(engine, make_call()), FailingStore(engine.store)
    clock.advance(FREEZE)
    store.refusals = refusals

    async with running_janitor(Engine(store, clock)):
        rounds = round(RESUME_GRACE_SECONDS / JANITOR_PAUSE)
        for finished in range(1, rounds + 1):
            await wait_until(partial(clock.has_slept, JANITOR_PAUSE, finished))
            assert not (await engine.read_call(call)).is_final
            clock.advance(JANITOR_PAUSE)
        (ended,) = await engine.wait_until_final(call)

    assert store.refusals == 0
    assert ended.outcome is CallOutcome.UNKNOWN


async def test_the_janitor_voids_no_lease_soon_after_the_store_took_no_writes(
    engine: Engine, clock: RecordingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk answers the janitor's questions. It had nothing to write, and took a holder that waited for a dead one."""

    async def pass_rounds(count: int) -> None:
        for _ in range(count):
            rounds = clock.sleeps.count(JANITOR_PAUSE)
            clock.advance(JANITOR_PAUSE)
            await wait_until(partial(clock.has_slept, JANITOR_PAUSE, rounds + 1))

    async def refuse(_rows: SqlSchedulingTime, _now: datetime) -> None:
        raise StoreUnavailable("The disk is full.")

    async with running_janitor(engine):
        await wait_until(partial(clock.has_slept, JANITOR_PAUSE, 1))
        await pass_rounds(round(SCHEDULING_TIME_SAVE_SECONDS / JANITOR_PAUSE))  # it has just saved the time
        call = await insert_dispatched_call(engine, make_call())
        with monkeypatch.context() as full_disk:
            full_disk.setattr(SqlSchedulingTime, "save", refuse)
            await pass_rounds(round(FREEZE / JANITOR_PAUSE) - 1)
        await pass_rounds(round(RESUME_GRACE_SECONDS / JANITOR_PAUSE) - 1)
        assert not (await engine.read_call(call)).is_final
        await pass_rounds(1)
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.UNKNOWN
