"""Waiting for whichever comes first, without leaving anything behind."""

import asyncio
from collections.abc import Awaitable
from typing import Any


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
