"""Runs of an owner's handler: which may run at the same time, and how one ends.

Two callbacks of one session, handled at once, resume one agent twice: LangGraph then loses an answer without an error. A run
returns, it raises, or it is ended after its time limit.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from ringback.key_locks import KeyLocks

HANDLER_TIMEOUT_SECONDS: Final = 3600.0
"""A handler that runs an agent works for minutes; after an hour it hangs. `ringback listen --exec` has the same limit."""
CANCELLATION_SECONDS: Final = 10.0
"""How long a cancelled handler may take to end: as long as running handlers may take when the receiver closes."""

T = TypeVar("T")
log = logging.getLogger(__name__)


class HandlerEnded(Exception):
    """The handler neither returned nor raised an `Exception`: it was cancelled, it ran too long, or it raised another kind."""


class HandlerStillRuns(HandlerEnded):
    """The handler ran too long, was cancelled, and has not ended: it catches CancelledError, or blocks it with a shield."""

    def __init__(self, text: str, task: asyncio.Task[None]) -> None:
        super().__init__(text)
        self.task = task


class HandlerTurns:
    """Handlers of one key run one after the other, in the order of their requests for a turn."""

    def __init__(self, *, handlers_max: int) -> None:
        if handlers_max < 1:
            raise ValueError("handlers_max must be at least 1: the number of handlers that run at the same time.")
        self._permits = asyncio.Semaphore(handlers_max)
        self._locks = KeyLocks()

    @asynccontextmanager
    async def acquire_turn(self, key: str) -> AsyncGenerator[None]:
        """Wait for the key first: a waiting session then holds no permit that another session could use.

        So does a session whose handler ignores its cancellation: it keeps the key until that handler ends.
        """
        async with self._locks.hold(key), outlast_handler(), self._permits:
            yield


async def run_handler(handler: Callable[[T], Awaitable[None]], envelope: T, *, timeout_seconds: float) -> None:
    """Await the handler. Raises what it raises, and `HandlerEnded`.

    A handler that is no coroutine function has handled the callback when it returns: awaiting what it returns would fail, and
    it would run again and again.

    The handler has a task of its own. So a CancelledError that comes from it, for instance because the agent's task was
    cancelled, is a failure of the handler, and ends neither its session nor the request of its sender.
    """

    async def handle() -> None:
        answer: object = handler(envelope)
        if inspect.isawaitable(answer):
            await answer

    task = asyncio.create_task(handle())
    try:
        await asyncio.wait([task], timeout=timeout_seconds)
        is_too_long = not task.done()
    finally:
        await _end(task)
    if not task.done():
        raise HandlerStillRuns(
            f"The handler ran for more than {timeout_seconds:g} s, was cancelled, and still runs. It must not catch "
            "CancelledError without raising it again. Its session waits until it ends; other sessions go on.",
            task,
        )
    if is_too_long:
        raise HandlerEnded(f"The handler ran for more than {timeout_seconds:g} s and was cancelled.")
    if task.cancelled():
        raise HandlerEnded("The handler was cancelled, or awaited a task that was.")
    _raise_failure(task)


def _raise_failure(task: asyncio.Task[None]) -> None:
    """Raise what the handler has raised.

    What is no `Exception`, such as a panic of an extension in Rust, ends neither its session nor the request of its sender;
    SystemExit and KeyboardInterrupt end the process.
    """
    try:
        task.result()
    except (Exception, SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise HandlerEnded(f"The handler raised {type(error).__name__}: {error}") from error


@asynccontextmanager
async def outlast_handler() -> AsyncGenerator[None]:
    """Wait at the end for a handler that ignores its cancellation: the next run must not begin beside it."""
    try:
        yield
    except HandlerStillRuns as error:
        log.error("%s", error)  # noqa: TRY400 - the handler has raised nothing
        await asyncio.wait([error.task])
        _retrieve_exception(error.task)
        raise


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel the task, if it still runs, and wait for its end, for a limited time."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCELLATION_SECONDS)
        _retrieve_exception(task)


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """So that asyncio does not report it a second time."""
    if task.done() and not task.cancelled():
        task.exception()
