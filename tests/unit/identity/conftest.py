"""Access tokens of an issuer without a socket, on the test's clock."""

from collections.abc import AsyncGenerator

import httpx
import pytest

from ringback.identity.access_tokens import AccessTokenAuthenticator, AccessTokenPolicy
from ringback.identity.issuer import IssuerKeys
from tests.support.clock import FakeClock
from tests.support.service import PUBLIC_URL
from tests.support.token_issuer import FakeTokenIssuer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def issuer(clock: FakeClock) -> FakeTokenIssuer:
    return FakeTokenIssuer(clock=clock)


@pytest.fixture
async def published(issuer: FakeTokenIssuer, clock: FakeClock) -> AsyncGenerator[IssuerKeys]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(issuer)) as http:
        yield IssuerKeys(issuer.url, http=http, clock=clock)


@pytest.fixture
def tokens(published: IssuerKeys, clock: FakeClock) -> AccessTokenAuthenticator:
    return AccessTokenAuthenticator(issuer=published, policy=AccessTokenPolicy(public_url=PUBLIC_URL), clock=clock)
