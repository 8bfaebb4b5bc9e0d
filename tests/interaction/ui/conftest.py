"""A service with a dashboard."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.support.service import ServiceUnderTest, running_service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_service(tmp_path) as running:
        yield running
