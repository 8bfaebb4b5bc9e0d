"""An upstream and its authorization server as scripted responses by URL, for tests of the OAuth client without sockets."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qs

import httpx2

from ringback.domain.clock import seconds
from ringback.domain.errors import StoreUnavailable
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER, RegisteredClient, UnreadableTokens, UpstreamTokens
from ringback.notifier.configured_hosts import ConfiguredHosts, LookUp
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.oauth.metadata_http import MetadataClients, MetadataHttp
from ringback.upstreams.oauth.token_store import REFRESH_CLAIM_SECONDS, RefreshClaim
from tests.support.clock import FakeClock
from tests.support.upstreams import make_http_config

UPSTREAM: Final = "https://mcp.example/mcp"
RESOURCE_METADATA: Final = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
ISSUER: Final = "https://login.example"
SERVER_METADATA: Final = "https://login.example/.well-known/oauth-authorization-server"
REGISTER: Final = "https://login.example/register"
TOKEN: Final = "https://login.example/token"
REVOKE: Final = "https://login.example/revoke"
REDIRECT: Final = "https://ringback.example/login/callback"

Answer = Callable[[httpx2.Request], httpx2.Response]
RESOURCE_DOCUMENT: Final[Mapping[str, Any]] = {
    "resource": UPSTREAM,
    "authorization_servers": [ISSUER],
    "scopes_supported": ["tools"],
}
SERVER_DOCUMENT: Final[Mapping[str, Any]] = {
    "issuer": ISSUER,
    "authorization_endpoint": "https://login.example/authorize",
    "token_endpoint": TOKEN,
    "registration_endpoint": REGISTER,
    "revocation_endpoint": REVOKE,
    "code_challenge_methods_supported": ["S256"],
}
CLIENT_DOCUMENT: Final[Mapping[str, Any]] = {"client_id": "client-1", "redirect_uris": [REDIRECT]}
TOKEN_DOCUMENT: Final[Mapping[str, Any]] = {
    "access_token": "access-2",
    "token_type": "Bearer",
    "refresh_token": "refresh-2",
    "expires_in": 3600,
}


def answer_json(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return lambda _: httpx2.Response(status, json=document, headers=dict(headers or {}))


class ScriptedServers(httpx2.AsyncBaseTransport):
    """A usual upstream with a usual authorization server; tests replace answers. Other URLs answer 404."""

    def __init__(self) -> None:
        challenge = {"www-authenticate": f'Bearer resource_metadata="{RESOURCE_METADATA}"'}
        self.answers: dict[str, Answer] = {
            UPSTREAM: answer_json({}, 401, challenge),
            RESOURCE_METADATA: answer_json(RESOURCE_DOCUMENT),
            SERVER_METADATA: answer_json(SERVER_DOCUMENT),
            REGISTER: answer_json(CLIENT_DOCUMENT, 201),
            TOKEN: answer_json(TOKEN_DOCUMENT),
            REVOKE: answer_json({}),
        }
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.get(str(request.url).partition("?")[0])
        return httpx2.Response(404) if answer is None else answer(request)

    def change_document(self, url: str, document: Mapping[str, Any], **changes: Any) -> None:
        """Answer with the document and these changes; None removes a member."""
        changed = {name: value for name, value in {**document, **changes}.items() if value is not None}
        self.answers[url] = answer_json(changed)

    def list_urls(self) -> list[str]:
        return [str(request.url) for request in self.requests]

    def list_forms(self, url: str = TOKEN) -> list[dict[str, str]]:
        """The forms that were sent to this URL."""
        sent = [request.content.decode() for request in self.requests if str(request.url) == url]
        return [{name: values[0] for name, values in parse_qs(form).items()} for form in sent]

    def list_documents(self, url: str = REGISTER) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests if str(request.url) == url]

    def make_clients(self) -> MetadataClients:
        def open_transport(_url: str, _look_up: LookUp) -> httpx2.AsyncBaseTransport:
            return self

        return MetadataClients(ConfiguredHosts(), open_transport=open_transport)

    def make_http(self, config: UpstreamConfig) -> MetadataHttp:
        return self.make_clients().get_client(config)


def hang(servers: ScriptedServers, url: str) -> None:
    """Requests to this URL get no answer."""
    inner = servers.handle_async_request

    async def handle(request: httpx2.Request) -> httpx2.Response:
        return await (asyncio.Future[httpx2.Response]() if str(request.url) == url else inner(request))

    servers.handle_async_request = handle


class MemoryClients:
    """Implements `ClientStore`."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str], RegisteredClient] = {}

    async def get(self, issuer: str, redirect_uri: str) -> RegisteredClient | None:
        return self.stored.get((issuer, redirect_uri))

    async def save(self, registered: RegisteredClient) -> None:
        self.stored[registered.issuer, registered.redirect_uri] = registered

    async def forget(self, issuer: str, redirect_uri: str, client_id: str) -> None:
        registered = self.stored.get((issuer, redirect_uri))
        if registered is not None and registered.client.client_id == client_id:
            del self.stored[issuer, redirect_uri]


CONFIG: Final = make_http_config(UPSTREAM, name="git")


class MemoryTokens:
    """Implements `TokenStore`: the stored tokens of one owner, which several nodes share."""

    def __init__(self, tokens: UpstreamTokens | None, clock: FakeClock) -> None:
        self.tokens = tokens
        self.unreadable: UnreadableTokens | None = None
        """What the nodes find in their place, if it is sealed with a key that they lack."""
        self.on_saved: list[Callable[[], None]] = []
        self.failures = 0
        """How many times the store fails."""
        self.reads = 0
        self.claims = 0
        self._clock = clock

    async def load(self, upstream: str, owner: Principal) -> UpstreamTokens | UnreadableTokens | None:
        assert (upstream, owner) == (CONFIG.name, SHARED_OWNER)
        self._fail()
        self.reads += 1
        return self.unreadable or self.tokens

    async def claim_refresh(self, tokens: UpstreamTokens) -> RefreshClaim:
        self.claims += 1
        self._fail()
        if self.unreadable is not None:
            return RefreshClaim(tokens=self.unreadable)
        stored, now = self.tokens, self._clock.now()
        if stored is None or stored.version != tokens.version:
            return RefreshClaim(tokens=stored)
        if stored.refresh_claimed_until is not None and stored.refresh_claimed_until > now:
            wait_seconds = (stored.refresh_claimed_until - now).total_seconds()
            return RefreshClaim(tokens=stored, wait_seconds=wait_seconds)
        until = now + seconds(REFRESH_CLAIM_SECONDS)
        self.tokens = replace(stored, version=stored.version + 1, refresh_claimed_until=until)
        return RefreshClaim(tokens=self.tokens, is_ours=True)

    async def save(self, tokens: UpstreamTokens, *, expected_version: int) -> bool:
        self._fail()
        if self.tokens is None or self.tokens.version != expected_version:
            return False
        self.tokens = tokens
        for notify in self.on_saved:
            notify()
        return True

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("The disk is full.")
