"""Repeats requests of clients and operators until a node answers them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from ringback.domain.errors import Unavailable
from ringback.domain.principal import ALL_SCOPES, Caller, Principal
from scripts.simulate_runs.cluster import Cluster, Connection, ConnectionLost
from scripts.simulate_runs.node import Node

T = TypeVar("T")
Request = Callable[[Node], Awaitable[T]]

RETRY_SECONDS: Final = 2.0
"""The pause of a client after a failure that it may repeat."""
TRIES_MAX: Final = 60
REQUEST_TIMEOUT_SECONDS: Final = 15.0


class Unreachable(Exception):
    """All tries failed."""


class Requester:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def repeat(
        self, request: Request[T], *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS, place: int | None = None
    ) -> T:
        """The response, after as many tries as that takes: the first at this place, the others at any node."""
        for attempt in range(TRIES_MAX):
            try:
                return await self.send(request, timeout_seconds=timeout_seconds, place=None if attempt else place)
            except (ConnectionLost, Unavailable):
                await asyncio.sleep(RETRY_SECONDS)
        raise Unreachable

    def open_connection(self, on_message: Callable[[Any], None]) -> Connection:
        return self._cluster.open_connection(on_message)

    async def send(
        self, request: Request[T], *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS, place: int | None = None
    ) -> T:
        """The response of one try. Raises `ConnectionLost`."""
        return await self._cluster.request(request, timeout_seconds=timeout_seconds, place=place)


def make_caller(principal: str) -> Caller:
    return Caller(principal=Principal(principal), scopes=ALL_SCOPES)
