"""The publishers of a session run under their names until they are done or stopped, or the session ends."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator

import pytest

from ringback.domain.principal import Principal
from ringback.mcp_server import session_notifications
from ringback.mcp_server.server import BackgroundTaskSet
from ringback.mcp_server.session_notifications import SESSION_PUBLISHERS_MAX, SessionNotifications
from tests.support.engine import WAIT_SECONDS
from tests.support.examples import ALICE, BOB


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
    returned = SessionNotifications(workers, ALICE, Counter())
    work = await start_subscription(returned, "a")
    other = await start_subscription(returned, "b")
    returned.stop_publisher("a")
    await work.over.wait()
    assert work.called_off
    assert not other.over.is_set()


async def test_a_publisher_replaces_the_one_of_the_same_name(workers: BackgroundTaskSet) -> None:
    returned = SessionNotifications(workers, ALICE, Counter())
    first = await start_subscription(returned, "a")
    second = await start_subscription(returned, "a")
    await first.over.wait()
    assert first.called_off
    assert not second.over.is_set()


async def test_all_publishers_stop_when_the_session_ends(workers: BackgroundTaskSet) -> None:
    returned = SessionNotifications(workers, ALICE, Counter())
    work = [await start_subscription(returned, name) for name in "abc"]
    returned.stop_publishers()
    for each in work:
        await each.over.wait()
        assert each.called_off


async def test_a_publisher_stopped_before_it_starts_is_cancelled_and_ends(workers: BackgroundTaskSet) -> None:
    returned, work = SessionNotifications(workers, ALICE, Counter()), BlockingWork()
    returned.start_publisher("a", work)
    returned.stop_publisher("a")
    async with asyncio.timeout(WAIT_SECONDS):
        await work.over.wait()
    assert work.called_off


async def test_an_ended_subscription_frees_its_place(workers: BackgroundTaskSet) -> None:
    returned = SessionNotifications(workers, ALICE, Counter())
    work = [await start_subscription(returned, str(number)) for number in range(SESSION_PUBLISHERS_MAX)]
    assert not returned.has_capacity_for("new")
    assert returned.has_capacity_for("0")
    work[0].release.set()
    await work[0].over.wait()
    await asyncio.sleep(0)
    assert returned.has_capacity_for("new")
    returned.stop_publishers()


async def test_the_subscriptions_of_a_principal_are_limited_over_all_its_sessions(
    workers: BackgroundTaskSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand sessions at each endpoint, with 256 each, took gigabytes."""
    monkeypatch.setattr(session_notifications, "PRINCIPAL_PUBLISHERS_MAX", 3)
    counts: Counter[Principal] = Counter()
    first, second = (SessionNotifications(workers, ALICE, counts) for _ in range(2))
    await start_subscription(first, "a")
    work = await start_subscription(first, "b")
    await start_subscription(second, "c")
    assert (first.has_capacity_for("new"), second.has_capacity_for("new")) == (False, False)
    assert second.has_capacity_for("c")
    assert SessionNotifications(workers, BOB, counts).has_capacity_for("new")

    await start_subscription(second, "c")
    assert not second.has_capacity_for("new")
    work.release.set()
    await work.over.wait()
    await asyncio.sleep(0)
    assert second.has_capacity_for("new")
    for each in (first, second):
        each.stop_publishers()
    assert not counts


async def test_a_failure_is_logged_and_affects_no_other(
    workers: BackgroundTaskSet, caplog: pytest.LogCaptureFixture
) -> None:
    returned, failed = SessionNotifications(workers, ALICE, Counter()), asyncio.Event()

    async def fail() -> None:
        failed.set()
        raise RuntimeError("no")

    returned.start_publisher("a", fail)
    other = await start_subscription(returned, "b")
    await failed.wait()
    assert [record.message for record in caplog.records] == ["session.not_notified"]
    assert not other.over.is_set()


async def test_stopping_an_unknown_subscription_does_nothing(workers: BackgroundTaskSet) -> None:
    SessionNotifications(workers, ALICE, Counter()).stop_publisher("a")
