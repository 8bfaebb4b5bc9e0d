"""Makes connections of upstreams: with what all of them share, and with the caches of their owner."""

from collections.abc import Awaitable, Callable
from functools import partial

from ringback.domain.clock import Clock
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.http.authorities import TrustedAuthorities
from ringback.upstreams.catalog.catalog_cache import CatalogCaches, OwnerCaches
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.faults import FaultCounter
from ringback.upstreams.instances import InstanceIds
from ringback.upstreams.oauth.token_source import TokenSources
from ringback.upstreams.session_ports import PredictDriverName
from ringback.upstreams.session_starter import SessionStarter
from ringback.upstreams.transports.child_records import ChildRecords

RestoreCatalog = Callable[[], Awaitable[None]]


class ConnectionFactory:
    def __init__(
        self,
        *,
        clock: Clock,
        random_fraction: Callable[[], float],
        predict_driver_name: PredictDriverName,
        connect_timeout_seconds: float,
        catalog_caches: CatalogCaches,
        child_records: ChildRecords,
        instances: InstanceIds,
        hosts: ConfiguredHosts,
        authorities: TrustedAuthorities,
        token_sources: TokenSources,
        on_login_change: Callable[[UpstreamConnection], None],
    ) -> None:
        self._clock = clock
        self._random_fraction = random_fraction
        self._predict_driver_name = predict_driver_name
        self._connect_timeout_seconds = connect_timeout_seconds
        self._catalog_caches = catalog_caches
        self._child_records = child_records
        self._instances = instances
        self._hosts = hosts
        self._authorities = authorities
        self._token_sources = token_sources
        self._on_login_change = on_login_change

    def make_shared_connection(self, config: UpstreamConfig) -> UpstreamConnection:
        """The caches outlive the connection: the next configuration of this upstream uses them too."""
        return self._make_connection(config, SHARED_OWNER, self._catalog_caches.get_caches(config.name))

    def make_owned_connection(
        self, config: UpstreamConfig, owner: Principal, faults: FaultCounter
    ) -> tuple[UpstreamConnection, RestoreCatalog]:
        """A connection, and what loads the stored lists of its owner before it runs. Its caches end with it."""
        caches = self._catalog_caches.make_caches(config.name, owner)
        restore = partial(self._catalog_caches.restore_caches, caches, config.name, owner)
        return self._make_connection(config, owner, caches, faults=faults), restore

    def _make_connection(
        self, config: UpstreamConfig, owner: Principal, caches: OwnerCaches, *, faults: FaultCounter | None = None
    ) -> UpstreamConnection:
        return UpstreamConnection(
            config,
            owner=owner,
            caches=caches,
            token_source=self._token_sources.get_source(config, owner),
            clock=self._clock,
            random_fraction=self._random_fraction,
            predict_driver_name=self._predict_driver_name,
            connect_timeout_seconds=self._connect_timeout_seconds,
            create_starter=partial(
                SessionStarter,
                config,
                look_up=self._hosts.look_up_for(config.name),
                authorities=self._authorities,
                child_records=self._child_records,
                instances=self._instances,
            ),
            faults=faults or FaultCounter(config.name, clock=self._clock),
            on_login_change=self._on_login_change,
        )
