"""The shutdown of the service: new work checks it first, and everything that waits ends with it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ringback.domain.errors import ShuttingDown
from ringback.waits import ObservableFlag, wait_first

T = TypeVar("T")


class Lifecycle:
    def __init__(self) -> None:
        self.shutdown_event = asyncio.Event()
        self.shutdown_flag = ObservableFlag()
        """The same for waits that end by a callback: a task for each of them costs more."""

    def begin_shutdown(self) -> None:
        self.shutdown_event.set()
        self.shutdown_flag.set()

    def require_running(self) -> None:
        if self.shutdown_event.is_set():
            raise ShuttingDown("The service is shutting down. Nothing was started; try again in a few seconds.")

    async def run_until_shutdown(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that may be cancelled. Raises `ShuttingDown` if the shutdown begins before its end."""
        working = asyncio.create_task(work)
        await wait_first(working, self.shutdown_event.wait())
        if working.cancelled():
            self.require_running()
        return working.result()
