"""A pool of HTTP/1.1 connections to upstreams, as a transport for the SDK's client.

The transport of httpx2 searches all connections of its pool at the start and end of each request, which took a fifth of the CPU
of a call (measured). This pool uses the most recently used idle connection or opens a new one. It has no limit on connections:
the runner limits the concurrent calls of an upstream.

While a tools/call waits long for a connection, the store says that it is not sent (`upstreams.dispatch_records`).
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple

import httpx2

from ringback.notifier.configured_hosts import LookUp
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, TrustedAuthorities
from ringback.protocol.keepalive import keepalive_options
from ringback.upstreams.dispatch_records import DISPATCH_RECORD, DispatchRecord, recording_slow_wait
from ringback.upstreams.transports.http_connection import ResponseHead, UpstreamHttpConnection

IDLE_CONNECTIONS_MAX: Final = 64
IDLE_SECONDS: Final = 1.0
"""Shorter than the keep-alive of servers (gunicorn 2 s, uvicorn and Node 5 s). If the server closes a connection at the
moment of its reuse, the call looks as if it may have run."""
_HEADER_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
ADDRESSES_TRIED_MAX: Final = 8
"""The number of addresses tried for one host."""
ADDRESS_TIMEOUT_FRACTION: Final = 0.5
"""The part of the remaining time for each address but the last."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class _Origin(NamedTuple):
    scheme: str
    host: str
    port: int


def ssl_context(url: str, authorities: TrustedAuthorities = USUAL_AUTHORITIES) -> ssl.SSLContext:
    """The usual certificates and `authorities` for https. Loading them takes 20 ms, so http gets a context without them."""
    if not url.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return authorities.add_to(httpx2.create_ssl_context())


class PooledHttpTransport(httpx2.AsyncBaseTransport):
    """Raises `httpx2.ConnectError` or `ConnectTimeout` if nothing was sent, else other `httpx2.TransportError`s."""

    def __init__(self, certificates: ssl.SSLContext, *, look_up: LookUp) -> None:
        self._ssl_context = certificates
        self._look_up = look_up
        self._open: set[UpstreamHttpConnection] = set()
        self._idle: dict[_Origin, list[UpstreamHttpConnection]] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        message = _encode_head(request) + await request.aread()
        timeout: dict[str, float | None] = request.extensions.get("timeout", {})
        origin = _parse_origin(request.url)
        record: DispatchRecord | None = request.extensions.get(DISPATCH_RECORD)
        connection = self._pop_idle(origin)
        try:
            if connection is None:
                async with recording_slow_wait(record):  # its end may raise, after the connection is there
                    connection = await self._connect(origin, timeout.get("connect"))
            if record is not None:
                await record.record_dispatch()
            head = await connection.send_request(
                message, write_seconds=timeout.get("write"), read_seconds=timeout.get("read")
            )
            body = _ResponseBody(self, origin, connection, read_seconds=timeout.get("read"))
            return _make_response(head, body)
        except BaseException:
            if connection is not None:
                connection.close()
                self._open.discard(connection)
            raise

    async def aclose(self) -> None:
        self._closed = True
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._idle.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def release_connection(self, origin: _Origin, connection: UpstreamHttpConnection) -> None:
        """Keep the connection after a complete exchange; close it after an abandoned one."""
        idle = self._idle.setdefault(origin, [])
        if connection not in self._open or not connection.is_reusable or len(idle) >= IDLE_CONNECTIONS_MAX:
            connection.close()
            self._open.discard(connection)
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        idle.append(connection)
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(IDLE_SECONDS, self._close_expired)

    def _pop_idle(self, origin: _Origin) -> UpstreamHttpConnection | None:
        fresh_after = asyncio.get_running_loop().time() - IDLE_SECONDS
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.is_reusable and connection.idle_since > fresh_after and connection.has_no_unread_data():
                return connection
            connection.close()
            self._open.discard(connection)
        return None

    async def _connect(self, origin: _Origin, connect_seconds: float | None) -> UpstreamHttpConnection:
        try:
            async with asyncio.timeout(connect_seconds) as deadline:
                transport, connection = await self._dial_addresses(origin, deadline.when())
        except TimeoutError:
            raise httpx2.ConnectTimeout("no connection in time") from None
        except (OSError, UnicodeError) as error:  # a name that cannot be encoded cannot be resolved
            raise httpx2.ConnectError(str(error)) from error
        if self._closed:
            connection.close()
            raise httpx2.ConnectError("the transport was closed meanwhile")
        _enable_keepalive(transport.get_extra_info("socket"))
        self._open.add(connection)
        return connection

    async def _dial_addresses(
        self, origin: _Origin, until: float | None
    ) -> tuple[asyncio.Transport, UpstreamHttpConnection]:
        """Try the addresses in order, each with a part of the time, so that a silent one leaves time for the next."""
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if origin.scheme == "https":
            tls = {"ssl": self._ssl_context, "server_hostname": origin.host}
        found = await self._look_up(origin.host)
        *others, last = [str(address) for address in found[:ADDRESSES_TRIED_MAX]]
        for address in others:
            timeout_seconds = None if until is None else (until - loop.time()) * ADDRESS_TIMEOUT_FRACTION
            with suppress(OSError):  # includes TimeoutError and ssl.SSLError
                async with asyncio.timeout(timeout_seconds):
                    return await loop.create_connection(UpstreamHttpConnection, address, origin.port, **tls)
        return await loop.create_connection(UpstreamHttpConnection, last, origin.port, **tls)

    def _close_expired(self) -> None:
        loop = asyncio.get_running_loop()
        for origin, idle in list(self._idle.items()):
            while idle and idle[0].idle_since <= loop.time() - IDLE_SECONDS:
                connection = idle.pop(0)
                connection.close()
                self._open.discard(connection)
            if not idle:
                del self._idle[origin]
        self._sweep_timer = loop.call_later(IDLE_SECONDS, self._close_expired) if self._idle else None


class _ResponseBody(httpx2.AsyncByteStream):
    """The body of a response. Closing it returns the connection, which is kept only if the body was read completely."""

    def __init__(
        self,
        transport: PooledHttpTransport,
        origin: _Origin,
        connection: UpstreamHttpConnection,
        *,
        read_seconds: float | None,
    ) -> None:
        self._transport = transport
        self._origin = origin
        self._connection: UpstreamHttpConnection | None = connection
        self._read_seconds = read_seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._connection is not None and (
            piece := await self._connection.receive_chunk(read_seconds=self._read_seconds)
        ):
            yield piece

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.release_connection(self._origin, connection)


def _parse_origin(url: httpx2.URL) -> _Origin:
    if url.scheme not in _DEFAULT_PORTS:
        raise httpx2.UnsupportedProtocol(f"a URL of MCP begins with http:// or https://, not {url.scheme}://")
    # Not `host`, the decoded name: a look-up would encode it by other rules and might resolve another host.
    return _Origin(url.scheme, url.raw_host.decode("ascii"), url.port or _DEFAULT_PORTS[url.scheme])


def _encode_head(request: httpx2.Request) -> bytes:
    """Encode request line and headers. httpx2 has added Host and Content-Length and encoded the path, but checks no headers."""
    if "transfer-encoding" in request.headers:
        raise httpx2.LocalProtocolError("the body of a request is sent whole, with its length")
    headers = request.headers.raw
    block = b"".join([b"%b: %b\r\n" % header for header in headers])
    line_ends = len(headers)
    if (
        not all(_is_header_name(name) for name, _ in headers)
        or not block.count(b"\n") == block.count(b"\r") == line_ends
        or b"\0" in block
    ):
        raise httpx2.LocalProtocolError("a header of the request has a character that HTTP does not allow")
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (request.method.encode("ascii"), request.url.raw_path, block)


@lru_cache(maxsize=1024)
def _is_header_name(name: bytes) -> bool:
    return _HEADER_NAME.fullmatch(name) is not None


def _make_response(head: ResponseHead, body: httpx2.AsyncByteStream) -> httpx2.Response:
    response = httpx2.Response(head.status_code, headers=head.headers, stream=body)
    set_ascii_encoding(response.headers, head.headers)
    return response


def set_ascii_encoding(headers: httpx2.Headers, raw: Iterable[tuple[bytes, bytes]]) -> None:
    """Set the encoding of headers that are ASCII, as nearly all are: httpx2 finds it out by decoding every header."""
    if b"".join([part for header in raw for part in header]).isascii():
        headers.encoding = "ascii"


def _enable_keepalive(connected: socket.socket | None) -> None:
    if connected is not None:
        with suppress(OSError):  # the connection is already lost: the request will fail
            for level, name, value in keepalive_options():
                connected.setsockopt(level, name, value)
