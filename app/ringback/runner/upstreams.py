"""All upstreams as one object: opened and closed together, asked what can be called, and for a session to call it in."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.upstreams import Catalog
from ringback.runner.adoption import UpstreamTasks
from ringback.runner.catalog import UpstreamCatalog
from ringback.runner.config import ConfigError, UpstreamConfig
from ringback.runner.connection import PATIENCE_SECONDS, Connection
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.drivers import CallSession, DrivenSession, driver_for

__all__ = ["UpstreamConfig", "Upstreams"]

log = logging.getLogger(__name__)


class Upstreams:
    """Implements `runner.drive.Sessions`; its `catalog` implements `domain.upstreams.Catalog`.

    Entering it starts every connection and waits for none: an upstream that is down must not keep the service from starting.
    """

    def __init__(
        self,
        configs: Iterable[UpstreamConfig],
        *,
        clock: Clock,
        chance: Callable[[], float],
        connect_patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`chance` is uniform in [0, 1). Raises `ConfigError` when two upstreams have one name."""
        self._connections: dict[str, Connection] = {}
        for config in configs:
            if config.name in self._connections:
                raise ConfigError(f"Two upstreams are named '{config.name}'. Rename one of them.")
            self._connections[config.name] = Connection(
                config, clock=clock, chance=chance, patience_seconds=connect_patience_seconds
            )
        self.catalog: Catalog = UpstreamCatalog(self._connections)
        self.tasks = UpstreamTasks(self._connections)
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(connection.run()) for connection in self._connections.values()]
        for task in self._tasks:
            task.add_done_callback(_report_bug)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def capacity(self) -> Mapping[str, int]:
        return {name: connection.config.max_concurrent for name, connection in self._connections.items()}

    @asynccontextmanager
    async def session(self, call: Call) -> AsyncGenerator[CallSession]:
        """A live session with the driver that suits the call; raises `UpstreamUnreachable` after `connect_patience_seconds`."""
        connection = self._connections.get(call.upstream)
        if connection is None:
            raise UpstreamUnreachable("it is not configured any more. Configure it again, or cancel the call.")
        async with connection.session(call) as session:
            yield DrivenSession(session=session, driver=driver_for(call, session, clock=self._clock))


def _report_bug(task: asyncio.Task[None]) -> None:
    """A connection runs until it is cancelled; anything else is a bug of ours, and its upstream is away from then on."""
    if not task.cancelled():
        log.error("upstream.connection_failed", exc_info=task.exception())
