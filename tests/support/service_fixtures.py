"""Fixtures of folders whose tests call the API of a whole service without a runner; a conftest names those that it offers."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.support.databases import TEST_DATABASES
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
    folder = module_path_factory.mktemp("service")
    async with running_service(folder) as running:
        with TEST_DATABASES.keep_connection(folder):
            yield running
