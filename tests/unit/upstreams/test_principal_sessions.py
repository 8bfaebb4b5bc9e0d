"""Each principal gets one session, bounded in number and closed when unused."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import anyio
import pytest

from ringback.domain.principal import Principal
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.principal_sessions import IDLE_SECONDS, SWEEP_SECONDS, PrincipalSessions
from ringback.upstreams.session import UpstreamSession
from tests.support.clock import FakeClock, ManualClock
from tests.support.limits import WAIT_SECONDS

ALICE, BOB, CAROL = Principal("alice"), Principal("bob"), Principal("carol")


class FakeUpstreamSession:
    def __init__(self) -> None:
        self.closed = anyio.Event()
        self.replaceable = anyio.Event()
        self.replaceable.set()

    def close_to_new_requests(self) -> None:
        self.closed.set()

    async def wait_replaceable(self) -> None:
        await self.replaceable.wait()


class FakeOpener:
    def __init__(self, *, away: int = 0) -> None:
        self.sessions: list[FakeUpstreamSession] = []
        self._away = away

    async def open_shared_session(self, *, accepts_elicitation: bool) -> UpstreamSession:  # noqa: ARG002 - the opener's name
        if self._away:
            self._away -= 1
            raise UpstreamUnreachable("cannot connect.")
        self.sessions.append(FakeUpstreamSession())
        return cast("UpstreamSession", self.sessions[-1])

    def open_dedicated_session(self, **_options: Any) -> AbstractAsyncContextManager[UpstreamSession]:
        raise AssertionError

    @property
    def open_now(self) -> list[bool]:
        return [not session.closed.is_set() for session in self.sessions]


class CountedSleepClock(ManualClock):
    """A clock whose sleepers run once time has been let pass."""

    async def pass_seconds(self, by_seconds: float) -> None:
        self.advance(by_seconds)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def make_sessions(opener: FakeOpener, clock: FakeClock | None = None, **options: Any) -> PrincipalSessions:
    return PrincipalSessions(opener, clock=clock or FakeClock(), connect_timeout_seconds=5.0, **options)


async def test_concurrent_calls_share_one_session() -> None:
    opener = FakeOpener()
    sessions = make_sessions(opener)
    async with (
        sessions.acquire_session(ALICE) as one,
        sessions.acquire_session(ALICE) as two,
        sessions.acquire_session(BOB) as other,
    ):
        shared = await asyncio.gather(one.get_shared_session(), two.get_shared_session(), one.get_shared_session())
        assert len(set(shared)) == 1
        assert await other.get_shared_session() not in shared

    assert opener.open_now == [True, True]


async def test_a_session_that_has_ended_is_opened_again() -> None:
    opener = FakeOpener()
    sessions = make_sessions(opener)
    async with sessions.acquire_session(ALICE) as held:
        assert not sessions.has_open_session(ALICE)
        first = await held.get_shared_session()
        assert sessions.has_open_session(ALICE)
        first.close_to_new_requests()
        assert not sessions.has_open_session(ALICE)
        assert await held.get_shared_session() is not first
    assert sessions.has_open_session(ALICE)
    assert not sessions.has_open_session(BOB)


async def test_the_next_session_is_opened_once_the_command_of_the_last_one_is_gone() -> None:
    """A restart ends it. Two of them would want the same file or port."""
    opener = FakeOpener()
    sessions = make_sessions(opener)
    async with sessions.acquire_session(ALICE) as held:
        await held.get_shared_session()
        (first,) = opener.sessions
        first.replaceable = anyio.Event()
        first.close_to_new_requests()
        opening = asyncio.create_task(held.get_shared_session())
        for _ in range(10):
            await asyncio.sleep(0)
        opened_early = len(opener.sessions) > 1
        first.replaceable.set()
        await asyncio.wait_for(opening, WAIT_SECONDS)

    assert (opened_early, len(opener.sessions)) == (False, 2)


async def test_the_least_recently_used_session_is_closed_for_a_new_one() -> None:
    opener = FakeOpener()
    sessions = make_sessions(opener, sessions_max=2)
    for principal in (ALICE, BOB, ALICE, CAROL):
        async with sessions.acquire_session(principal) as held:
            await held.get_shared_session()

    assert opener.open_now == [True, False, True], "bob's was closed for carol's"


async def test_a_principal_without_a_free_session_waits_for_one() -> None:
    opener = FakeOpener()
    sessions = make_sessions(opener, sessions_max=1)

    async def call() -> None:
        async with sessions.acquire_session(BOB) as held:
            await held.get_shared_session()

    async with sessions.acquire_session(ALICE) as held:
        await held.get_shared_session()
        waiting = asyncio.create_task(call())
        await asyncio.sleep(0)
        assert opener.open_now == [True]
    await asyncio.wait_for(waiting, WAIT_SECONDS)

    assert opener.open_now == [False, True]


async def test_an_unused_session_is_closed_after_a_while() -> None:
    opener, clock = FakeOpener(), CountedSleepClock()
    sessions = make_sessions(opener, clock)
    looking = asyncio.create_task(sessions.close_idle_sessions())
    async with sessions.acquire_session(ALICE) as held, sessions.acquire_session(BOB) as other:
        await held.get_shared_session()
        await other.get_shared_session()
    async with sessions.acquire_session(BOB) as other:
        await clock.pass_seconds(IDLE_SECONDS + SWEEP_SECONDS)
        assert opener.open_now == [False, True]
        assert await other.get_shared_session()
    await clock.pass_seconds(IDLE_SECONDS + SWEEP_SECONDS)

    assert opener.open_now == [False, False]
    looking.cancel()


async def test_an_upstream_that_is_unreachable_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.upstreams.principal_sessions.OPEN_RETRY_SECONDS", 0.001)
    async with make_sessions(FakeOpener(away=3)).acquire_session(ALICE) as held:
        assert await held.get_shared_session()


async def test_an_upstream_that_stays_unreachable_is_reported() -> None:
    sessions = PrincipalSessions(FakeOpener(away=1000), clock=FakeClock(), connect_timeout_seconds=0.01)
    async with sessions.acquire_session(ALICE) as held:
        with pytest.raises(UpstreamUnreachable, match="cannot connect"):
            await held.get_shared_session()
