from collections.abc import AsyncGenerator

import pytest

from tests.support.guarded import Guarded, running_guarded


@pytest.fixture(scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Guarded]:
    async with running_guarded(tmp_path_factory.mktemp("guarded")) as running:
        yield running
