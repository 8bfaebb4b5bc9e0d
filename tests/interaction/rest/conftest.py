"""A whole service with two principals. What one of them owns, the other must never learn of."""

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from ringback.services import long_polling as waiting
from tests.support.service import ServiceUnderTest, running_service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_service(tmp_path) as running:
        yield running


@pytest.fixture
async def alice(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("alice")


@pytest.fixture
async def bob(service: ServiceUnderTest) -> httpx.AsyncClient:
    return await service.create_client("bob")


@pytest.fixture
def only_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait looks again by itself: what ends it in time was rung, on a busy machine too."""
    monkeypatch.setattr(waiting, "POLL_INTERVAL_SECONDS", waiting.LONG_POLL_SECONDS_MAX)
