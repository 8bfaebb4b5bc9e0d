"""Connections to one HTTP upstream: as many as its calls need at once, in pools that stay small.

The SDK's own client stops at a hundred connections, and a single large pool is slow.
"""

import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Final, cast

import httpx2

POOL_CALLS_MAX: Final = 64
"""Requests in one pool. httpcore looks through all connections of a pool at each request's start and end; 3,000 at once in one
pool cost 11 s of CPU, in pools of this size 4.7 s, of which a good part is the server's (measured in one process)."""
IDLE_CONNECTIONS_MAX: Final = 8
IDLE_SECONDS: Final = 1.0
"""Shorter than servers keep an idle connection (gunicorn 2 s, uvicorn and Node 5 s). One that the server closes just as it is
used again looks like a call that may have run."""


def ssl_context(url: str) -> ssl.SSLContext:
    """For https the usual certificates. Loading them takes 20 ms, so for http there is a context that trusts nobody."""
    return httpx2.create_ssl_context() if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Pools(httpx2.AsyncBaseTransport):
    """As many small pools as the requests in flight need; the first one with room takes the next request."""

    def __init__(self, certificates: ssl.SSLContext) -> None:
        self._certificates = certificates
        self._pools: list[_Pool] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._with_room().send(request)

    def _with_room(self) -> "_Pool":
        for pool in self._pools:
            if pool.in_flight < POOL_CALLS_MAX:
                return pool
        limits = httpx2.Limits(max_keepalive_connections=IDLE_CONNECTIONS_MAX, keepalive_expiry=IDLE_SECONDS)
        pool = _Pool(
            httpx2.AsyncHTTPTransport(
                verify=self._certificates, limits=limits, socket_options=list(_keep_alive_options())
            )
        )
        self._pools.append(pool)
        return pool

    async def aclose(self) -> None:
        for pool in self._pools:
            await pool.transport.aclose()


class _Pool:
    def __init__(self, transport: httpx2.AsyncHTTPTransport) -> None:
        self.transport = transport
        self.in_flight = 0

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        self.in_flight += 1
        try:
            response = await self.transport.handle_async_request(request)
        except BaseException:
            self.in_flight -= 1
            raise
        stream = cast("httpx2.AsyncByteStream", response.stream)
        response.stream = _Counted(stream, self)
        return response


class _Counted(httpx2.AsyncByteStream):
    """A response's body that tells its pool when it is closed."""

    def __init__(self, stream: httpx2.AsyncByteStream, pool: _Pool) -> None:
        self._stream = stream
        self._pool: _Pool | None = pool

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.in_flight -= 1
        await self._stream.aclose()


def _keep_alive_options() -> Iterable[tuple[int, int, int]]:
    """TCP probes after a minute of silence: with no read timeout, nothing else notices a host that vanished."""
    yield socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            yield socket.IPPROTO_TCP, getattr(socket, name), value
