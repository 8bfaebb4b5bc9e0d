"""SIGHUP reads the configuration again, also when it comes before the service accepts requests."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringback import server
from ringback.domain.errors import StoreUnavailable
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


async def test_a_reload_without_the_store_is_repeated_until_the_calls_that_wait_for_it_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "RELOAD_AGAIN_SECONDS", 0.0)
    reload_requested, reloads = asyncio.Event(), list[int]()

    class Reloads:
        async def reload_upstreams(self) -> None:
            reloads.append(len(reloads))
            if len(reloads) < 3:
                raise StoreUnavailable("The database is away.")
            is_done.set_result(None)

    is_done = asyncio.get_running_loop().create_future()
    app = cast("Any", SimpleNamespace(services=SimpleNamespace(upstream_reloads=Reloads())))
    reload_requested.set()
    reloading = asyncio.create_task(server._reload_when_requested(reload_requested, app))  # pyright: ignore[reportPrivateUsage] - only it is tested
    await asyncio.wait({reloading, is_done}, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    reloading.cancel()

    assert (reloads, reload_requested.is_set()) == ([0, 1, 2], False)


async def test_a_bug_in_a_reload_ends_no_service(caplog: pytest.LogCaptureFixture) -> None:
    reload_requested, reloads = asyncio.Event(), list[int]()

    class Reloads:
        async def reload_upstreams(self) -> None:
            reloads.append(len(reloads))
            if len(reloads) == 1:
                reload_requested.set()
                raise ValueError("a bug")
            is_repeated.set_result(None)

    is_repeated = asyncio.get_running_loop().create_future()
    app = cast("Any", SimpleNamespace(services=SimpleNamespace(upstream_reloads=Reloads())))
    reload_requested.set()
    reloading = asyncio.create_task(server._reload_when_requested(reload_requested, app))  # pyright: ignore[reportPrivateUsage] - only it is tested
    await asyncio.wait({reloading, is_repeated}, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    reloading.cancel()

    assert reloads == [0, 1]
    assert "configuration.reload_failed" in caplog.messages
