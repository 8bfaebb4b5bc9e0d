"""Long polls: woken by what they wait for, by the end of their time, or by the end of the service."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ringback.domain.errors import ShuttingDown
from ringback.services import long_polling as services_waiting
from ringback.services.lifecycle import Lifecycle
from ringback.services.long_polling import LONG_POLL_SECONDS_MAX, poll_until
from ringback.storage.signals import LocalSignals
from tests.support.clock import FakeClock
from tests.support.engine import WAIT_SECONDS, wait_until

TOPIC = "call:1"


class PolledValue:
    """A thing that somebody looks at."""

    def __init__(self) -> None:
        self.there = False
        self.read_count = 0

    async def read_value(self) -> bool:
        self.read_count += 1
        return self.there

    async def wait_for_reads(self, times: int) -> None:
        async def looked() -> bool:
            return self.read_count >= times

        await wait_until(looked)


class FakePoll:
    """One long poll, and everything that may end it."""

    def __init__(self) -> None:
        self.shelf = PolledValue()
        self.signals = LocalSignals()
        self.clock = FakeClock()
        self.lifecycle = Lifecycle()

    async def wait(self, wait_seconds: float, *, look: Callable[[], Awaitable[bool]] | None = None) -> bool:
        return await poll_until(
            look or self.shelf.read_value,
            lambda there: there,
            signals=self.signals,
            topics=[TOPIC],
            wait_seconds=wait_seconds,
            clock=self.clock,
            lifecycle=self.lifecycle,
        )


@asynccontextmanager
async def waiting(poll: FakePoll, wait_seconds: float = 60.0) -> AsyncGenerator[asyncio.Task[bool]]:
    """A poll that has looked once, in vain; it has ended when this is left."""
    task = asyncio.create_task(poll.wait(wait_seconds))
    await poll.shelf.wait_for_reads(1)
    yield task
    await asyncio.wait_for(task, WAIT_SECONDS)


@pytest.mark.requirement("R20")
async def test_a_notification_makes_the_poll_read_again() -> None:
    poll = FakePoll()

    async with waiting(poll) as task:
        poll.signals.notify([TOPIC])
        await poll.shelf.wait_for_reads(2)
        assert not task.done()
        poll.shelf.there = True
        poll.signals.notify([TOPIC])

    assert task.result()


async def test_an_existing_value_is_returned_at_once() -> None:
    poll = FakePoll()
    poll.shelf.there = True

    assert await poll.wait(60.0)
    assert poll.shelf.read_count == 1


async def test_a_poll_without_a_wait_returns_the_current_value() -> None:
    poll = FakePoll()

    assert not await poll.wait(0.0)
    assert poll.shelf.read_count == 1


async def test_a_notification_during_a_read_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LONG_POLL_SECONDS_MAX", "POLL_INTERVAL_SECONDS"):  # only the ring ends this wait in time
        monkeypatch.setattr(services_waiting, name, 10 * WAIT_SECONDS)
    poll = FakePoll()

    async def look() -> bool:
        there = await poll.shelf.read_value()
        poll.shelf.there = True
        poll.signals.notify([TOPIC])
        return there

    assert await asyncio.wait_for(poll.wait(10 * WAIT_SECONDS, look=look), WAIT_SECONDS)


async def test_a_poll_returns_the_last_value_when_its_time_is_over() -> None:
    poll = FakePoll()

    async with waiting(poll, wait_seconds=30.0) as task:
        poll.clock.advance(30)
        poll.signals.notify([TOPIC])

    assert not task.result()
    assert poll.shelf.read_count == 2


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


async def test_a_service_that_stops_lets_its_polls_go() -> None:
    poll = FakePoll()

    async with waiting(poll) as task:
        poll.lifecycle.begin_shutdown()

    assert not task.result()


def test_a_service_that_stops_starts_nothing_new() -> None:
    lifecycle = Lifecycle()
    lifecycle.require_running()

    lifecycle.begin_shutdown()

    with pytest.raises(ShuttingDown, match="Nothing was started"):
        lifecycle.require_running()
