"""Reports on their way: which is carried, when it is tried again, and when nobody waits any more."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ringback.extension.outbox import GIVE_UP_SECONDS, LINES_MAX, Line, Outbox, Refused, TryAgain
from tests.support.clock import FakeClock

START: dict[str, Any] = {"tool": "build_report"}
END: dict[str, Any] = {"tool": "build_report", "result": {"content": []}}


class Ringback:
    """Takes reports, after as many failures as a test says."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.clock = FakeClock()
        self.times: list[float] = []
        self.sent: list[Any] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self, report: Any) -> str:
        self.sent.append(report)
        self.times.append(self.clock.monotonic())
        await self.hold.wait()
        if self.failures:
            raise self.failures.pop(0)
        return "call_1"


@asynccontextmanager
async def running(ringback: Ringback) -> AsyncGenerator[tuple[Line, "asyncio.Task[None]"]]:
    line = Line(ringback, clock=ringback.clock, chance=lambda: 0.5)
    task = asyncio.create_task(line.run())
    try:
        yield line, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_report_is_carried_and_the_line_ends_with_the_last() -> None:
    ringback = Ringback()
    async with running(ringback) as (line, task):
        line.tell(START)
        await line.tried()
        assert line.call_id == "call_1"
        line.close()
        line.tell(END)
        await task
    assert ringback.sent == [START, END]


async def test_what_was_overtaken_on_the_way_is_not_sent() -> None:
    ringback = Ringback()
    ringback.hold.clear()
    async with running(ringback) as (line, task):
        line.tell(START)
        await asyncio.sleep(0)
        line.tell({**START, "progress": {"progress": 1}})
        line.tell(END)
        line.close()
        ringback.hold.set()
        await task
    assert ringback.sent == [START, END]


async def test_it_is_tried_again_with_pauses_that_grow() -> None:
    ringback = Ringback(TryAgain("away"), TryAgain("away"), TryAgain("away"))
    async with running(ringback) as (line, task):
        line.tell(END)
        line.close()
        await line.tried()
        assert line.call_id is None
        await task
    assert line.call_id == "call_1"
    assert ringback.times == [0, 1, 3, 7]


async def test_a_refusal_is_final() -> None:
    ringback = Ringback(Refused("no such scope"))
    async with running(ringback) as (line, task):
        line.tell(START)
        await line.tried()
        assert str(line.refusal) == "no such scope"
        line.close()
        await task
    assert ringback.sent == [START]


async def test_a_ringback_that_stays_away_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    ringback = Ringback(*[TryAgain("away")] * 1000)
    async with running(ringback) as (line, task):
        line.tell(END)
        line.close()
        await task
    assert GIVE_UP_SECONDS <= ringback.clock.monotonic() < GIVE_UP_SECONDS + 60
    assert line.call_id is None
    assert "report.given_up" in caplog.text


async def test_a_bug_holds_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with running(Ringback(RuntimeError("a bug"))) as (line, task):
        line.tell(START)
        await line.tried()
        line.tell(END)
        await line.tried()
        await task
    assert "report.lost" in caplog.text


async def test_there_are_only_so_many_lines() -> None:
    outbox = Outbox(Ringback(), clock=FakeClock(), chance=lambda: 0.5)
    lines = [outbox.open_line() for _ in range(LINES_MAX)]
    assert None not in lines
    assert outbox.open_line() is None
    await outbox.drain(0)
    assert outbox.open_line() is not None
    await outbox.drain(0)
