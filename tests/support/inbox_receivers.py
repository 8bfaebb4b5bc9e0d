"""Receivers with a durable inbox, handlers that fail as the test says, and a clock that only pauses move."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ringback.receiver import Callback, ReceiverApp, SQLiteInbox
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import NOW, SECRET


class Handler:
    """Fails as often as the test says, and lets the test wait for what it has handled."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.tried: list[str] = []
        self.handled: list[str] = []
        self._changed = asyncio.Condition()

    async def handle(self, callback: Callback) -> None:
        self.tried.append(callback.event_id)
        if self.failures:
            raise self.failures.pop(0)
        async with self._changed:
            self.handled.append(callback.event_id)
            self._changed.notify_all()

    async def wait_until_handled(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.handled) >= count)


class FakeTime:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now = NOW
        self.pauses: list[float] = []

    def read(self) -> datetime:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += timedelta(seconds=seconds)
        await asyncio.sleep(0)


def make_app(folder: Path, handle: Callable[[Callback], Awaitable[None]], **options: Any) -> ReceiverApp:
    defaults: dict[str, Any] = {"clock": lambda: NOW, "inbox": SQLiteInbox(folder / "inbox.db")}
    return ReceiverApp(SECRET, on_callback=handle, **(defaults | options))


def read_rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "inbox.db")) as connection:
        return connection.execute(query).fetchall()


async def never(_: Callback) -> None:
    await asyncio.Event().wait()


async def abandon(app: ReceiverApp) -> None:
    """Close without waiting for the handlers that run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ringback.receiver.inbox_handling.CLOSE_SECONDS", 0)
        await app.aclose()
