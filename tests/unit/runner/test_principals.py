"""Links of principals: opened once, bounded, closed when they are not used."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import anyio
import pytest

from ringback.domain.principal import Principal
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.link import Link
from ringback.runner.principals import IDLE_SECONDS, LOOK_SECONDS, PrincipalLinks
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

    async def open(self) -> Link:
        if self._away:
            self._away -= 1
            raise UpstreamUnreachable("cannot connect.")
        self.links.append(PaperLink())
        return cast("Link", self.links[-1])

    def aside(self, **_opening: Any) -> AbstractAsyncContextManager[Link]:
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


def links_of(opener: Opener, clock: FakeClock | None = None, **options: Any) -> PrincipalLinks:
    return PrincipalLinks(opener, clock=clock or FakeClock(), patience_seconds=5.0, **options)


async def test_calls_at_once_share_one_link() -> None:
    opener = Opener()
    links = links_of(opener)
    async with links.of(ALICE) as one, links.of(ALICE) as two, links.of(BOB) as other:
        shared = await asyncio.gather(one.live(), two.live(), one.live())
        assert len(set(shared)) == 1
        assert await other.live() not in shared

    assert opener.open_now == [True, True]


async def test_a_link_that_has_ended_is_opened_again() -> None:
    opener = Opener()
    async with links_of(opener).of(ALICE) as held:
        first = await held.live()
        first.retire()
        assert await held.live() is not first


async def test_room_is_made_by_closing_what_was_used_longest_ago() -> None:
    opener = Opener()
    links = links_of(opener, links_max=2)
    for principal in (ALICE, BOB, ALICE, CAROL):
        async with links.of(principal) as held:
            await held.live()

    assert opener.open_now == [True, False, True], "bob's was closed for carol's"


async def test_whoever_finds_no_room_waits_for_it() -> None:
    opener = Opener()
    links = links_of(opener, links_max=1)

    async def call() -> None:
        async with links.of(BOB) as held:
            await held.live()

    async with links.of(ALICE) as held:
        await held.live()
        waiting = asyncio.create_task(call())
        await asyncio.sleep(0)
        assert opener.open_now == [True]
    await asyncio.wait_for(waiting, WAIT_SECONDS)

    assert opener.open_now == [False, True]


async def test_a_link_that_nobody_uses_is_closed_after_a_while() -> None:
    opener, clock = Opener(), HeldClock()
    links = links_of(opener, clock)
    looking = asyncio.create_task(links.run())
    async with links.of(ALICE) as held, links.of(BOB) as other:
        await held.live()
        await other.live()
    async with links.of(BOB) as other:
        await clock.pass_seconds(IDLE_SECONDS + LOOK_SECONDS)
        assert opener.open_now == [False, True]
        assert await other.live()
    await clock.pass_seconds(IDLE_SECONDS + LOOK_SECONDS)

    assert opener.open_now == [False, False]
    looking.cancel()


async def test_an_upstream_that_is_away_for_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.runner.principals.AGAIN_SECONDS", 0.001)
    async with links_of(Opener(away=3)).of(ALICE) as held:
        assert await held.live()


async def test_an_upstream_that_stays_away_is_told() -> None:
    links = PrincipalLinks(Opener(away=1000), clock=FakeClock(), patience_seconds=0.01)
    async with links.of(ALICE) as held:
        with pytest.raises(UpstreamUnreachable, match="cannot connect"):
            await held.live()
