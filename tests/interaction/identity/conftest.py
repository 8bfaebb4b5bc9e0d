from collections.abc import AsyncGenerator

import pytest

from tests.support.oauth_service import OAuthService, running_oauth_service


@pytest.fixture(scope="module")
async def guarded(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[OAuthService]:
    async with running_oauth_service(module_path_factory.mktemp("guarded")) as running:
        yield running
