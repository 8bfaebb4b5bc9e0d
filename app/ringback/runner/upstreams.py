"""All upstreams as one object: opened and closed together, asked what can be called, and for a session to call it in."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.ports import Store
from ringback.domain.upstreams import Catalog, Passage, Reloaded
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.runner.adoption import UpstreamTasks
from ringback.runner.catalog import UpstreamCatalog
from ringback.runner.changes import Changes
from ringback.runner.child_records import ChildRecords
from ringback.runner.config import ConfigError, UpstreamConfig
from ringback.runner.connection import PATIENCE_SECONDS, Connection, Superseded
from ringback.runner.conversation import Conversation
from ringback.runner.drive import UpstreamNotConfigured
from ringback.runner.drivers import CallSession, DrivenSession, driver_for
from ringback.runner.live import LiveHub
from ringback.runner.messages import CallMessages
from ringback.runner.passage import UpstreamPassage
from ringback.runner.shelf import Shelves
from ringback.runner.watching import Watching

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
        store: Store | None = None,
        children_folder: Path | None = None,
        hosts: ConfiguredHosts | None = None,
    ) -> None:
        """`chance` is uniform in [0, 1). Raises `ConfigError` when two upstreams have one name.

        The store keeps what they list for the time while they are away; without one that is forgotten with the process.
        `children_folder` is where the processes that are started are written down, for the next start to end what is left.
        `hosts` looks up the names of upstreams, and is closed with this.
        """
        self._hosts = hosts or ConfiguredHosts()
        self._records = ChildRecords(children_folder)
        self.changes = Changes()
        self.live = LiveHub()
        self._shelves = Shelves(clock=clock, changes=self.changes, store=store)
        self._clock = clock
        self._chance = chance
        self._patience_seconds = connect_patience_seconds
        self._connections = {name: self._connection(config) for name, config in _by_name(configs).items()}
        self._superseded: dict[Connection, asyncio.Task[None]] = {}
        """Those on which calls may still be running, and who closes each once there are none."""
        self._actors: dict[Connection, asyncio.Task[None]] = {}
        self._forgetting: set[asyncio.Task[None]] = set()
        """What is kept of upstreams that were removed; what this does not come to is done at the next start."""
        self.catalog: Catalog = UpstreamCatalog(self._connections, self._superseded)
        self.tasks = UpstreamTasks(self._connections)
        self.passage: Passage = UpstreamPassage(
            self._connections,
            changes=self.changes,
            watching=Watching(self._connections, changes=self.changes, clock=clock),
        )

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._records.end_leftovers)
        await self._shelves.load(self._connections)
        for connection in self._connections.values():
            self._start(connection)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        tasks = [*self._superseded.values(), *self._actors.values(), *self._forgetting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._hosts.aclose()

    def capacity(self) -> Mapping[str, int]:
        return {name: connection.config.max_concurrent for name, connection in self._connections.items()}

    @asynccontextmanager
    async def session(self, call: Call) -> AsyncGenerator[CallSession]:
        """A live session with the driver that suits the call; raises `UpstreamUnreachable` after `connect_patience_seconds`."""
        async with AsyncExitStack() as stack:
            session = await self._enter_session(call, stack)
            session.messages = CallMessages(call.id, self.live)
            yield DrivenSession(session=session, driver=driver_for(call, session, clock=self._clock))

    async def _enter_session(self, call: Call, stack: AsyncExitStack) -> Conversation:
        while (connection := self._connections.get(call.upstream)) is not None:
            try:
                return await stack.enter_async_context(connection.session(call))
            except Superseded:
                log.debug("call.moved", extra={"call_id": call.id})
        raise UpstreamNotConfigured("it is not configured any more. Configure it again, or cancel the call.")

    # -- being configured anew --

    def reconfigure(self, configs: Iterable[UpstreamConfig]) -> Reloaded:
        """Go by these from now on; raises `ConfigError`, and has changed nothing then.

        What is configured as before is not touched. The connection of any other takes no further calls, and is closed when
        those that run on it have ended.
        """
        configured, before = _by_name(configs), dict(self._connections)
        same = {name for name, config in configured.items() if name in before and before[name].config == config}
        fresh = {name: self._connection(config) for name, config in configured.items() if name not in same}
        self._connections.clear()
        self._connections.update({name: before[name] if name in same else fresh[name] for name in configured})
        for name in before.keys() - same:
            self._supersede(before[name])
        for connection in fresh.values():
            self._start(connection)
        if removed := before.keys() - configured.keys():
            self._forget(removed)
        return Reloaded(
            added=sorted(fresh.keys() - before.keys()),
            changed=sorted(fresh.keys() & before.keys()),
            removed=sorted(removed),
            unchanged=sorted(same),
        )

    def _forget(self, removed: Iterable[str]) -> None:
        self._shelves.drop(removed)
        task = asyncio.create_task(self._shelves.keep_only(frozenset(self._connections)))
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    def _connection(self, config: UpstreamConfig) -> Connection:
        return Connection(
            config,
            clock=self._clock,
            chance=self._chance,
            shelf=self._shelves.of(config.name),
            patience_seconds=self._patience_seconds,
            records=self._records,
            look_up=self._hosts.look_up_for(config.name),
        )

    def _start(self, connection: Connection) -> None:
        self._actors[connection] = asyncio.create_task(connection.run())
        self._actors[connection].add_done_callback(_report_bug)

    def _supersede(self, connection: Connection) -> None:
        connection.supersede()
        self._superseded[connection] = asyncio.create_task(self._close(connection))

    async def _close(self, connection: Connection) -> None:
        """When no call runs on it any more."""
        await connection.drained()
        self._actors[connection].cancel()
        await asyncio.gather(self._actors[connection], return_exceptions=True)
        del self._actors[connection], self._superseded[connection]
        log.info("upstream.closed", extra={"upstream": connection.config.name})


def _by_name(configs: Iterable[UpstreamConfig]) -> dict[str, UpstreamConfig]:
    named: dict[str, UpstreamConfig] = {}
    for config in configs:
        if config.name in named:
            raise ConfigError(f"Two upstreams are named '{config.name}'. Rename one of them.")
        named[config.name] = config
    return named


def _report_bug(task: asyncio.Task[None]) -> None:
    """A connection runs until it is cancelled; anything else is a bug of ours, and its upstream is away from then on."""
    if not task.cancelled():
        log.error("upstream.connection_failed", exc_info=task.exception())
