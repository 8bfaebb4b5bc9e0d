"""The httpx client of a RingbackClient, which is replaced now and then.

httpcore does not always give back the connection of a cancelled request: its pool keeps it for good
(https://github.com/encode/httpcore/issues/1093). A process that cancels requests, for example by `asyncio.timeout`, would have
no connection left after some hundred of them. A new httpx client has a new pool.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx

CANCELLED_MAX: Final = 100
"""Cancelled requests of one httpx client: half of its connections, so that the others are free even if each keeps one."""


@dataclass(slots=True, eq=False)
class _UsedClient:
    http: httpx.AsyncClient
    users: int = 0
    cancelled: int = 0


class HttpClients:
    def __init__(self, create: Callable[[], httpx.AsyncClient], *, are_replaced: bool) -> None:
        """`are_replaced` is false for a client or a transport of the user's own."""
        self._create = create
        self._are_replaced = are_replaced
        self._current = _UsedClient(create())
        self._open = {self._current}

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[httpx.AsyncClient]:
        """The client for one request. A replaced one is closed after its last request."""
        used = self._current
        used.users += 1
        try:
            yield used.http
        except (asyncio.CancelledError, httpx.ReadTimeout):  # the latter may be a cancellation, too: `response_limits`
            self._record_cancellation(used)
            raise
        finally:
            used.users -= 1
            if used is not self._current and not used.users:
                await self._close(used)

    async def aclose(self) -> None:
        for used in list(self._open):
            await self._close(used)

    def _record_cancellation(self, used: _UsedClient) -> None:
        used.cancelled += 1
        is_worn = used.cancelled >= CANCELLED_MAX and used is self._current
        if is_worn and self._are_replaced and not used.http.is_closed:
            self._current = _UsedClient(self._create())
            self._open.add(self._current)

    async def _close(self, used: _UsedClient) -> None:
        self._open.discard(used)
        await used.http.aclose()
