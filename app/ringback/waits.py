"""Waiting for whichever comes first, without leaving anything behind."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def first_of(*awaitables: Awaitable[Any], timeout_seconds: float | None = None) -> None:
    """Return when one of them is done or the time is over; the others are cancelled and have ended by then.

    A task among them that must live on is passed inside `asyncio.shield`. What they return or raise is not looked at.
    """
    waits = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(waits, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def beside(work: Coroutine[Any, Any, T], helper: Coroutine[Any, Any, None]) -> T:
    """What `work` returns, while `helper` runs beside it; when the helper fails, that is raised and the work is cancelled."""
    tasks = asyncio.create_task(work), asyncio.create_task(helper)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            tasks[1].result()
        return await tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
