"""All upstreams of the service: starts, replaces and stops their connections, and opens sessions for calls."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.errors import InvalidConfiguration
from ringback.domain.ports import Store
from ringback.domain.upstreams import Reloaded, ToolCatalog, UpstreamProxyPort
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, TrustedAuthorities
from ringback.upstreams.call_session import CallLogMessages, CallSession
from ringback.upstreams.catalog.catalog_cache import CatalogCaches
from ringback.upstreams.catalog.tool_catalog import UpstreamToolCatalog
from ringback.upstreams.config import ConfigError, UpstreamConfig
from ringback.upstreams.connection import (
    CONNECT_TIMEOUT_SECONDS,
    ConnectionReplaced,
    PredictDriverName,
    UpstreamConnection,
)
from ringback.upstreams.errors import UpstreamNotConfigured
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog
from ringback.upstreams.notification_hub import NotificationHub
from ringback.upstreams.proxy import UpstreamProxy
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications
from ringback.upstreams.subscriptions.resource_subscriptions import ResourceSubscriptions
from ringback.upstreams.transports.child_records import ChildRecords

__all__ = ["UpstreamConfig", "UpstreamRegistry"]

log = logging.getLogger(__name__)


class UpstreamRegistry:
    """The connections of the configured upstreams, and what other packages use of them.

    Entering it starts every connection and waits for none: an upstream that is down must not prevent the start of the service.
    """

    def __init__(
        self,
        configs: Iterable[UpstreamConfig],
        *,
        clock: Clock,
        random_fraction: Callable[[], float],
        predict_driver_name: PredictDriverName,
        connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
        store: Store | None = None,
        children_folder: Path | None = None,
        hosts: ConfiguredHosts | None = None,
        authorities: TrustedAuthorities = USUAL_AUTHORITIES,
    ) -> None:
        """`random_fraction` is uniform in [0, 1). Raises `ConfigError` if two upstreams have the same name.

        The store keeps the lists of upstreams for times when they are away; without it they are lost with the process.
        `children_folder` records the child processes, so that the next start can kill processes that are left over.
        `hosts` resolves the host names of upstreams; the registry closes it. `authorities` sign their certificates, besides
        the usual ones.
        """
        self._hosts = hosts or ConfiguredHosts()
        self._authorities = authorities
        self._child_records = ChildRecords(children_folder)
        self.change_notifications = ChangeNotifications()
        self.notification_hub = NotificationHub()
        self._catalog_caches = CatalogCaches(clock=clock, changes=self.change_notifications, store=store)
        self._clock = clock
        self._random_fraction = random_fraction
        self._predict_driver_name = predict_driver_name
        self._connect_timeout_seconds = connect_timeout_seconds
        self.connections = {name: self._make_connection(config) for name, config in _index_by_name(configs).items()}
        self._draining: dict[UpstreamConnection, asyncio.Task[None]] = {}
        """Replaced connections with running calls, and the task that closes each after its last call."""
        self._connection_tasks: dict[UpstreamConnection, asyncio.Task[None]] = {}
        self._cleanup_tasks: set[asyncio.Task[None]] = set()
        """Tasks that delete the stored lists of removed upstreams. The next start repeats what is not done."""
        self.tool_catalog: ToolCatalog = UpstreamToolCatalog(self.connections, self._draining)
        self.event_catalog = UpstreamEventCatalog(self.connections)
        self.proxy: UpstreamProxyPort = UpstreamProxy(
            self.connections,
            change_notifications=self.change_notifications,
            resource_subscriptions=ResourceSubscriptions(
                self.connections, change_notifications=self.change_notifications, clock=clock
            ),
        )

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._child_records.kill_leftovers)
        await self._catalog_caches.load_caches(self.connections)
        for connection in self.connections.values():
            self._start_connection(connection)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        tasks = [*self._draining.values(), *self._connection_tasks.values(), *self._cleanup_tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._hosts.aclose()

    def get_capacity(self) -> Mapping[str, int]:
        return {name: connection.config.max_concurrent for name, connection in self.connections.items()}

    def has_open_session(self, call: Call) -> bool:
        """Whether `open_call_session` would return a session for the call without waiting."""
        connection = self.connections.get(call.upstream)
        return connection is not None and connection.has_open_session(call)

    @asynccontextmanager
    async def open_call_session(self, call: Call) -> AsyncGenerator[CallSession]:
        """Open a session for the call; raises `UpstreamUnreachable` after `connect_timeout_seconds`."""
        is_open = False
        while (connection := self.connections.get(call.upstream)) is not None:
            try:
                async with connection.open_call_session(call) as session:
                    session.log_messages = CallLogMessages(call.id, self.notification_hub)
                    is_open = True
                    yield session
                    return
            except ConnectionReplaced:
                if is_open:
                    raise
                log.debug("call.moved", extra={"call_id": call.id})
        raise UpstreamNotConfigured("it is not configured any more. Configure it again, or cancel the call.")

    # -- reloading the configuration --

    def reconfigure(self, configs: Iterable[UpstreamConfig]) -> Reloaded:
        """Apply a new configuration; raises `ConfigError` without changing anything.

        Upstreams with the same configuration keep their connection. Every other connection takes no further calls and is closed
        when its running calls have ended.
        """
        configured, previous = _index_by_name(configs), dict(self.connections)
        same = {name for name, config in configured.items() if name in previous and previous[name].config == config}
        fresh = {name: self._make_connection(config) for name, config in configured.items() if name not in same}
        self.connections.clear()
        self.connections.update({name: previous[name] if name in same else fresh[name] for name in configured})
        for name in previous.keys() - same:
            self._drain_connection(previous[name])
        for connection in fresh.values():
            self._start_connection(connection)
        if removed := previous.keys() - configured.keys():
            self._forget_removed(removed)
        return Reloaded(
            added=sorted(fresh.keys() - previous.keys()),
            changed=sorted(fresh.keys() & previous.keys()),
            removed=sorted(removed),
            unchanged=sorted(same),
        )

    def _forget_removed(self, removed: Iterable[str]) -> None:
        self._catalog_caches.remove_caches(removed)
        task = asyncio.create_task(self._catalog_caches.remove_other_upstreams(frozenset(self.connections)))
        self._cleanup_tasks.add(task)
        task.add_done_callback(self._cleanup_tasks.discard)

    def _make_connection(self, config: UpstreamConfig) -> UpstreamConnection:
        return UpstreamConnection(
            config,
            clock=self._clock,
            random_fraction=self._random_fraction,
            predict_driver_name=self._predict_driver_name,
            catalog_cache=self._catalog_caches.get_cache(config.name),
            eliciting_cache=self._catalog_caches.get_eliciting_cache(config.name),
            connect_timeout_seconds=self._connect_timeout_seconds,
            child_records=self._child_records,
            look_up=self._hosts.look_up_for(config.name),
            authorities=self._authorities,
        )

    def _start_connection(self, connection: UpstreamConnection) -> None:
        self._connection_tasks[connection] = asyncio.create_task(connection.run())
        self._connection_tasks[connection].add_done_callback(_log_connection_failure)

    def _drain_connection(self, connection: UpstreamConnection) -> None:
        connection.replace_with_newer()
        self._draining[connection] = asyncio.create_task(self._close_when_drained(connection))

    async def _close_when_drained(self, connection: UpstreamConnection) -> None:
        await connection.wait_drained()
        self._connection_tasks[connection].cancel()
        await asyncio.gather(self._connection_tasks[connection], return_exceptions=True)
        del self._connection_tasks[connection], self._draining[connection]
        log.info("upstream.closed", extra={"upstream": connection.config.name})


def _index_by_name(configs: Iterable[UpstreamConfig]) -> dict[str, UpstreamConfig]:
    named: dict[str, UpstreamConfig] = {}
    for config in configs:
        if config.name in named:
            raise ConfigError(f"Two upstreams are named '{config.name}'. Rename one of them.")
        named[config.name] = config
    return named


def _log_connection_failure(task: asyncio.Task[None]) -> None:
    """Log a bug: a connection runs until it is cancelled. The upstream stays unreachable."""
    if not task.cancelled():
        log.error("upstream.connection_failed", exc_info=task.exception())


class UpstreamReloader:
    """Implements `domain.upstreams.UpstreamConfiguration`: loads the configuration again while the service runs."""

    def __init__(self, upstreams: UpstreamRegistry, *, load_configs: Callable[[], Iterable[UpstreamConfig]]) -> None:
        """`load_configs` may raise `ConfigError`. It blocks the event loop, but only for a local file of a few kilobytes."""
        self._upstreams = upstreams
        self._load_configs = load_configs

    def reload_configuration(self) -> Reloaded:
        try:
            reloaded = self._upstreams.reconfigure(self._load_configs())
        except ConfigError as problem:
            log.error("configuration.not_reloaded", extra={"problem": str(problem)})  # noqa: TRY400 - the message is complete
            raise InvalidConfiguration(f"Nothing was changed. {problem}") from None
        changed_names = {"added": reloaded.added, "changed": reloaded.changed, "removed": reloaded.removed}
        log.info("upstreams.reloaded", extra={name: ",".join(names) or "none" for name, names in changed_names.items()})
        return reloaded
