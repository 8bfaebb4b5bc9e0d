"""One run of an owner's handler: it returns, it raises, or it is ended after its time limit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

HANDLER_TIMEOUT_SECONDS: Final = 3600.0
"""A handler that runs an agent works for minutes; after an hour it hangs. `ringback listen --exec` has the same limit."""

T = TypeVar("T")


class HandlerEnded(Exception):
    """The handler neither returned nor raised an error of its own: it was cancelled, or it ran too long."""


async def run_handler(handler: Callable[[T], Awaitable[None]], envelope: T, *, timeout_seconds: float) -> None:
    """Await the handler. Raises what it raises, and `HandlerEnded`.

    The handler has a task of its own. So a CancelledError that comes from it, for instance because the agent's task was
    cancelled, is a failure of the handler, and ends neither its session nor the request of its sender.
    """

    async def handle() -> None:
        await handler(envelope)

    task = asyncio.create_task(handle())
    try:
        await asyncio.wait([task], timeout=timeout_seconds)
        is_too_long = not task.done()
    finally:
        await _end(task)
    if is_too_long:
        raise HandlerEnded(f"The handler ran for more than {timeout_seconds:g} s and was cancelled.")
    if task.cancelled():
        raise HandlerEnded("The handler was cancelled, or awaited a task that was.")
    task.result()


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel the task, if it still runs, and wait for its end: the next run must not begin beside it."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it a second time
