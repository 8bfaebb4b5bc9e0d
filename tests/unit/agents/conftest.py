"""A client with a mocked service, and an agent's calls on it."""

from collections.abc import AsyncGenerator, Generator

import pytest
import respx

from ringback.agents import AgentCalls
from ringback.client import RingbackClient
from tests.support.clock import FakeClock

BASE_URL = "http://ringback.example:8090"


@pytest.fixture
def service() -> Generator[respx.MockRouter]:
    """The service's responses. An unexpected request fails the test, and so does an unused response."""
    with respx.mock(base_url=BASE_URL, assert_all_mocked=True, assert_all_called=True) as router:
        yield router


@pytest.fixture
async def client() -> AsyncGenerator[RingbackClient]:
    async with RingbackClient(BASE_URL, clock=FakeClock()) as client:
        yield client


@pytest.fixture
def calls(client: RingbackClient) -> AgentCalls:
    return AgentCalls(client, "git")
