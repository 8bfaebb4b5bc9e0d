"""Nodes that share the stored tokens of one owner, and scripted authorization servers, for tests of `StoredTokenSource`."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx2

from ringback.domain.clock import seconds
from ringback.domain.upstream_logins import SHARED_OWNER, UpstreamTokens
from ringback.protocol.errors import RequestNotSent
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.login_offers import LoginOffers
from ringback.upstreams.oauth.stored_tokens import (
    StoredTokenSource,
)
from tests.support.clock import START, FakeClock
from tests.support.logins import make_tokens
from tests.support.scripted_authorization import (
    CONFIG,
    RESOURCE_METADATA,
    TOKEN,
    UPSTREAM,
    MemoryClients,
    MemoryTokens,
    ScriptedServers,
)

EXPIRES_AT = START + seconds(3600)
UNAUTHORISED = Refusal(status_code=401, is_bearer=True, resource_metadata=RESOURCE_METADATA)
INVALID_TOKEN = Refusal(status_code=401, is_bearer=True, error="invalid_token")
REFUSED_HANDSHAKE = Refusal(status_code=401, is_handshake=True)
LOGGED_IN = make_tokens(
    upstream=CONFIG.name,
    resource=UPSTREAM,
    token_endpoint=TOKEN,
    access_token="access-1",
    refresh_token="refresh-1",
    scope="tools",
    expires_at=EXPIRES_AT,
)


class TokenStage:
    """Nodes that share a store, and the servers."""

    def __init__(self, tokens: UpstreamTokens | None = LOGGED_IN, *, node_count: int = 1) -> None:
        self.clock = FakeClock()
        self.servers = ScriptedServers()
        self.store = MemoryTokens(tokens, self.clock)
        self.clients = MemoryClients()
        self.nodes = [self.make_node() for _ in range(node_count)]
        self.node = self.nodes[0]

    def make_node(self, **changes: Any) -> StoredTokenSource:
        config = replace(CONFIG, **changes)
        node = StoredTokenSource(
            config,
            SHARED_OWNER,
            store=self.store,
            clients=self.clients,
            http=self.servers.make_http(config),
            offers=LoginOffers(config, self.servers.make_clients(), clock=self.clock),
            clock=self.clock,
        )
        self.store.on_saved.append(node.notify_changed)
        return node

    def slow_down_saves(self) -> None:
        """Other tasks run before each save, as with a database."""
        inner = self.store.save

        async def save(tokens: UpstreamTokens, *, expected_version: int) -> bool:
            await asyncio.sleep(0)
            return await inner(tokens, expected_version=expected_version)

        self.store.save = save

    def hold_saves(self) -> tuple[asyncio.Event, asyncio.Event]:
        """Saves wait; the events: one has arrived, and all may go on."""
        arrived, released = asyncio.Event(), asyncio.Event()
        inner = self.store.save

        async def save(tokens: UpstreamTokens, *, expected_version: int) -> bool:
            arrived.set()
            await released.wait()
            return await inner(tokens, expected_version=expected_version)

        self.store.save = save
        return arrived, released

    def hold_token_requests(self) -> tuple[asyncio.Event, asyncio.Event]:
        """Token requests wait; the events: one has arrived, and all may go on."""
        arrived, released = asyncio.Event(), asyncio.Event()
        inner = self.servers.handle_async_request

        async def hold(request: httpx2.Request) -> httpx2.Response:
            if str(request.url) == TOKEN:
                arrived.set()
                await released.wait()
            return await inner(request)

        self.servers.handle_async_request = hold
        return arrived, released


async def explain(node: StoredTokenSource, refusal: Refusal, token: str | None) -> RequestNotSent | None:
    return await node.explain_refusal(refusal, token=token)


def require_scope(scope: str | None) -> Refusal:
    return Refusal(status_code=403, is_bearer=True, error="insufficient_scope", scope=scope)


def fail_to_connect(_: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("refused")
