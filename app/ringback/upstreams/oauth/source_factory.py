"""Makes the source of access tokens of each connection: none, the configured OAuth client, or the tokens of an owner."""

from ringback.domain.clock import Clock
from ringback.domain.ports import Store
from ringback.domain.principal import Principal
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, TrustedAuthorities
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.oauth.client_credentials import ClientCredentialsTokens
from ringback.upstreams.oauth.client_store import NoClients, StoredClients
from ringback.upstreams.oauth.login_offers import LoginOffers
from ringback.upstreams.oauth.metadata_http import MetadataClients
from ringback.upstreams.oauth.stored_tokens import StoredTokenSource
from ringback.upstreams.oauth.token_source import TokenSource
from ringback.upstreams.oauth.token_store import NoTokens, StoredTokens


class TokenSourceFactory:
    """Implements `TokenSources`."""

    def __init__(
        self,
        hosts: ConfiguredHosts,
        metadata_clients: MetadataClients,
        *,
        clock: Clock,
        store: Store | None,
        authorities: TrustedAuthorities = USUAL_AUTHORITIES,
    ) -> None:
        """A process without a store has no logins."""
        self._hosts = hosts
        self._metadata_clients = metadata_clients
        self._clock = clock
        self._store = store
        self._authorities = authorities

    def get_source(self, config: UpstreamConfig, owner: Principal) -> TokenSource | None:
        if config.oauth is not None:
            return ClientCredentialsTokens(
                config.oauth,
                clock=self._clock,
                look_up=self._hosts.look_up_for(config.name),
                authorities=self._authorities,
            )
        if not config.takes_login:
            return None
        return StoredTokenSource(
            config,
            owner,
            store=NoTokens() if self._store is None else StoredTokens(self._store),
            clients=NoClients() if self._store is None else StoredClients(self._store),
            http=self._metadata_clients.get_client(config),
            offers=LoginOffers(config, self._metadata_clients, clock=self._clock),
            clock=self._clock,
            signals=None if self._store is None else self._store.signals,
        )
