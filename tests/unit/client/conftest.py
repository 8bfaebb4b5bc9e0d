"""A client before a mocked service. Nothing here is real but the client; the real service is in tests/interaction/client."""

from collections.abc import AsyncGenerator, Generator

import pytest
import respx

from ringback.client import RingbackClient
from tests.support.clock import FakeClock

BASE_URL = "http://ringback.example:8090"


@pytest.fixture
def service() -> Generator[respx.MockRouter]:
    """The service's answers; an unexpected request fails the test, and so does an answer that nobody asked for."""
    with respx.mock(base_url=BASE_URL, assert_all_mocked=True, assert_all_called=True) as router:
        yield router


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def client(clock: FakeClock) -> AsyncGenerator[RingbackClient]:
    async with RingbackClient(BASE_URL, api_key="rbk_example", clock=clock) as client:
        yield client
