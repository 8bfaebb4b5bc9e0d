"""Long polls end with their condition, their time limit, or a shutdown."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ringback.domain.errors import ShuttingDown
from ringback.services import long_polling
from ringback.services.lifecycle import Lifecycle
from ringback.services.long_polling import LONG_POLL_SECONDS_MAX, poll_until
from ringback.storage.signals import LocalSignals
from tests.support.clock import FakeClock
from tests.support.engine import WAIT_SECONDS, wait_until

TOPIC = "call:1"


class PolledValue:
    """A stored value that counts its reads."""

    def __init__(self) -> None:
        self.is_set = False
        self.read_count = 0

    async def read_value(self) -> bool:
        self.read_count += 1
        return self.is_set

    async def wait_for_reads(self, times: int) -> None:
        async def has_enough_reads() -> bool:
            return self.read_count >= times

        await wait_until(has_enough_reads)


class FakePoll:
    """One long poll with its signals, clock and lifecycle."""

    def __init__(self) -> None:
        self.value = PolledValue()
        self.signals = LocalSignals()
        self.clock = FakeClock()
        self.lifecycle = Lifecycle()

    async def wait(
        self, wait_seconds: float, *, read: Callable[[], Awaitable[bool]] | None = None, pause_seconds: float = 0.0
    ) -> bool:
        return await poll_until(
            read or self.value.read_value,
            bool,
            signals=self.signals,
            topics=[TOPIC],
            wait_seconds=wait_seconds,
            clock=self.clock,
            lifecycle=self.lifecycle,
            pause_seconds=pause_seconds,
        )


@asynccontextmanager
async def waiting(poll: FakePoll, wait_seconds: float = 60.0) -> AsyncGenerator[asyncio.Task[bool]]:
    """A poll whose first read found nothing. The context waits for its end."""
    task = asyncio.create_task(poll.wait(wait_seconds))
    await poll.value.wait_for_reads(1)
    yield task
    await asyncio.wait_for(task, WAIT_SECONDS)


@pytest.mark.requirement("R20")
async def test_a_notification_makes_the_poll_read_again() -> None:
    poll = FakePoll()

    async with waiting(poll) as task:
        poll.signals.notify([TOPIC])
        await poll.value.wait_for_reads(2)
        assert not task.done()
        poll.value.is_set = True
        poll.signals.notify([TOPIC])

    assert task.result()


async def test_notifications_in_quick_succession_make_the_poll_read_once_again() -> None:
    poll, paused, go_on = FakePoll(), list[float](), asyncio.Event()

    class Pausing(FakeClock):
        async def sleep(self, seconds: float) -> None:
            paused.append(seconds)
            await go_on.wait()

    poll.clock = Pausing()
    task = asyncio.create_task(poll.wait(60.0, pause_seconds=0.5))
    await poll.value.wait_for_reads(1)
    for _ in range(5):
        poll.signals.notify([TOPIC])
        await asyncio.sleep(0)
    poll.value.is_set = True
    go_on.set()

    assert await asyncio.wait_for(task, WAIT_SECONDS)
    assert (poll.value.read_count, paused) == (2, [0.5])


async def test_an_existing_value_is_returned_at_once() -> None:
    poll = FakePoll()
    poll.value.is_set = True

    assert await poll.wait(60.0)
    assert poll.value.read_count == 1


async def test_a_poll_without_a_wait_returns_the_current_value() -> None:
    poll = FakePoll()

    assert not await poll.wait(0.0)
    assert poll.value.read_count == 1


async def test_a_notification_during_a_read_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LONG_POLL_SECONDS_MAX", "POLL_INTERVAL_SECONDS"):  # only the signal ends this wait in time
        monkeypatch.setattr(long_polling, name, 10 * WAIT_SECONDS)
    poll = FakePoll()

    async def read() -> bool:
        there = await poll.value.read_value()
        poll.value.is_set = True
        poll.signals.notify([TOPIC])
        return there

    assert await asyncio.wait_for(poll.wait(10 * WAIT_SECONDS, read=read), WAIT_SECONDS)


async def test_a_poll_returns_the_last_value_when_its_time_is_over() -> None:
    poll = FakePoll()

    async with waiting(poll, wait_seconds=30.0) as task:
        poll.clock.advance(30)
        poll.signals.notify([TOPIC])

    assert not task.result()
    assert poll.value.read_count == 2


async def test_no_poll_waits_longer_than_proxies_allow() -> None:
    poll = FakePoll()

    async with waiting(poll, wait_seconds=10 * LONG_POLL_SECONDS_MAX) as task:
        poll.clock.advance(LONG_POLL_SECONDS_MAX)
        poll.signals.notify([TOPIC])

    assert not task.result()


async def test_a_poll_with_a_short_wait_wakes_at_its_end() -> None:
    class Passing(FakeClock):
        def monotonic(self) -> float:
            return asyncio.get_running_loop().time()

    poll = FakePoll()
    poll.clock = Passing()

    assert not await asyncio.wait_for(poll.wait(0.02), WAIT_SECONDS)


async def test_a_shutdown_ends_waiting_polls() -> None:
    poll = FakePoll()

    async with waiting(poll) as task:
        poll.lifecycle.begin_shutdown()

    assert not task.result()


def test_a_service_that_shuts_down_starts_nothing() -> None:
    lifecycle = Lifecycle()
    lifecycle.require_running()

    lifecycle.begin_shutdown()

    with pytest.raises(ShuttingDown, match="Nothing was started"):
        lifecycle.require_running()
