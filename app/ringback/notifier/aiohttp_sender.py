"""The production sender: aiohttp, pooled, with the guard at the one place that every connection passes.

aiohttp asks its resolver for names only; for a literal address it asks nobody. `socket_factory` sees the final address of
every connection, so the guard stands there, and the resolver judges the whole answer of a name before its first address is
tried. aiohttp is handed URLs with `encoded=True` and no proxies, so it connects to the host that was judged.

A POST on a kept connection that the receiver is just closing fails, because HTTP does not let clients repeat a POST. Ours
may be repeated (receivers know a repeat by its `webhook-id`), so such a failure gets one fresh connection.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from ringback.domain.clock import Clock
from ringback.domain.delivery import Answer
from ringback.notifier.sender import (
    ASKED_BYTES_MAX,
    ATTEMPT_SECONDS,
    CONNECT_SECONDS,
    EXCERPT_BYTES_MAX,
    Method,
    answered,
    failed,
    outgoing_headers,
    read_head,
)
from ringback.notifier.target_guard import Target, TargetGuard

KEEPALIVE_SECONDS: Final = 4.0
"""Below the 5 s after which uvicorn and Node, the commonest receivers, close an idle connection."""

AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[Any, ...]]
"""As getaddrinfo tells it: family, kind, protocol, canonical name, socket address."""
OpenSocket = Callable[[AddressInfo], socket.socket]
_BROKEN: Final = (aiohttp.ClientError, OSError)


def open_socket(address_info: AddressInfo) -> socket.socket:
    family, kind, protocol, _, _ = address_info
    return socket.socket(family, kind, protocol)


def tls_context() -> ssl.SSLContext:
    """The machine's trust store, names verified. One for the process: making it costs milliseconds."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@dataclass(slots=True)
class _Connection:
    """Whether the running POST opened a connection, or got one that an earlier POST had left open."""

    opened: bool = False


_current: ContextVar[_Connection] = ContextVar("connection")
"""Set by the POST, marked by the socket it opens. aiohttp's tracing would tell as well, for 12 of 90 µs of CPU (measured)."""


class AiohttpSender:
    """Make it inside the event loop that will use it, and close it there.

    In-flight caps are the dispatcher's, so no request ever waits here for a connection slot.
    """

    def __init__(
        self,
        guard: TargetGuard,
        *,
        clock: Clock,
        ssl_context: ssl.SSLContext | None = None,
        open_socket: OpenSocket = open_socket,
    ) -> None:
        self._clock = clock
        self._guard = guard
        self._open_socket = open_socket
        context = ssl_context or tls_context()
        self._pooled = self._session(context, keep=True)
        self._fresh = self._session(context, keep=False)

    async def post(
        self, target: Target, headers: Mapping[str, str], body: bytes, *, deadline_seconds: float = ATTEMPT_SECONDS
    ) -> Answer:
        answer, _ = await self._exchange("POST", target, headers, body, deadline_seconds, EXCERPT_BYTES_MAX)
        return answer

    async def ask(
        self, method: Method, target: Target, headers: Mapping[str, str], body: bytes, *, deadline_seconds: float
    ) -> tuple[Answer, bytes]:
        return await self._exchange(method, target, headers, body, deadline_seconds, ASKED_BYTES_MAX)

    async def aclose(self) -> None:
        await self._pooled.close()
        await self._fresh.close()

    async def _exchange(
        self,
        method: Method,
        target: Target,
        headers: Mapping[str, str],
        body: bytes,
        deadline_seconds: float,
        bytes_max: int,
    ) -> tuple[Answer, bytes]:
        sent_headers = outgoing_headers(headers)
        until = asyncio.get_running_loop().time() + deadline_seconds
        try:
            async with asyncio.timeout_at(until):
                response = await self._send(method, target, sent_headers, body)
        except _BROKEN as error:  # TimeoutError is an OSError
            return failed(error), b""
        return await self._read(response, until, bytes_max)

    async def _send(
        self, method: Method, target: Target, headers: Mapping[str, str], body: bytes
    ) -> aiohttp.ClientResponse:
        connection = _Connection()
        _current.set(connection)
        try:
            return await _request(self._pooled, method, target, headers, body)
        except aiohttp.ClientConnectorError:  # a ClientOSError too, but it never had a connection
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            if connection.opened:
                raise
            return await _request(self._fresh, method, target, headers, body)

    async def _read(self, response: aiohttp.ClientResponse, until: float, bytes_max: int) -> tuple[Answer, bytes]:
        try:
            head = await _head(response.content, until, bytes_max)
        finally:
            response.release()  # closes the connection unless the whole answer was read
        retry_after = response.headers.get("retry-after")
        return answered(response.status, retry_after=retry_after, head=head, now=self._clock.now()), head

    def _session(self, context: ssl.SSLContext, *, keep: bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=context,
            resolver=_GuardedResolver(self._guard),
            socket_factory=self._guarded_socket,
            limit=0,
            force_close=not keep,
            keepalive_timeout=KEEPALIVE_SECONDS if keep else None,
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    def _guarded_socket(self, address_info: AddressInfo) -> socket.socket:
        _current.get().opened = True
        self._guard.admit(ip_address(address_info[4][0]))
        return self._open_socket(address_info)


class _GuardedResolver(AbstractResolver):
    """Names by the guard: all addresses of a name, or none if one of them is blocked."""

    def __init__(self, guard: TargetGuard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=str(address), port=port, family=family, proto=0, flags=0)
            for address in await self._guard.resolve(host)
        ]

    async def close(self) -> None:
        """Holds nothing."""


async def _request(
    session: aiohttp.ClientSession, method: Method, target: Target, headers: Mapping[str, str], body: bytes
) -> aiohttp.ClientResponse:
    """The receiver's status line and headers; the body of the answer is still to be read.

    A garbage answer is raised as ClientResponseError, whose `status` of 400 is aiohttp's word and not the receiver's.
    """
    url = URL(target.request_url, encoded=True)
    return await session.request(method, url, headers=headers, data=body or None, allow_redirects=False)


async def _head(content: aiohttp.StreamReader, until: float, bytes_max: int) -> bytes:
    if content.is_eof() and content.exception() is None:
        return content.read_nowait(bytes_max)  # all of it came with the headers: no timer, 9 of 80 µs less
    return await read_head(content.iter_any(), until=until, broken=_BROKEN, bytes_max=bytes_max)
