"""The supervisor restarts failed workers, reports which are down, and stops them one after another."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import pytest

from ringback.supervisor import RESTART_BACKOFF, Supervisor, Worker
from ringback.waits import wait_first
from tests.support.clock import FakeClock
from tests.support.engine import WAIT_SECONDS, wait_until


class ManualWakeClock(FakeClock):
    """A clock on which each sleep lasts until the test ends it."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, asyncio.Event]] = []
        self._moved = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        sleeper = (seconds, asyncio.Event())
        self._sleepers.append(sleeper)
        self._moved.set()
        try:
            await sleeper[1].wait()
        finally:
            self._sleepers = [each for each in self._sleepers if each is not sleeper]
            self._moved.set()

    def sleeping_count(self) -> list[float]:
        return sorted(seconds for seconds, _ in self._sleepers)

    async def wait_until_asleep(self, *seconds: float) -> None:
        """Wait until exactly these sleeps are being slept."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.sleeping_count() != sorted(seconds):
                self._moved.clear()
                await self._moved.wait()

    def wake_all(self) -> None:
        """Let the time pass that the longest sleeper waits for."""
        self.advance(max(self.sleeping_count()))
        sleepers, self._sleepers = self._sleepers, []
        for _, woken in sleepers:
            woken.set()


class WorkerLog:
    """What workers did, in order."""

    def __init__(self) -> None:
        self.entries: list[str] = []


class HealthyWorker:
    def __init__(self, name: str, diary: WorkerLog) -> None:
        self.name = name
        self._diary = diary

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._diary.entries.append(f"{self.name} stops")
        await asyncio.sleep(0)
        self._diary.entries.append(f"{self.name} stopped")


class FailingWorker:
    """Fails a given number of times, then works."""

    name = "faulty"

    def __init__(self, failures: int) -> None:
        self.runs = 0
        self._failures = failures
        self._ran = asyncio.Event()

    async def wait_for_runs(self, times: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while self.runs < times:
                self._ran.clear()
                await self._ran.wait()

    async def run(self, stop: asyncio.Event) -> None:
        self.runs += 1
        self._ran.set()
        if self.runs <= self._failures:
            raise ZeroDivisionError
        await stop.wait()


@asynccontextmanager
async def supervised(workers: Sequence[Worker], clock: FakeClock) -> AsyncGenerator[Supervisor]:
    supervisor, stop = Supervisor(workers, clock=clock), asyncio.Event()
    work = asyncio.create_task(supervisor.run(stop))
    try:
        yield supervisor
    finally:
        stop.set()
        await asyncio.wait_for(work, WAIT_SECONDS)


async def are_running(supervisor: Supervisor, count: int) -> bool:
    return len(supervisor.running_workers()) == count


async def test_workers_stop_one_after_another_in_the_given_order() -> None:
    clock, diary = ManualWakeClock(), WorkerLog()

    async with supervised(
        [HealthyWorker("runner", diary), HealthyWorker("dispatcher", diary), HealthyWorker("janitor", diary)], clock
    ) as supervisor:
        await wait_until(partial(are_running, supervisor, 3))

    assert diary.entries == [
        f"{name} {what}" for name in ("runner", "dispatcher", "janitor") for what in ("stops", "stopped")
    ]


async def test_a_failed_worker_restarts_after_a_pause_that_doubles_up_to_a_minute() -> None:
    clock, faulty = ManualWakeClock(), FailingWorker(failures=8)
    pauses: list[float] = []

    async with supervised([faulty], clock):
        for pause in (1, 2, 4, 8, 16, 32, 60, 60):
            await clock.wait_until_asleep(pause)
            pauses.append(pause)
            clock.wake_all()
        await faulty.wait_for_runs(9)

    assert pauses[-1] == RESTART_BACKOFF.longest_seconds


async def test_a_worker_counts_as_failing_until_it_has_run_as_long_as_its_last_pause() -> None:
    clock, faulty = ManualWakeClock(), FailingWorker(failures=2)

    async with supervised([faulty], clock) as supervisor:
        await clock.wait_until_asleep(1)
        assert supervisor.failing_workers() == {"faulty"}
        clock.wake_all()
        await clock.wait_until_asleep(2)
        assert supervisor.failing_workers() == {"faulty"}
        clock.wake_all()
        await faulty.wait_for_runs(3)
        await clock.wait_until_asleep(2)
        assert supervisor.failing_workers() == {"faulty"}
        clock.wake_all()
        await wait_until(partial(wait_until_healthy, supervisor))


async def wait_until_healthy(supervisor: Supervisor) -> bool:
    return not supervisor.failing_workers()


async def test_other_workers_go_on_while_one_is_down(caplog: pytest.LogCaptureFixture) -> None:
    clock, diary = ManualWakeClock(), WorkerLog()

    async with supervised([FailingWorker(failures=1), HealthyWorker("other", diary)], clock) as supervisor:
        await clock.wait_until_asleep(1)
        assert supervisor.failing_workers() == {"faulty"}
        assert diary.entries == []

    assert diary.entries == ["other stops", "other stopped"]
    (record,) = [record for record in caplog.records if record.message == "worker.failed"]
    assert record.exc_info is not None
    assert record.__dict__["worker"] == "faulty"


@pytest.mark.parametrize("healthy_before", [True, False])
async def test_a_worker_that_raises_a_cancellation_of_something_else_restarts_as_after_each_failure(
    *, healthy_before: bool
) -> None:
    """Otherwise it would end for good without a word, and the shutdown would leave out the workers after it."""
    clock, diary = ManualWakeClock(), WorkerLog()

    class WaitsForACancelledTask:
        name = "faulty"
        runs = 0

        async def run(self, stop: asyncio.Event) -> None:
            self.runs += 1
            if self.runs == 1 and not healthy_before:
                raise ZeroDivisionError
            if self.runs <= 2:
                waited_for = asyncio.ensure_future(stop.wait())
                waited_for.cancel()
                await waited_for
            await stop.wait()
            diary.entries.append("faulty stops")

    faulty = WaitsForACancelledTask()
    async with supervised([faulty, HealthyWorker("other", diary)], clock) as supervisor:
        for pause in (1, 2):
            await clock.wait_until_asleep(pause)
            assert supervisor.failing_workers() == {"faulty"}
            clock.wake_all()
        await clock.wait_until_asleep(2)
        assert faulty.runs == 3

    assert diary.entries == ["faulty stops", "other stops", "other stopped"]


async def test_a_worker_that_ran_for_long_restarts_after_the_shortest_pause() -> None:
    clock, crash = ManualWakeClock(), asyncio.Event()

    class FailsLate:
        name = "late"
        runs = 0

        async def run(self, stop: asyncio.Event) -> None:
            self.runs += 1
            if self.runs > 3:
                await wait_first(crash.wait(), stop.wait())
            if not stop.is_set():
                crash.clear()
                raise ZeroDivisionError

    async with supervised([FailsLate()], clock):
        for pause in (1, 2, 4):
            await clock.wait_until_asleep(pause)
            clock.wake_all()
        await clock.wait_until_asleep(4)
        clock.advance(RESTART_BACKOFF.longest_seconds + 1)
        crash.set()
        await clock.wait_until_asleep(1)


async def test_shutdown_does_not_wait_for_the_restart_pause_of_a_worker() -> None:
    clock = ManualWakeClock()

    async with supervised([FailingWorker(failures=100)], clock):
        await clock.wait_until_asleep(1)

    assert clock.sleeping_count() == []


async def test_a_worker_that_fails_during_shutdown_delays_no_other() -> None:
    clock, diary = ManualWakeClock(), WorkerLog()

    class FailsAtTheEnd:
        name = "unlucky"

        async def run(self, stop: asyncio.Event) -> None:
            await stop.wait()
            raise ZeroDivisionError

    async with supervised([FailsAtTheEnd(), HealthyWorker("other", diary)], clock) as supervisor:
        await wait_until(partial(are_running, supervisor, 2))

    assert diary.entries == ["other stops", "other stopped"]
