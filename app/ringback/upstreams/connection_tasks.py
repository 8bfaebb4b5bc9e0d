"""The tasks that keep connections of upstreams open, and those that close them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextvars import Context

from ringback.asyncio_tasks import end_tasks
from ringback.upstreams.connection import UpstreamConnection

log = logging.getLogger(__name__)


class ConnectionTasks:
    def __init__(self) -> None:
        self._running: dict[UpstreamConnection, asyncio.Task[None]] = {}
        self._draining: dict[UpstreamConnection, asyncio.Task[None]] = {}
        """Replaced connections with running calls, and the task that closes each after its last call."""

    @property
    def draining(self) -> Collection[UpstreamConnection]:
        """Connections that take no further calls and wait for the end of their running ones. The collection is live."""
        return self._draining

    def start_connection(
        self, connection: UpstreamConnection, *, prepare: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Run the connection until it is closed, after `prepare`.

        The request of a call may be what starts it, when the login has changed. The connection serves others, too, so it gets
        nothing of the context of that request: its owner, its record, and who receives its questions and log messages.
        """
        self._running[connection] = asyncio.create_task(_run_connection(connection, prepare), context=Context())
        self._running[connection].add_done_callback(_log_connection_failure)

    def drain_connection(self, connection: UpstreamConnection) -> None:
        """Give the connection no further calls, and close it when its running calls have ended."""
        connection.replace_with_newer()
        self._draining[connection] = asyncio.create_task(self._close_when_drained(connection))

    async def aclose(self) -> None:
        await end_tasks([*self._draining.values(), *self._running.values()])

    async def _close_when_drained(self, connection: UpstreamConnection) -> None:
        await connection.wait_drained()
        await end_tasks([self._running[connection]])
        del self._running[connection], self._draining[connection]
        log.info("upstream.closed", extra={"upstream": connection.config.name})


async def _run_connection(connection: UpstreamConnection, prepare: Callable[[], Awaitable[None]] | None) -> None:
    if prepare is not None:
        await prepare()
    await connection.run()


def _log_connection_failure(task: asyncio.Task[None]) -> None:
    """Log a bug: a connection runs until it is cancelled. The upstream stays unreachable."""
    if not task.cancelled():
        log.error("upstream.connection_failed", exc_info=task.exception())
