"""Ends tasks of asyncio, also where their owner runs in a scope of anyio."""

import asyncio
from collections.abc import Collection
from typing import Any


async def end_tasks(tasks: Collection[asyncio.Future[Any]]) -> None:
    """Cancel the tasks, and return when all have ended. If the caller is cancelled meanwhile, that cancellation is raised then.

    `asyncio.gather` would raise a cancellation of its own: anyio does not recognize that as the one of its scope, and a request
    that is cancelled while it ends would end its whole session.
    """
    for task in tasks:
        task.cancel()
    cancellation: asyncio.CancelledError | None = None
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancellation = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so that it is not logged
    if cancellation is not None:
        raise cancellation
