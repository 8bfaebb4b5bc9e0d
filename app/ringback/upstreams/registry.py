"""All upstreams of the service: starts, replaces and stops their connections, and opens sessions for calls."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.errors import InvalidConfiguration
from ringback.domain.ports import Store
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER, CredentialsScope
from ringback.domain.upstreams import Listing, Reloaded, Restarted, ToolCatalog, UpstreamChange, UpstreamProxyPort
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, TrustedAuthorities
from ringback.telemetry.logs import call_facts
from ringback.upstreams.call_session import CallLogMessages, CallSession
from ringback.upstreams.catalog.catalog_cache import CatalogCaches
from ringback.upstreams.catalog.tool_catalog import UpstreamToolCatalog
from ringback.upstreams.config import ConfigError, UpstreamConfig, UpstreamEntry
from ringback.upstreams.connection import CONNECT_TIMEOUT_SECONDS, UpstreamConnection
from ringback.upstreams.connection_directory import ConnectionDirectory
from ringback.upstreams.connection_factory import ConnectionFactory
from ringback.upstreams.connection_tasks import ConnectionTasks
from ringback.upstreams.errors import ConnectionReplaced, UpstreamNotConfigured
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog
from ringback.upstreams.instances import InstanceIds
from ringback.upstreams.notification_hub import NotificationHub
from ringback.upstreams.oauth.metadata_http import MetadataClients
from ringback.upstreams.oauth.source_factory import TokenSourceFactory
from ringback.upstreams.oauth.token_source import TokenSources
from ringback.upstreams.owned_connections import OwnedConnections
from ringback.upstreams.owned_upkeep import OwnedUpkeep
from ringback.upstreams.proxy import UpstreamProxy
from ringback.upstreams.session_ports import PredictDriverName
from ringback.upstreams.skipped import JudgeConfig, SkippedEntries
from ringback.upstreams.subscriptions.change_notifications import ChangeNotifications
from ringback.upstreams.subscriptions.resource_subscriptions import ResourceSubscriptions
from ringback.upstreams.transports.child_records import ChildRecords

log = logging.getLogger(__name__)


class UpstreamRegistry:
    """The connections of the configured upstreams, and what other packages use of them.

    Entering it starts every connection and waits for none: an upstream that is down must not prevent the start of the service.

    `random_fraction` is uniform in [0, 1). The store keeps the lists of upstreams for times when they are away; without it they
    are lost with the process. `children_folder` records the child processes, so that the next start can kill processes that
    are left over. `hosts` resolves the host names of upstreams; the registry closes it. `authorities` sign their certificates,
    besides the usual ones. `token_sources` makes the access tokens of connections; without it, no upstream has a login.
    `judge_config` may skip an upstream whose entry is valid. `own_id` identifies this installation, so that an upstream
    that leads back to it is found.
    """

    def __init__(
        self,
        configs: Iterable[UpstreamEntry],
        *,
        clock: Clock,
        random_fraction: Callable[[], float],
        predict_driver_name: PredictDriverName,
        connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
        store: Store | None = None,
        children_folder: Path | None = None,
        hosts: ConfiguredHosts | None = None,
        authorities: TrustedAuthorities = USUAL_AUTHORITIES,
        token_sources: TokenSources | None = None,
        judge_config: JudgeConfig = lambda _: None,
        own_id: str = "",
    ) -> None:
        """Raises `ConfigError` if two upstreams have the same name."""
        self._hosts = hosts or ConfiguredHosts()
        self._clock = clock
        self._connect_timeout_seconds = connect_timeout_seconds
        self._child_records = ChildRecords(children_folder)
        self.instances = InstanceIds(own_id)
        self.change_notifications = ChangeNotifications()
        self.notification_hub = NotificationHub()
        self._catalog_caches = CatalogCaches(clock=clock, changes=self.change_notifications, store=store)
        self._tasks = ConnectionTasks()
        self._factory = self._create_factory(random_fraction, predict_driver_name, authorities, token_sources)
        self._configs: dict[str, UpstreamConfig] = {}
        self._capacity: Mapping[str, int] = {}
        self._skipped = SkippedEntries(judge_config)
        self.connections = ConnectionDirectory()
        self._upkeep = OwnedUpkeep(self.connections, self._catalog_caches, clock=clock)
        self._apply_configs(_index_by_name(self._skipped.select_served(configs, {})))
        self.tool_catalog: ToolCatalog = UpstreamToolCatalog(
            self.connections, self._tasks.draining, skipped=self._skipped
        )
        self.event_catalog = UpstreamEventCatalog(self.connections.shared)
        self.proxy: UpstreamProxyPort = self._create_proxy()

    def _create_factory(
        self,
        random_fraction: Callable[[], float],
        predict_driver_name: PredictDriverName,
        authorities: TrustedAuthorities,
        token_sources: TokenSources | None,
    ) -> ConnectionFactory:
        return ConnectionFactory(
            clock=self._clock,
            random_fraction=random_fraction,
            predict_driver_name=predict_driver_name,
            connect_timeout_seconds=self._connect_timeout_seconds,
            catalog_caches=self._catalog_caches,
            child_records=self._child_records,
            instances=self.instances,
            hosts=self._hosts,
            authorities=authorities,
            token_sources=token_sources or self._create_sources_without_logins(authorities),
            on_login_change=self._replace_connection,
        )

    def _create_sources_without_logins(self, authorities: TrustedAuthorities) -> TokenSources:
        clients = MetadataClients(self._hosts, authorities=authorities)
        return TokenSourceFactory(self._hosts, clients, clock=self._clock, store=None, authorities=authorities)

    def _create_proxy(self) -> UpstreamProxy:
        changes = self.change_notifications
        return UpstreamProxy(
            self.connections,
            change_notifications=changes,
            resource_subscriptions=ResourceSubscriptions(
                self.connections, change_notifications=changes, clock=self._clock
            ),
        )

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._child_records.kill_leftovers)
        await self._catalog_caches.load_caches(self._configs)
        self._start_connections(self._configs)
        self._upkeep.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._upkeep.aclose()
        await self._tasks.aclose()
        await self._hosts.aclose()

    def get_configs(self) -> Sequence[UpstreamConfig]:
        """The upstreams as they are configured now."""
        return list(self._configs.values())

    def get_capacity(self) -> Mapping[str, int]:
        """How many calls each upstream runs at once, over all its connections."""
        return self._capacity  # each start of a call asks several times, and there may be a thousand upstreams

    def has_open_session(self, call: Call) -> bool:
        """Whether `open_call_session` would return a session for the call without waiting."""
        connection = self.connections.find_connection(call.upstream, call.principal)
        return connection is not None and connection.has_open_session(call)

    def get_login_owner(self, call: Call) -> Principal:
        """Whose tokens requests of this call carry."""
        return self.connections.get_owner(call.upstream, call.principal)

    @asynccontextmanager
    async def open_call_session(self, call: Call) -> AsyncGenerator[CallSession]:
        """Open a session for the call; raises `UpstreamUnreachable` after `connect_timeout_seconds`."""
        is_open = False
        while True:
            self._require_served(call.upstream)
            await self.connections.check_login(call.upstream, call.principal)
            await self.connections.wait_for_place(call.upstream, call.principal, self._connect_timeout_seconds)
            try:
                with self.connections.use_connection(call.upstream, call.principal) as connection:
                    async with connection.open_call_session(call) as session:
                        session.log_messages = CallLogMessages(call.id, self.notification_hub)
                        is_open = True
                        yield session
                        return
            except ConnectionReplaced:
                if is_open:
                    raise
                log.debug("call.moved", extra=call_facts(call))

    def _require_served(self, upstream: str) -> None:
        if upstream not in self.connections and (skipped := self._skipped.find(upstream)) is not None:
            raise UpstreamNotConfigured(f"its entry in the configuration is skipped: {skipped.advice}")

    # -- restarting --

    def restart_connections(self, upstream: str) -> Restarted:
        """Implements `domain.upstreams.UpstreamConnections`. Draining connections of an earlier configuration end, too."""
        shared, owned = self.connections.shared.get(upstream), self.connections.owned.get(upstream)
        current = [shared] if shared is not None else [] if owned is None else owned.list_connections()
        draining = [each for each in self._tasks.draining if each.config.name == upstream]
        infos = [each.get_info() for each in (*current, *draining)]
        for connection in (*current, *draining):
            connection.restart()
        restarted = Restarted(
            connections=sum(each.connections for each in infos), calls=sum(each.calls_in_flight for each in infos)
        )
        log.warning("upstream.restarted", extra={"upstream": upstream, "calls": restarted.calls})
        return restarted

    # -- another login --

    def _replace_connection(self, connection: UpstreamConnection) -> None:
        """Open another connection with empty caches: the lists and sessions of this one belong to an earlier login.

        The earlier connection takes no further calls and is closed when its running calls have ended.
        """
        upstream, owner = connection.config.name, connection.owner
        if connection.replaced.is_set():
            return
        log.info("upstream.login_changed", extra={"upstream": upstream})
        if owner == SHARED_OWNER:
            self._catalog_caches.remove_caches([upstream])
            replacement = self._factory.make_shared_connection(connection.config)
            self.connections.shared[upstream] = replacement
            self._tasks.drain_connection(connection)
            self._tasks.start_connection(replacement)
        else:
            self.connections.owned[upstream].replace_connection(connection)
        for listing in (Listing.TOOLS, Listing.RESOURCES, Listing.PROMPTS):
            self.change_notifications.publish_change(UpstreamChange(upstream=upstream, owner=owner, listing=listing))

    # -- reloading the configuration --

    def reconfigure(self, configs: Iterable[UpstreamEntry]) -> Reloaded:
        """Apply a new configuration; raises `ConfigError` without changing anything.

        Upstreams with the same configuration keep their connections, and so do those whose new entry cannot be served. Every
        other connection takes no further calls and is closed when its running calls have ended.
        """
        entries = list(configs)
        _index_by_name(entry for entry in entries if isinstance(entry, UpstreamConfig))
        previous = self._configs
        configured = _index_by_name(self._skipped.select_served(entries, previous))
        same = {name for name, config in configured.items() if previous.get(name) == config}
        fresh = configured.keys() - same
        shared, owned = dict(self.connections.shared), dict(self.connections.owned)
        self._apply_configs(configured, unchanged=same)
        self._upkeep.follow_configuration()
        for name in previous.keys() - same:
            if name in shared:
                self._tasks.drain_connection(shared[name])
            else:
                owned[name].drain_connections()
        self._start_connections(fresh)
        if removed := previous.keys() - configured.keys():
            self._forget_removed(removed)
        skipped, kept = self._skipped.list_all(), self._skipped.list_kept()
        return Reloaded(
            added=sorted(fresh - previous.keys()),
            changed=sorted(fresh & previous.keys()),
            removed=sorted(removed - {each.name for each in skipped}),
            unchanged=sorted(same - {each.name for each in kept}),
            skipped=skipped,
            kept=kept,
        )

    def _start_connections(self, names: Collection[str]) -> None:
        """Connections of principals are opened by their next use, or at once for those that listen to notifications."""
        for name in names:
            if (connection := self.connections.shared.get(name)) is not None:
                self._tasks.start_connection(connection)
            else:
                self.connections.owned[name].open_for_listeners()

    def _apply_configs(self, configured: dict[str, UpstreamConfig], *, unchanged: Collection[str] = ()) -> None:
        """Make the connections of these upstreams; unchanged upstreams keep theirs."""
        shared, owned = self.connections.shared, self.connections.owned
        self._configs = configured
        self._capacity = {name: config.max_concurrent for name, config in configured.items()}
        self.connections.replace_all(
            list(configured),
            shared={
                name: shared[name] if name in unchanged else self._factory.make_shared_connection(config)
                for name, config in configured.items()
                if config.credentials is CredentialsScope.SHARED
            },
            owned={
                name: owned[name] if name in unchanged else self._make_owned_connections(config, owned.get(name))
                for name, config in configured.items()
                if config.credentials is CredentialsScope.PRINCIPAL
            },
        )

    def _make_owned_connections(self, config: UpstreamConfig, replaced: OwnedConnections | None) -> OwnedConnections:
        return OwnedConnections(
            config,
            make_connection=self._factory.make_owned_connection,
            tasks=self._tasks,
            clock=self._clock,
            replaced=replaced,
        )

    def _forget_removed(self, removed: Iterable[str]) -> None:
        self._catalog_caches.remove_caches(removed)
        self._upkeep.delete_lists_of_others(frozenset(self._configs))


def _index_by_name(configs: Iterable[UpstreamConfig]) -> dict[str, UpstreamConfig]:
    named: dict[str, UpstreamConfig] = {}
    for config in configs:
        if config.name in named:
            raise ConfigError(f"Two upstreams are named '{config.name}'. Rename one of them.")
        named[config.name] = config
    return named


class UpstreamReloader:
    """Implements `domain.upstreams.UpstreamConfiguration`: loads the configuration again while the service runs."""

    def __init__(self, upstreams: UpstreamRegistry, *, load_configs: Callable[[], Iterable[UpstreamEntry]]) -> None:
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
