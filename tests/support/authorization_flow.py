"""A login flow whose servers are scripted, for tests of `OAuthLoginFlow`."""

from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ringback.domain.login_urls import client_metadata_url
from ringback.domain.upstream_logins import GrantedTokens, LoginFailed, StartedAuthorization
from ringback.upstreams.config import LoginSettings, UpstreamConfig
from ringback.upstreams.oauth.authorization import OAuthLoginFlow
from tests.support.clock import FakeClock
from tests.support.scripted_authorization import (
    CONFIG,
    REDIRECT,
    MemoryClients,
    ScriptedServers,
)

PUBLIC_URL = "https://ringback.example"
METADATA_URL = "https://ringback.example/login/git/client.json"
LOOPBACK = "http://127.0.0.1:7123/callback"
PARENT_METADATA = "https://mcp.example/.well-known/oauth-protected-resource"
LOCAL = "http://127.0.0.1:8000/mcp"


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
