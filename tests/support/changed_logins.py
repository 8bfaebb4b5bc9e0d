"""Two nodes in front of one upstream, to which Alice, or the operator for all, signs in with one account after another.

async with open_logins(folder, era, CredentialsScope.PRINCIPAL) as logins:
    await logins.sign_in("red")
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ringback.domain.clock import SystemClock
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import upstream_tokens_topic
from ringback.domain.upstream_logins import (
    AuthorizationRequest,
    CredentialsScope,
    GrantedTokens,
    OAuthClient,
    UpstreamLogin,
    UpstreamTokens,
)
from ringback.domain.upstream_rows import CatalogPart
from ringback.domain.upstreams import Listing
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.runner.drivers.selection import predict_driver_name
from ringback.services.logins.login_tokens import end_login, replace_tokens
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.oauth.metadata_http import MetadataClients
from ringback.upstreams.oauth.source_factory import TokenSourceFactory
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.examples import ALICE
from tests.support.owned_upstream import OwnedUpstream, make_token
from tests.support.proxies import list_when_connected
from tests.support.stores import open_test_store
from tests.support.upstreams import WAIT_SECONDS, make_http_config, serving

UPSTREAM: Final = "stage"
ACCOUNTS: Final = ("red", "blue")


@dataclass(slots=True, kw_only=True)
class ChangedLogins:
    store: Store
    nodes: Sequence[UpstreamRegistry]
    accounts: OwnedUpstream
    url: str
    owner: Principal
    clock: SystemClock

    async def sign_in(self, account: str) -> None:
        login = UpstreamLogin(
            id=IdGenerator(self.clock).new_login_id(),
            state_hash="",
            upstream=UPSTREAM,
            owner=self.owner,
            principal=ALICE,
            key_id=None,
            request=AuthorizationRequest(
                issuer=self.url,
                token_endpoint=self.url,
                client=OAuthClient(client_id="ringback"),
                redirect_uri="http://127.0.0.1/",
                code_verifier="",
                resource=self.url,
                scope=None,
                requires_issuer=False,
            ),
            created_at=self.clock.now(),
            expires_at=self.clock.now(),
        )
        granted = GrantedTokens(access_token=make_token(account))
        await self.store.write(lambda tx: replace_tokens(tx, login, granted))

    async def sign_out(self) -> None:
        await self.store.write(lambda tx: end_login(tx, UPSTREAM, self.owner))

    async def write_as_refresh(self) -> None:
        """Write the tokens as a refresh does: the next version of the same login."""

        async def refresh(tx: Transaction) -> None:
            tokens = await tx.upstream_tokens.get(UPSTREAM, self.owner)
            assert isinstance(tokens, UpstreamTokens)
            refreshed = replace(tokens, version=tokens.version + 1)
            assert await tx.upstream_tokens.save(refreshed, expected_version=tokens.version)
            tx.notify(upstream_tokens_topic(UPSTREAM, self.owner))

        await self.store.write(refresh)

    def find_connection(self, node: UpstreamRegistry) -> UpstreamConnection | None:
        return node.connections.find_connection(UPSTREAM, ALICE)

    async def list_tools(self, node: UpstreamRegistry) -> list[str]:
        entries = await list_when_connected(node.proxy, UPSTREAM, Listing.TOOLS, principal=ALICE)
        return [entry["name"] for entry in entries]

    async def read_stored_lists(self) -> list[CatalogPart]:
        async def read(tx: Transaction) -> list[CatalogPart]:
            return [*await tx.catalog.list_all(), *await tx.owned_catalog.list_parts(UPSTREAM, ALICE)]

        return await self.store.read(read)


@asynccontextmanager
async def open_logins(
    folder: Path, era: str, credentials: CredentialsScope = CredentialsScope.PRINCIPAL
) -> AsyncGenerator[ChangedLogins]:
    clock, accounts = SystemClock(), OwnedUpstream(ACCOUNTS)
    async with (
        serving(accounts.app(era)) as server,
        open_test_store(folder, clock) as store,
        AsyncExitStack() as stack,
    ):
        config = replace(make_http_config(server.url, name=UPSTREAM), credentials=credentials)

        async def open_node() -> UpstreamRegistry:
            hosts = ConfiguredHosts()
            node = UpstreamRegistry(
                [config],
                clock=clock,
                random_fraction=lambda: 0.5,
                predict_driver_name=predict_driver_name,
                connect_timeout_seconds=WAIT_SECONDS,
                store=store,
                hosts=hosts,
                token_sources=TokenSourceFactory(hosts, MetadataClients(hosts), clock=clock, store=store),
            )
            return await stack.enter_async_context(node)

        yield ChangedLogins(
            store=store,
            nodes=[await open_node(), await open_node()],
            accounts=accounts,
            url=server.url,
            owner=credentials.get_owner(ALICE),
            clock=clock,
        )
