"""Long polls: woken by what they wait for, by the end of their time, or by the end of the service."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ringback.domain.errors import ShuttingDown
from ringback.services import waiting as services_waiting
from ringback.services.lifecycle import Lifecycle
from ringback.services.waiting import LONG_POLL_SECONDS_MAX, poll_until
from ringback.storage.signals import LocalSignals
from tests.support.clock import FakeClock
from tests.support.engine import WAIT_SECONDS, until

TOPIC = "call:1"


class Shelf:
    """A thing that somebody looks at."""

    def __init__(self) -> None:
        self.there = False
        self.looks = 0

    async def look(self) -> bool:
        self.looks += 1
        return self.there

    async def until_looked(self, times: int) -> None:
        async def looked() -> bool:
            return self.looks >= times

        await until(looked)


class Poll:
    """One long poll, and everything that may end it."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.signals = LocalSignals()
        self.clock = FakeClock()
        self.lifecycle = Lifecycle()

    async def wait(self, wait_seconds: float, *, look: Callable[[], Awaitable[bool]] | None = None) -> bool:
        return await poll_until(
            look or self.shelf.look,
            lambda there: there,
            signals=self.signals,
            topics=[TOPIC],
            wait_seconds=wait_seconds,
            clock=self.clock,
            lifecycle=self.lifecycle,
        )


@asynccontextmanager
async def waiting(poll: Poll, wait_seconds: float = 60.0) -> AsyncGenerator[asyncio.Task[bool]]:
    """A poll that has looked once, in vain; it has ended when this is left."""
    task = asyncio.create_task(poll.wait(wait_seconds))
    await poll.shelf.until_looked(1)
    yield task
    await asyncio.wait_for(task, WAIT_SECONDS)


@pytest.mark.requirement("R20")
async def test_a_ring_has_the_poll_look_again() -> None:
    poll = Poll()

    async with waiting(poll) as task:
        poll.signals.notify([TOPIC])
        await poll.shelf.until_looked(2)
        assert not task.done()
        poll.shelf.there = True
        poll.signals.notify([TOPIC])

    assert task.result()


async def test_what_is_there_already_is_told_at_once() -> None:
    poll = Poll()
    poll.shelf.there = True

    assert await poll.wait(60.0)
    assert poll.shelf.looks == 1


async def test_who_does_not_wait_is_told_what_there_is() -> None:
    poll = Poll()

    assert not await poll.wait(0.0)
    assert poll.shelf.looks == 1


async def test_a_ring_while_the_poll_looks_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WAIT_SECONDS_MAX", "LOOK_AGAIN_SECONDS"):  # only the ring ends this wait in time
        monkeypatch.setattr(services_waiting, name, 10 * WAIT_SECONDS)
    poll = Poll()

    async def look() -> bool:
        there = await poll.shelf.look()
        poll.shelf.there = True
        poll.signals.notify([TOPIC])
        return there

    assert await asyncio.wait_for(poll.wait(10 * WAIT_SECONDS, look=look), WAIT_SECONDS)


async def test_when_its_time_is_over_a_poll_tells_what_it_saw_last() -> None:
    poll = Poll()

    async with waiting(poll, wait_seconds=30.0) as task:
        poll.clock.advance(30)
        poll.signals.notify([TOPIC])

    assert not task.result()
    assert poll.shelf.looks == 2


async def test_nobody_waits_longer_than_proxies_allow() -> None:
    poll = Poll()

    async with waiting(poll, wait_seconds=10 * LONG_POLL_SECONDS_MAX) as task:
        poll.clock.advance(LONG_POLL_SECONDS_MAX)
        poll.signals.notify([TOPIC])

    assert not task.result()


async def test_a_poll_that_waits_a_moment_wakes_by_itself() -> None:
    class Passing(FakeClock):
        def monotonic(self) -> float:
            return asyncio.get_running_loop().time()

    poll = Poll()
    poll.clock = Passing()

    assert not await asyncio.wait_for(poll.wait(0.02), WAIT_SECONDS)


async def test_a_service_that_stops_lets_its_polls_go() -> None:
    poll = Poll()

    async with waiting(poll) as task:
        poll.lifecycle.begin_shutdown()

    assert not task.result()


def test_a_service_that_stops_starts_nothing_new() -> None:
    lifecycle = Lifecycle()
    lifecycle.require_running()

    lifecycle.begin_shutdown()

    with pytest.raises(ShuttingDown, match="Nothing was started"):
        lifecycle.require_running()
