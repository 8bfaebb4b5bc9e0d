"""Links of principals: opened once, bounded, closed when they are not used."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import anyio
import pytest

from ringback.domain.principal import Principal
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.link import UpstreamSession
from ringback.runner.principals import IDLE_SECONDS, SWEEP_SECONDS, PrincipalSessions
from tests.support.clock import FakeClock, StandingClock
from tests.support.limits import WAIT_SECONDS

ALICE, BOB, CAROL = Principal("alice"), Principal("bob"), Principal("carol")


class PaperLink:
    def __init__(self) -> None:
        self.left = anyio.Event()

    def retire(self) -> None:
        self.left.set()


class Opener:
    def __init__(self, *, away: int = 0) -> None:
        self.links: list[PaperLink] = []
        self._away = away

    async def open(self) -> UpstreamSession:
        if self._away:
            self._away -= 1
            raise UpstreamUnreachable("cannot connect.")
        self.links.append(PaperLink())
        return cast("Link", self.links[-1])

    def aside(self, **_opening: Any) -> AbstractAsyncContextManager[UpstreamSession]:
        raise AssertionError

    @property
    def open_now(self) -> list[bool]:
        return [not link.left.is_set() for link in self.links]


class HeldClock(StandingClock):
    """A clock whose sleepers run once time has been let pass."""

    async def pass_seconds(self, by_seconds: float) -> None:
        self.advance(by_seconds)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def links_of(opener: Opener, clock: FakeClock | None = None, **options: Any) -> PrincipalSessions:
    return PrincipalSessions(opener, clock=clock or FakeClock(), connect_timeout_seconds=5.0, **options)


async def test_calls_at_once_share_one_link() -> None:
    opener = Opener()
    links = links_of(opener)
    async with links.acquire_session(ALICE) as one, links.acquire_session(ALICE) as two, links.acquire_session(BOB) as other:
        shared = await asyncio.gather(one.get_shared_session(), two.get_shared_session(), one.get_shared_session())
        assert len(set(shared)) == 1
        assert await other.get_shared_session() not in shared

    assert opener.open_now == [True, True]


async def test_a_link_that_has_ended_is_opened_again() -> None:
    opener = Opener()
    async with links_of(opener).acquire_session(ALICE) as held:
        first = await held.get_shared_session()
        first.close_to_new_requests()
        assert await held.get_shared_session() is not first


async def test_room_is_made_by_closing_what_was_used_longest_ago() -> None:
    opener = Opener()
    links = links_of(opener, links_max=2)
    for principal in (ALICE, BOB, ALICE, CAROL):
        async with links.acquire_session(principal) as held:
            await held.get_shared_session()

    assert opener.open_now == [True, False, True], "bob's was closed for carol's"


async def test_whoever_finds_no_room_waits_for_it() -> None:
    opener = Opener()
    links = links_of(opener, links_max=1)

    async def call() -> None:
        async with links.acquire_session(BOB) as held:
            await held.get_shared_session()

    async with links.acquire_session(ALICE) as held:
        await held.get_shared_session()
        waiting = asyncio.create_task(call())
        await asyncio.sleep(0)
        assert opener.open_now == [True]
    await asyncio.wait_for(waiting, WAIT_SECONDS)

    assert opener.open_now == [False, True]


async def test_a_link_that_nobody_uses_is_closed_after_a_while() -> None:
    opener, clock = Opener(), HeldClock()
    links = links_of(opener, clock)
    looking = asyncio.create_task(links.close_idle_sessions())
    async with links.acquire_session(ALICE) as held, links.acquire_session(BOB) as other:
        await held.get_shared_session()
        await other.get_shared_session()
    async with links.acquire_session(BOB) as other:
        await clock.pass_seconds(IDLE_SECONDS + SWEEP_SECONDS)
        assert opener.open_now == [False, True]
        assert await other.get_shared_session()
    await clock.pass_seconds(IDLE_SECONDS + SWEEP_SECONDS)

    assert opener.open_now == [False, False]
    looking.cancel()


async def test_an_upstream_that_is_away_for_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.runner.principals.AGAIN_SECONDS", 0.001)
    async with links_of(Opener(away=3)).acquire_session(ALICE) as held:
        assert await held.get_shared_session()


async def test_an_upstream_that_stays_away_is_told() -> None:
    links = PrincipalSessions(Opener(away=1000), clock=FakeClock(), connect_timeout_seconds=0.01)
    async with links.acquire_session(ALICE) as held:
        with pytest.raises(UpstreamUnreachable, match="cannot connect"):
            await held.get_shared_session()
