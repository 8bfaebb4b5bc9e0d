"""Whether an upstream that refuses requests offers a login, also while its servers fail."""

import asyncio

import pytest

from ringback.protocol.errors import TokenUnavailable
from ringback.upstreams.oauth import login_offers
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.login_offers import REMEMBERED_SECONDS, RETRY_SECONDS, LoginOffers
from tests.support.clock import FakeClock
from tests.support.scripted_authorization import (
    CONFIG,
    RESOURCE_DOCUMENT,
    RESOURCE_METADATA,
    UPSTREAM,
    ScriptedServers,
    answer_json,
    hang,
)

REFUSAL = Refusal(status_code=401)


class Stage:
    """An upstream that refuses requests without a challenge."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.servers = ScriptedServers()
        self.servers.answers[UPSTREAM] = answer_json({}, 401)
        self.offers = LoginOffers(CONFIG, self.servers.make_clients(), clock=self.clock)

    async def ask(self) -> bool:
        return await self.offers.offers_login(REFUSAL)


async def test_an_answer_is_used_again_for_a_minute() -> None:
    stage = Stage()
    first = await stage.ask()
    stage.servers.answers.clear()
    remembered = await stage.ask()
    stage.clock.advance(REMEMBERED_SECONDS)

    assert (first, remembered, await stage.ask()) == (True, True, False)


async def test_an_outage_is_no_answer_and_is_soon_forgotten() -> None:
    stage = Stage()
    stage.servers.answers[RESOURCE_METADATA] = answer_json({}, 503)
    with pytest.raises(TokenUnavailable):
        await stage.ask()
    stage.servers.answers[RESOURCE_METADATA] = answer_json(RESOURCE_DOCUMENT)
    stage.clock.advance(RETRY_SECONDS)

    assert await stage.ask()


async def test_requests_that_wait_for_a_discovery_without_an_answer_do_not_ask_again_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(login_offers, "DISCOVERY_SECONDS", 0.01)
    stage = Stage()
    hang(stage.servers, RESOURCE_METADATA)
    answers = await asyncio.gather(*(stage.ask() for _ in range(5)), return_exceptions=True)

    assert {type(answer) for answer in answers} == {TokenUnavailable}
    assert stage.servers.list_urls() == [UPSTREAM]
