"""SIGHUP reads the configuration again, also when it comes before the service accepts requests."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from ringback import server
from ringback.settings import Settings
from tests.support.limits import WAIT_SECONDS


@pytest.fixture
def unhandled() -> Generator[list[int]]:
    """The hangups for which the service had no handler; without one they would end this process."""
    numbers: list[int] = []
    earlier = signal.signal(signal.SIGHUP, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGHUP, earlier)


def test_a_reload_that_is_requested_while_the_database_is_opened_does_not_end_the_service(
    monkeypatch: pytest.MonkeyPatch, unhandled: list[int]
) -> None:
    reloads: list[bool] = []

    @asynccontextmanager
    async def open_slowly(*_: Any, **__: Any) -> AsyncGenerator[None]:
        os.kill(os.getpid(), signal.SIGHUP)
        yield

    async def run(*_: Any, reload_requested: asyncio.Event) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            reloads.append(await reload_requested.wait())

    monkeypatch.setattr(server, "open_application", open_slowly)
    monkeypatch.setattr(server, "_run_application", run)
    settings, unused = Settings(host="127.0.0.1", port=0), cast("Any", None)
    asyncio.run(server._serve(settings, [], None, None, unused, unused, None, None))  # pyright: ignore[reportPrivateUsage] - `serve` also changes the process

    assert (reloads, unhandled) == ([True], [])
