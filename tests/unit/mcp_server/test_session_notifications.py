"""The publishers of a session run under their names until they are done or stopped, or the session ends."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from ringback.mcp_server.server import BackgroundTaskSet
from ringback.mcp_server.session_notifications import SESSION_PUBLISHERS_MAX, SessionNotifications
from tests.support.engine import WAIT_SECONDS


class BlockingWork:
    """A publisher that runs until it is released, and records whether it was cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.release = asyncio.Event()
        self.over = asyncio.Event()
        self.called_off = False

    async def __call__(self) -> None:
        self.begun.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.called_off = True
            raise
        finally:
            self.over.set()


@pytest.fixture
async def workers() -> AsyncGenerator[BackgroundTaskSet]:
    workers = BackgroundTaskSet()
    yield workers
    await workers.aclose()


async def start_subscription(returned: SessionNotifications, name: str) -> BlockingWork:
    work = BlockingWork()
    returned.start_publisher(name, work)
    await work.begun.wait()
    return work


async def test_a_stopped_publisher_is_cancelled(workers: BackgroundTaskSet) -> None:
    returned = SessionNotifications(workers)
    work = await start_subscription(returned, "a")
    other = await start_subscription(returned, "b")
    returned.stop_publisher("a")
    await work.over.wait()
    assert work.called_off
    assert not other.over.is_set()


async def test_a_publisher_replaces_the_one_of_the_same_name(workers: BackgroundTaskSet) -> None:
    returned = SessionNotifications(workers)
    first = await start_subscription(returned, "a")
    second = await start_subscription(returned, "a")
    await first.over.wait()
    assert first.called_off
    assert not second.over.is_set()


async def test_all_publishers_stop_when_the_session_ends(workers: BackgroundTaskSet) -> None:
    returned = SessionNotifications(workers)
    work = [await start_subscription(returned, name) for name in "abc"]
    returned.stop_publishers()
    for each in work:
        await each.over.wait()
        assert each.called_off


async def test_a_publisher_stopped_before_it_starts_is_cancelled_and_ends(workers: BackgroundTaskSet) -> None:
    returned, work = SessionNotifications(workers), BlockingWork()
    returned.start_publisher("a", work)
    returned.stop_publisher("a")
    async with asyncio.timeout(WAIT_SECONDS):
        await work.over.wait()
    assert work.called_off


async def test_an_ended_subscription_frees_its_place(workers: BackgroundTaskSet) -> None:
    returned = SessionNotifications(workers)
    work = [await start_subscription(returned, str(number)) for number in range(SESSION_PUBLISHERS_MAX)]
    assert not returned.has_capacity_for("new")
    assert returned.has_capacity_for("0")
    work[0].release.set()
    await work[0].over.wait()
    await asyncio.sleep(0)
    assert returned.has_capacity_for("new")
    returned.stop_publishers()


async def test_a_failure_is_logged_and_affects_no_other(
    workers: BackgroundTaskSet, caplog: pytest.LogCaptureFixture
) -> None:
    returned, failed = SessionNotifications(workers), asyncio.Event()

    async def fail() -> None:
        failed.set()
        raise RuntimeError("no")

    returned.start_publisher("a", fail)
    other = await start_subscription(returned, "b")
    await failed.wait()
    assert [record.message for record in caplog.records] == ["session.not_notified"]
    assert not other.over.is_set()


async def test_stopping_an_unknown_subscription_does_nothing(workers: BackgroundTaskSet) -> None:
    SessionNotifications(workers).stop_publisher("a")
