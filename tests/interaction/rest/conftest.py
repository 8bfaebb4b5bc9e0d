"""A whole service with two principals, who must not see each other's resources."""

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from ringback.services import long_polling as waiting
from tests.support.service import ServiceUnderTest, running_service


@pytest.fixture
def service(request: pytest.FixtureRequest) -> ServiceUnderTest:
    """A service of the test's own, or that of its module if the test uses `shared_service`."""
    is_shared = "shared_service" in request.fixturenames
    running: ServiceUnderTest = request.getfixturevalue("shared_service" if is_shared else "own_service")
    return running


@pytest.fixture
async def own_service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_service(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
async def shared_service(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ServiceUnderTest]:
    """For tests that change nothing which another one notices: its start takes as long as ten requests."""
    async with running_service(module_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
async def alice(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("alice")


@pytest.fixture
async def bob(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("bob")


@pytest.fixture
def only_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No long poll reads the store without a signal, so a wait that ends in time was woken, also on a busy machine."""
    monkeypatch.setattr(waiting, "POLL_INTERVAL_SECONDS", waiting.LONG_POLL_SECONDS_MAX)
