"""Pending reports: which one is sent, when it is retried, and when it is given up."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ringback.extension.report_outbox import (
    CHANNELS_MAX,
    RETRY_WINDOW_SECONDS,
    RecordedReport,
    ReportChannel,
    ReportFailed,
    ReportOutbox,
    ReportRejected,
)
from tests.support.clock import FakeClock, ManualClock
from tests.support.limits import WAIT_SECONDS

START: dict[str, Any] = {"tool": "build_report"}
END: dict[str, Any] = {"tool": "build_report", "result": {"content": []}}


class FakeService:
    """Accepts reports after the failures that a test sets."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.clock = FakeClock()
        self.times: list[float] = []
        self.sent: list[Any] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.has_listeners = True

    async def __call__(self, report: Any) -> RecordedReport:
        self.sent.append(report)
        self.times.append(self.clock.monotonic())
        await self.hold.wait()
        if self.failures:
            raise self.failures.pop(0)
        return RecordedReport(call_id="call_1", has_listeners=self.has_listeners)


@asynccontextmanager
async def running(ringback: FakeService) -> AsyncGenerator[tuple[ReportChannel, "asyncio.Task[None]"]]:
    line = ReportChannel(ringback, clock=ringback.clock, random_fraction=lambda: 0.5)
    task = asyncio.create_task(line.send_reports())
    try:
        yield line, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_report_is_sent_and_the_channel_ends_after_the_last_one() -> None:
    ringback = FakeService()
    async with running(ringback) as (line, task):
        line.submit_report(START)
        await line.wait_for_attempt()
        assert line.call_id == "call_1"
        line.close()
        line.submit_report(END)
        await task
    assert ringback.sent == [START, END]


async def test_a_superseded_report_is_not_sent() -> None:
    ringback = FakeService()
    ringback.hold.clear()
    async with running(ringback) as (line, task):
        line.submit_report(START)
        await asyncio.sleep(0)
        line.submit_report({**START, "progress": {"progress": 1}})
        line.submit_report(END)
        line.close()
        ringback.hold.set()
        await task
    assert ringback.sent == [START, END]


async def test_a_failed_report_is_retried_with_growing_pauses() -> None:
    ringback = FakeService(ReportFailed("away"), ReportFailed("away"), ReportFailed("away"))
    async with running(ringback) as (line, task):
        line.submit_report(END)
        line.close()
        await line.wait_for_attempt()
        assert line.call_id is None
        await task
    assert line.call_id == "call_1"
    assert ringback.times == [0, 1, 3, 7]


async def test_a_refusal_is_final() -> None:
    ringback = FakeService(ReportRejected("no such scope"))
    async with running(ringback) as (line, task):
        line.submit_report(START)
        await line.wait_for_attempt()
        assert str(line.rejection) == "no such scope"
        line.close()
        await task
    assert ringback.sent == [START]


async def test_an_unreachable_service_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    ringback = FakeService(*[ReportFailed("away")] * 1000)
    async with running(ringback) as (line, task):
        line.submit_report(END)
        line.close()
        await task
    assert RETRY_WINDOW_SECONDS <= ringback.clock.monotonic() < RETRY_WINDOW_SECONDS + 60
    assert line.call_id is None
    assert "report.given_up" in caplog.text


async def test_the_first_failure_of_a_report_says_why_and_its_repetitions_are_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An API key that the service does not accept would else be noticed after an hour."""
    ringback = FakeService(*[ReportFailed("The API key is unknown.")] * 5)
    async with running(ringback) as (line, task):
        line.submit_report(END)
        line.close()
        await task

    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [(record.getMessage(), getattr(record, "reason", None)) for record in warned] == [
        ("report.failed", "The API key is unknown.")
    ]


async def test_an_unexpected_error_blocks_no_response(caplog: pytest.LogCaptureFixture) -> None:
    async with running(FakeService(RuntimeError("a bug"))) as (line, task):
        line.submit_report(START)
        await line.wait_for_attempt()
        line.submit_report(END)
        await line.wait_for_attempt()
        await task
    assert "report.lost" in caplog.text


async def test_the_number_of_channels_is_limited() -> None:
    outbox = ReportOutbox(FakeService(), clock=FakeClock(), random_fraction=lambda: 0.5)
    lines = [outbox.open_channel() for _ in range(CHANNELS_MAX)]
    assert None not in lines
    assert outbox.open_channel() is None
    await outbox.drain(0)
    assert outbox.open_channel() is not None
    await outbox.drain(0)


async def test_a_report_that_waits_for_its_next_attempt_is_sent_at_once_when_the_server_stops() -> None:
    """The pause between two attempts is up to a minute, and a server waits ten seconds for its reports."""
    ringback = FakeService(ReportFailed("away"))
    outbox = ReportOutbox(ringback, clock=ManualClock(), random_fraction=lambda: 0.5)
    line = outbox.open_channel()
    assert line is not None
    line.submit_report(END)
    line.close()
    await line.wait_for_attempt()

    await outbox.drain(WAIT_SECONDS)

    assert (ringback.sent, line.is_last_report_due) == ([END, END], False)


async def test_a_call_without_listeners_has_no_id_to_promise() -> None:
    ringback = FakeService()
    ringback.has_listeners = False
    async with running(ringback) as (line, _):
        line.submit_report(START)
        await line.wait_for_attempt()
        assert line.call_id is None
