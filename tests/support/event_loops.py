"""Both event loops: `anyio_backend = both_event_loops` in a test module runs its tests on asyncio's loop and on uvloop."""

from typing import Any

import pytest


@pytest.fixture(name="anyio_backend", params=[False, True], ids=["asyncio", "uvloop"])
def both_event_loops(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}
