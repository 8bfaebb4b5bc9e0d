"""The real API, services and store in this process, and clients with keys."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringback.client import RingbackClient
from tests.support.client_calls import make_client
from tests.support.service import ServiceUnderTest, running_service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_service(tmp_path) as service:
        yield service


@pytest.fixture
async def alice(service: ServiceUnderTest) -> AsyncGenerator[RingbackClient]:
    async with make_client(service, await service.create_api_key("alice")) as client:
        yield client


@pytest.fixture
async def bob(service: ServiceUnderTest) -> AsyncGenerator[RingbackClient]:
    async with make_client(service, await service.create_api_key("bob")) as client:
        yield client
