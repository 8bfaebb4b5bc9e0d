"""Keys that people enter into forms: wrong ones are limited, and an outage is no wrong key."""

import pytest
from starlette.requests import Request

from ringback.api.browser_forms import WRONG_KEY_RATE, KeyAttemptLimiter
from ringback.domain.errors import IssuerUnavailable, QuotaExceeded, RingbackError, StoreUnavailable, Unauthenticated
from ringback.domain.principal import Caller, Principal
from tests.support.clock import FakeClock

REQUEST = Request({"type": "http", "headers": [], "client": ("192.0.2.1", 40_000)})
CALLER = Caller(principal=Principal("alice"), scopes=frozenset())


class ScriptedAuthenticator:
    """Implements `Authenticator`: raises `failure`, if there is one."""

    failure: RingbackError | None = None

    async def authenticate(self, bearer: str | None, *, resource: str) -> Caller:
        del bearer, resource
        if self.failure is not None:
            raise self.failure
        return CALLER


@pytest.mark.parametrize("outage", [StoreUnavailable("The disk is full."), IssuerUnavailable("It does not answer.")])
async def test_keys_that_could_not_be_judged_count_as_no_wrong_ones(outage: RingbackError) -> None:
    authenticator = ScriptedAuthenticator()
    guesses = KeyAttemptLimiter(authenticator, clock=FakeClock())
    authenticator.failure = outage
    for _ in range(int(WRONG_KEY_RATE.burst) + 1):
        with pytest.raises(type(outage)):
            await guesses.authenticate(REQUEST, "rbk_right")

    authenticator.failure = None
    assert await guesses.authenticate(REQUEST, "rbk_right") == CALLER


async def test_wrong_keys_of_one_address_are_limited_until_their_time_has_passed() -> None:
    authenticator, clock = ScriptedAuthenticator(), FakeClock()
    guesses = KeyAttemptLimiter(authenticator, clock=clock)
    authenticator.failure = Unauthenticated("This API key is unknown or revoked.")
    for _ in range(int(WRONG_KEY_RATE.burst)):
        with pytest.raises(Unauthenticated):
            await guesses.authenticate(REQUEST, "rbk_wrong")

    authenticator.failure = None
    with pytest.raises(QuotaExceeded):
        await guesses.authenticate(REQUEST, "rbk_right")
    clock.advance(60)
    assert await guesses.authenticate(REQUEST, "rbk_right") == CALLER
