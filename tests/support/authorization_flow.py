"""A login flow whose servers are scripted, for tests of `OAuthLoginFlow`."""

from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ringback.domain.login_urls import client_metadata_url
from ringback.domain.upstream_logins import GrantedTokens, LoginFailed, LoginFailure, StartedAuthorization
from ringback.upstreams.config import LoginSettings, UpstreamConfig
from ringback.upstreams.oauth.authorization import OAuthLoginFlow
from tests.support.clock import FakeClock
from tests.support.scripted_authorization import (
    CONFIG,
    REDIRECT,
    UPSTREAM,
    MemoryClients,
    ScriptedServers,
)

PUBLIC_URL = "https://ringback.example"
METADATA_URL = "https://ringback.example/login/git/client.json"
LOOPBACK = "http://127.0.0.1:7123/callback"
PARENT_METADATA = "https://mcp.example/.well-known/oauth-protected-resource"
LOCAL = "http://127.0.0.1:8000/mcp"
HOSTILE_RESOURCES: dict[str, tuple[dict[str, Any], LoginFailure]] = {
    "another resource": ({"resource": "https://bank.example/mcp"}, LoginFailure.UNSAFE),
    "a longer path": ({"resource": "https://mcp.example/mcp2"}, LoginFailure.UNSAFE),
    "an invalid resource": ({"resource": "https://[bad"}, LoginFailure.UNSAFE),
    "a huge resource": ({"resource": f"{UPSTREAM}?{'x' * 5000}"}, LoginFailure.UNSAFE),
    "a resource with a fragment": ({"resource": f"{UPSTREAM}#x"}, LoginFailure.UNSAFE),
    "no resource": ({"resource": None}, LoginFailure.INVALID_RESPONSE),
    "no servers": ({"authorization_servers": []}, LoginFailure.INVALID_RESPONSE),
    "a plain issuer": ({"authorization_servers": ["http://login.example"]}, LoginFailure.UNSAFE),
    "no URL as issuer": ({"authorization_servers": ["javascript:alert(1)"]}, LoginFailure.UNSAFE),
}
HOSTILE_SERVERS: dict[str, tuple[dict[str, Any], LoginFailure]] = {
    "another issuer": ({"issuer": "https://evil.example"}, LoginFailure.UNSAFE),
    "no issuer": ({"issuer": None}, LoginFailure.INVALID_RESPONSE),
    "no PKCE": ({"code_challenge_methods_supported": None}, LoginFailure.UNSUPPORTED),
    "plain PKCE": ({"code_challenge_methods_supported": ["plain"]}, LoginFailure.UNSUPPORTED),
    "no browser": ({"grant_types_supported": ["client_credentials"]}, LoginFailure.UNSUPPORTED),
    "a plain token endpoint": ({"token_endpoint": "http://login.example/token"}, LoginFailure.UNSAFE),
    "no token endpoint": ({"token_endpoint": None}, LoginFailure.UNSAFE),
    "a script": ({"authorization_endpoint": "javascript:alert(1)"}, LoginFailure.UNSAFE),
    "a loopback page": ({"authorization_endpoint": "http://127.0.0.1:1/authorize"}, LoginFailure.UNSAFE),
    "a line break": ({"authorization_endpoint": "https://login.example/\r\nx: y"}, LoginFailure.UNSAFE),
    "a fragment": ({"authorization_endpoint": "https://login.example/authorize#x"}, LoginFailure.UNSAFE),
    "a user": ({"token_endpoint": "https://a:b@login.example/token"}, LoginFailure.UNSAFE),
    "a parameter of ours": ({"authorization_endpoint": "https://login.example/a?state=1"}, LoginFailure.UNSAFE),
    "no registration": ({"registration_endpoint": None}, LoginFailure.UNSUPPORTED),
}
HOSTILE_CLIENTS: dict[str, dict[str, Any]] = {
    "no id": {"client_id": None},
    "another redirect": {"redirect_uris": ["https://evil.example/callback"]},
    "a line break in the secret": {"client_secret": "a\nb"},
    "a line break in the id": {"client_id": "a\r\nb"},
    "a method with keys": {"token_endpoint_auth_method": "private_key_jwt"},
    "a method without its secret": {"token_endpoint_auth_method": "client_secret_basic"},
    "a huge id": {"client_id": "x" * 5000},
}


class LoginFlowStage:
    def __init__(self, *configs: UpstreamConfig, is_public: bool = False) -> None:
        self.servers = ScriptedServers()
        self.clients = MemoryClients()
        self.flow = OAuthLoginFlow(
            lambda: configs or (CONFIG,),
            self.servers.make_clients(),
            self.clients,
            clock=FakeClock(),
            get_client_metadata_url=partial(client_metadata_url, PUBLIC_URL) if is_public else None,
        )

    async def begin(self, *, redirect_uri: str = REDIRECT, scope: str | None = None) -> StartedAuthorization:
        return await self.flow.begin_authorization("git", redirect_uri=redirect_uri, scope=scope)

    async def begin_and_fail(self) -> LoginFailed:
        with pytest.raises(LoginFailed) as raised:
            await self.begin()
        return raised.value

    async def exchange(self, code: str = "code-1") -> GrantedTokens:
        return await self.flow.exchange_code("git", (await self.begin()).request, code=code)


def parse_parameters(started: StartedAuthorization) -> dict[str, str]:
    return {name: value for name, (value,) in parse_qs(urlsplit(started.authorization_url).query).items()}


def with_login(**settings: Any) -> UpstreamConfig:
    return replace(CONFIG, login=LoginSettings(**settings))
