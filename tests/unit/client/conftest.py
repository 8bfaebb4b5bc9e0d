"""A client with a mocked service. tests/interaction/client uses the real service."""

from collections.abc import AsyncGenerator, Generator

import pytest
import respx

from ringback.client import RingbackClient
from tests.support.clock import FakeClock

BASE_URL = "http://ringback.example:8090"


@pytest.fixture
def service() -> Generator[respx.MockRouter]:
    """The service's responses. An unexpected request fails the test, and so does an unused response."""
    with respx.mock(base_url=BASE_URL, assert_all_mocked=True, assert_all_called=True) as router:
        yield router


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def client(clock: FakeClock) -> AsyncGenerator[RingbackClient]:
    async with RingbackClient(BASE_URL, api_key="rbk_example", clock=clock) as client:
        yield client
