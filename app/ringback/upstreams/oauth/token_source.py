"""Ports: where the transport of an upstream gets access tokens, and who makes their sources."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from ringback.domain.principal import Principal
from ringback.protocol.errors import RequestNotSent
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.followed_login import FollowedLogin

OnWait = Callable[[], Awaitable[None]]
"""Called before a long wait."""


class TokenSource(Protocol):
    """The access tokens of one upstream and one owner, of one login until that ends."""

    @property
    def login(self) -> FollowedLogin:
        """Once it has ended, the source has no further token when the last one expires."""
        ...

    async def check_login(self) -> None:
        """Notice that the login has changed, if a notification came, or if none was looked for within 30 s."""
        ...

    async def get_token(
        self, *, other_than: str | None = None, refusal: Refusal | None = None, on_wait: OnWait | None = None
    ) -> str | None:
        """A valid token other than the given one, which the upstream refused; None if requests go without a token.

        The given one is returned if `refusal`, the upstream's, may concern one tool only and another token would not help.
        `on_wait` is awaited before a wait for an authorization server, asked by this or another request: up to ten seconds.
        Raises `LoginRequired`, `TokensUnreadable`, `CredentialsRejected` or `TokenUnavailable`.
        """
        ...

    async def explain_refusal(self, refusal: Refusal, *, token: str | None) -> RequestNotSent | None:
        """The error of a request that the upstream refused, sent with this token; None: the response stands for itself.

        The upstream refused another token just before, if there was one.
        """
        ...

    @property
    def version(self) -> int | None:
        """Of the tokens that were used last; None without tokens. It grows with each login and refresh."""
        ...

    async def read_version(self) -> int | None:
        """The version that is stored now."""
        ...

    async def wait_changed(self) -> None:
        """Wait until the owner's tokens may have changed: a login, a logout, a refresh by another node."""
        ...

    async def aclose(self) -> None:
        """Wait for a refresh in flight, whose tokens would be lost otherwise. The wait is bounded."""
        ...


class TokenSources(Protocol):
    def get_source(self, config: UpstreamConfig, owner: Principal) -> TokenSource | None:
        """A new source for requests with this owner's credentials; None if the configuration has all credentials.

        The connection that it is for closes it. Two sources of one owner share what is stored, so they refresh once.
        """
        ...
