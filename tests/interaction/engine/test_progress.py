"""Progress of a call is stored at most once a second, always the newest."""

import asyncio
from dataclasses import replace

import pytest

from ringback.domain.call import Call, Progress
from ringback.domain.call_outcome import CallCompletion
from ringback.domain.event import EventName
from ringback.domain.ports import Transaction
from ringback.runner.throttled_writer import PROGRESS_INTERVAL_SECONDS, ProgressRecord, ThrottledWriter
from tests.support.builders import make_call, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import WAIT_SECONDS, Engine, OnProgress, ScriptedUpstreams
from tests.support.stored_work import COMPLETED_RESULT
from tests.support.stores import FailingStore


def make_progress(number: int) -> Progress:
    return Progress(progress=number, total=100, message=f"step {number}")


class RecordingWriter:
    """Records each write with its time."""

    def __init__(self, clock: FakeClock) -> None:
        self.written: list[tuple[float, Progress]] = []
        self._clock = clock
        self._more = asyncio.Event()

    async def write(self, progress: Progress) -> None:
        self.written.append((self._clock.monotonic(), progress))
        self._more.set()

    async def wait_for_writes(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.written) < count:
                self._more.clear()
                await self._more.wait()


async def test_the_first_progress_is_written_at_once_and_then_the_newest_once_a_second() -> None:
    clock = FakeClock()
    writer = RecordingWriter(clock)
    throttled = ThrottledWriter(writer.write, interval_seconds=PROGRESS_INTERVAL_SECONDS, clock=clock)
    task = asyncio.create_task(throttled.run())

    throttled.update(make_progress(1))
    await writer.wait_for_writes(1)
    for number in range(2, 50):
        throttled.update(make_progress(number))
    await writer.wait_for_writes(2)
    task.cancel()

    assert writer.written == [(0.0, make_progress(1)), (PROGRESS_INTERVAL_SECONDS, make_progress(49))]


async def test_nothing_is_written_without_progress() -> None:
    clock = FakeClock()
    writer = RecordingWriter(clock)
    throttled = ThrottledWriter(writer.write, interval_seconds=PROGRESS_INTERVAL_SECONDS, clock=clock)
    task = asyncio.create_task(throttled.run())

    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()

    assert writer.written == []


async def test_progress_whose_write_is_interrupted_at_the_end_of_the_run_counts_as_unstored() -> None:
    """The call was handed back without it, and went on to say when it is sent again, though its upstream was paused."""
    has_begun = asyncio.Event()

    async def begin_write(progress: Progress) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    record = ProgressRecord(clock=FakeClock())
    record.begin_writes(begin_write)
    record.update(make_progress(1))
    await asyncio.wait_for(has_begun.wait(), WAIT_SECONDS)
    await record.end_writes()

    assert record.unstored == make_progress(1)


async def test_progress_that_came_too_late_in_one_session_does_not_replace_that_of_the_next_session() -> None:
    """A call goes on in the next session when one is lost. Its progress went back when it was handed back then."""
    clock = FakeClock()
    writer, record = RecordingWriter(clock), ProgressRecord(clock=clock)
    record.update(make_progress(1))
    record.begin_writes(writer.write)
    record.update(make_progress(2))
    await writer.wait_for_writes(1)
    await record.end_writes()

    assert record.unstored is None


async def execute_with_progress(engine: Engine, call: Call, *steps: int, unsteady: FailingStore | None = None) -> None:
    """Drive a call whose tool reports these steps, all within a second, and ends when the first was written."""
    written = engine.store.signals.listen(f"call:{call.id}")

    async def report_progress(driven: Call, on_progress: OnProgress) -> CallCompletion:
        with written as waiter:
            await on_progress(make_progress(steps[0]))
            if unsteady is None:
                await waiter.wait(WAIT_SECONDS)
            for number in steps[1:]:
                await on_progress(make_progress(number))
        return COMPLETED_RESULT

    await asyncio.wait_for(engine.make_execution(call, ScriptedUpstreams(report_progress)).run(), WAIT_SECONDS)


@pytest.mark.requirement("R03")
@pytest.mark.requirement("R12")
async def test_the_completion_stores_the_last_progress(engine: Engine) -> None:
    call = await engine.lease_call(make_call(deadline_at=engine.clock.now().replace(year=2100)))

    await execute_with_progress(engine, call, 1, 2, 3)

    assert (await engine.read_call(call)).progress == make_progress(3)
    events = await engine.read_events()
    assert [event.name for event in events] == [EventName.CALL_PROGRESS, EventName.CALL_FINISHED]
    assert events[0].data["progress"] == {"progress": 1, "total": 100, "message": "step 1"}


async def test_progress_is_sent_only_to_webhooks_that_selected_it(engine: Engine) -> None:
    asked, silent = make_webhook(events=frozenset({EventName.CALL_PROGRESS})), make_webhook()
    await engine.insert_webhooks(asked, silent)
    call = await engine.lease_call(make_call(deadline_at=engine.clock.now().replace(year=2100)))

    await execute_with_progress(engine, call, 1)

    sent = [(delivery.seq, delivery.webhook_id) for delivery in await engine.read_deliveries()]
    assert sent == [(1, asked.id), (2, silent.id)]


async def test_progress_under_a_lost_lease_is_not_written(engine: Engine) -> None:
    call = await engine.lease_call(make_call())

    async def record(tx: Transaction) -> bool:
        return await engine.recorder.record_progress(tx, call, make_progress(1), lease_token="lease_of_another")

    assert not await engine.store.write(record)
    assert (await engine.read_call(call)).progress is None
    assert await engine.read_events() == []


async def test_progress_after_the_end_is_not_written(engine: Engine) -> None:
    call = await engine.finish_call(make_call())

    async def record(tx: Transaction) -> bool:
        return await engine.recorder.record_progress(tx, replace(call), make_progress(1), lease_token="")

    assert not await engine.store.write(record)
    assert [event.name for event in await engine.read_events()] == [EventName.CALL_FINISHED]
