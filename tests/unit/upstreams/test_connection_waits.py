"""A request that waits for a connection notices what changes while it asks whether a login is required."""

import asyncio

import pytest

from ringback.domain.clock import SystemClock
from ringback.domain.principal import Principal
from ringback.protocol.errors import LoginRequired, RequestNotSent
from ringback.runner.drivers.selection import predict_driver_name
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.errors import ConnectionReplaced
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.followed_login import FollowedLogin
from ringback.upstreams.oauth.token_source import OnWait, TokenSource
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.upstreams import WAIT_SECONDS, make_http_config


class EndingLogin:
    """Implements `TokenSource` and `TokenSources`: without a token, and its login ends when the stored version is read."""

    def __init__(self) -> None:
        self.login = FollowedLogin()
        self.version: int | None = None
        self.has_other_login = False

    def get_source(self, config: UpstreamConfig, owner: Principal) -> TokenSource:  # noqa: ARG002 - the names of the port
        return self

    async def check_login(self) -> None:
        """No notification has come."""

    async def get_token(
        self, *, other_than: str | None = None, refusal: Refusal | None = None, on_wait: OnWait | None = None
    ) -> str | None:
        raise LoginRequired(f"sign in {other_than or refusal or on_wait or ''}", tokens_version=None)

    async def explain_refusal(self, refusal: Refusal, *, token: str | None) -> RequestNotSent | None:
        raise NotImplementedError

    async def read_version(self) -> int | None:
        if self.has_other_login:
            self.version = 2
            self.login.end()
        return self.version

    async def wait_changed(self) -> None:
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        """Nothing is refreshed."""


async def test_a_request_that_finds_another_login_itself_goes_to_the_connection_that_replaces_its_own() -> None:
    tokens = EndingLogin()
    config = make_http_config("http://upstream.example/mcp")
    async with UpstreamRegistry(
        [config],
        clock=SystemClock(),
        random_fraction=lambda: 0.5,
        predict_driver_name=predict_driver_name,
        connect_timeout_seconds=0.5,
        token_sources=tokens,
    ) as upstreams:
        connection = upstreams.connections.shared[config.name]
        await connection.wait_until_settled(WAIT_SECONDS)
        tokens.has_other_login = True

        with pytest.raises(ConnectionReplaced):
            await connection.get_shared_session(started_here=False)
