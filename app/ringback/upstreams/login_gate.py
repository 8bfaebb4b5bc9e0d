"""Follows the login of a connection, and holds the connection back while its upstream opens a session only after a login.

After such a refusal, requests fail at once instead of waiting for the connect timeout. The next attempt to connect follows
when the tokens have changed, or after a minute. The stored version of the tokens decides, so a login on another node counts
even before its notification arrives.
"""

from contextlib import suppress
from typing import Final

import anyio

from ringback.domain.clock import Clock
from ringback.protocol.errors import LoginRequired, RequestNotSent, TokensUnreadable
from ringback.upstreams.connection_problems import ConnectionProblem, find_cause, get_advice
from ringback.upstreams.errors import UpstreamLoginRequired, UpstreamTokensUnreadable
from ringback.upstreams.oauth.token_source import TokenSource

RETRY_SECONDS: Final = 60.0
"""An upstream that stopped requiring a login is noticed after a minute."""


class LoginGate:
    def __init__(self, tokens: TokenSource | None, *, upstream: str, clock: Clock) -> None:
        self._upstream = upstream
        self._tokens = tokens
        self._clock = clock
        self._required: LoginRequired | None = None
        self._version: int | None = None
        """The version of the tokens, if any, with which the upstream required a login."""
        self._retry = anyio.Event()

    @property
    def is_closed(self) -> bool:
        return self._required is not None

    def note_failure(self, error: BaseException) -> None:
        """Close the gate if the attempt to connect failed for want of a login.

        The version is that of the refused request: a login may have been stored since then, and its tokens were not refused.
        """
        cause = find_cause(error)
        self._required = cause if isinstance(cause, LoginRequired) else None
        self._version = None if self._required is None else self._required.tokens_version

    def open(self) -> None:
        self._required = None
        self._retry.set()

    async def require_open(self) -> None:
        """Raise `UpstreamLoginRequired` if a login is required, or is there and cannot be read. New tokens open the gate."""
        if self._required is not None and await self._has_new_tokens():
            self.open()
        if self._required is not None:
            problem, kind = ConnectionProblem.LOGIN_REQUIRED, UpstreamLoginRequired
            if isinstance(self._required, TokensUnreadable):
                problem, kind = ConnectionProblem.TOKENS_UNREADABLE, UpstreamTokensUnreadable
            raise kind(
                f"{problem.replace('_', ' ')}. {get_advice(problem, self._upstream)}",
                scope=self._required.scope,
                tokens_version=self._version,
            )

    async def wait_open(self) -> None:
        """Wait for new tokens, but no longer than a minute."""
        self._retry = anyio.Event()
        async with anyio.create_task_group() as tasks:

            async def end_after_pause() -> None:
                await self._clock.sleep(RETRY_SECONDS)
                self.open()

            tasks.start_soon(end_after_pause)
            tasks.start_soon(self._watch_tokens)
            await self._retry.wait()
            tasks.cancel_scope.cancel()
        self.open()

    async def check_login(self) -> None:
        """Notice that the login has changed, before a request uses the connection (`oauth.followed_login`)."""
        if self._tokens is not None:
            await self._tokens.check_login()

    async def follow_login(self) -> None:
        """Notice a change of the login also while nothing is requested."""
        if self._tokens is not None:
            while not self._tokens.login.has_ended:
                await self._tokens.wait_changed()
                with suppress(RequestNotSent):  # the store fails: the next use or notification tries again
                    await self._tokens.read_version()

    async def _watch_tokens(self) -> None:
        if self._tokens is not None:
            while not await self._has_new_tokens():
                await self._tokens.wait_changed()
            self.open()

    async def _has_new_tokens(self) -> bool:
        try:
            return self._tokens is not None and await self._tokens.read_version() != self._version
        except RequestNotSent:  # the store fails
            return False

    async def aclose(self) -> None:
        """Close the source of the tokens, also while the connection is cancelled."""
        if self._tokens is not None:
            with anyio.CancelScope(shield=True):
                await self._tokens.aclose()
