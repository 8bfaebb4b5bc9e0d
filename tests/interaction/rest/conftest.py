"""A whole service with two principals, who must not see each other's resources."""

import httpx
import pytest

from ringback.services import long_polling as waiting
from tests.support import service_fixtures
from tests.support.service import ServiceUnderTest

service = service_fixtures.service
own_service = service_fixtures.own_service
shared_service = service_fixtures.shared_service


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
