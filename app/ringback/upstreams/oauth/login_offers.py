"""Whether an upstream that refuses a request offers a login.

Many servers refuse requests without an API key with the same status, and a call must not wait for a login that cannot be. A
challenge with `resource_metadata` says that there is one; without it, the well-known URLs of the upstream say so.
"""

import asyncio
from typing import Final

import anyio

from ringback.domain.clock import Clock
from ringback.domain.upstream_logins import LoginFailed, LoginFailure
from ringback.protocol.errors import TokenUnavailable
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.discovery import discover_server
from ringback.upstreams.oauth.metadata_http import MetadataClients

REMEMBERED_SECONDS: Final = 60.0
"""How long an answer is used again: as long as a connection waits after such a refusal."""
DISCOVERY_SECONDS: Final = 30.0
"""For the whole discovery: the time of three requests that get no answer. Calls wait for it."""
RETRY_SECONDS: Final = 5.0
"""After a discovery that found out nothing, no other one begins for this long: calls that wait do not ask one by one."""


class LoginOffers:
    def __init__(self, config: UpstreamConfig, metadata_clients: MetadataClients, *, clock: Clock) -> None:
        self._config = config
        self._metadata_clients = metadata_clients
        self._clock = clock
        self._discovering = asyncio.Lock()
        self._is_offered: bool | None = False
        self._known_until = 0.0
        """By `Clock.monotonic`."""

    async def offers_login(self, refusal: Refusal) -> bool:
        """Raises `TokenUnavailable` if that could not be found out."""
        if refusal.resource_metadata is not None or self._config.login.issuer is not None:
            return True
        async with self._discovering:
            if self._clock.monotonic() >= self._known_until:
                self._is_offered = await self._discover()
                remembered_seconds = RETRY_SECONDS if self._is_offered is None else REMEMBERED_SECONDS
                self._known_until = self._clock.monotonic() + remembered_seconds
        if self._is_offered is None:
            raise TokenUnavailable("Whether the upstream offers a login could not be found out. Try again later.")
        return self._is_offered

    async def _discover(self) -> bool | None:
        """None if the servers could not be asked: an outage is no answer, and no reason to end calls."""
        try:
            with anyio.fail_after(DISCOVERY_SECONDS):
                await discover_server(self._config, self._metadata_clients.get_client(self._config))
        except TimeoutError:
            return None
        except LoginFailed as failure:
            return None if failure.failure is LoginFailure.UNREACHABLE else False
        return True
