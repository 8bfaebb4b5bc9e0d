"""Opens connections; the guard checks every address right before its socket connects.

The guard first checks all addresses of a name. The dialer then checks the one address again that the socket connects to, and
nothing resolves the name in between. The TLS certificate must be valid for the checked host (name or address).
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from ringback.domain.client_address import Address
from ringback.domain.principal import Principal
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, TrustedAuthorities
from ringback.notifier.http.connection import ReceiverConnection
from ringback.notifier.http.failures import ConnectTimeout, TlsTimeout
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.sender import CONNECT_SECONDS
from ringback.notifier.http.target import Target

ADDRESSES_TRIED_MAX: Final = 8
"""Addresses tried for one callback: a name with hundreds of addresses must not cause hundreds of connections."""
ADDRESS_TIMEOUT_FRACTION: Final = 0.5
"""Each address but the last gets this fraction of the remaining time: the first gets 1.5 s, enough for one lost SYN."""

OpenSocket = Callable[[Address], socket.socket]


def open_socket(address: Address) -> socket.socket:
    """Names IPPROTO_TCP, because asyncio sets TCP_NODELAY only on sockets that name it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IP versions
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)


def make_tls_context(authorities: TrustedAuthorities = USUAL_AUTHORITIES) -> ssl.SSLContext:
    """Verifies names against the machine's trust store and `authorities`.

    The process shares one context, because creating it costs milliseconds.
    """
    context = authorities.add_to(ssl.create_default_context())
    context.set_alpn_protocols(["http/1.1"])
    return context


class Connector(Protocol):
    """Another way to a receiver than a socket of its own: the egress proxy."""

    async def connect(self, address: Address, port: int) -> socket.socket:
        """A socket that is connected to this address; raises OSError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """What the operator configures for all connections to receivers."""

    find_connector: Callable[[Address], Connector | None] = lambda _: None
    """The connector for a receiver's address; None for a direct connection."""
    client_contexts: Mapping[str, ssl.SSLContext] = field(default_factory=dict[str, ssl.SSLContext])
    """TLS contexts with a client certificate, by the receiver's origin."""


DIRECT_EGRESS: Final = Egress()


class Dialer:
    def __init__(
        self,
        guard: TargetGuard,
        *,
        ssl_context: ssl.SSLContext,
        open_socket: OpenSocket,
        egress: Egress = DIRECT_EGRESS,
    ) -> None:
        self._guard = guard
        self._ssl_context = ssl_context
        self._open_socket = open_socket
        self._egress = egress

    async def connect(
        self,
        target: Target,
        create_connection: Callable[[str, socket.socket], ReceiverConnection],
        *,
        principal: Principal,
        until: float,
    ) -> ReceiverConnection:
        """A connection to `target`; raises OSError (TimeoutError and ssl.SSLError are subclasses).

        The lookup counts against the limit of `principal`. A lookup that lasts until the loop time `until` is a failed
        lookup, not a timeout of the receiver.
        """
        addresses = await self._guard.resolve_host(target.host, principal, until=until)
        until = min(until, asyncio.get_running_loop().time() + CONNECT_SECONDS)
        async with _limit_stage(until, ConnectTimeout("no address of the host accepted a connection in time")):
            connected = await connect_any_address(addresses, partial(self._connect_address, port=target.port))
        async with _limit_stage(until, _make_late_error(target)):
            return await self._attach_protocol(target, connected, create_connection)

    async def _connect_address(self, address: Address, port: int) -> socket.socket:
        self._guard.require_allowed_address(address)
        connector = self._egress.find_connector(address)
        if connector is not None:
            return await connector.connect(address, port)
        return await connect_socket(self._open_socket, address, port)

    async def _attach_protocol(
        self,
        target: Target,
        connected: socket.socket,
        create_connection: Callable[[str, socket.socket], ReceiverConnection],
    ) -> ReceiverConnection:
        loop = asyncio.get_running_loop()
        if target.scheme == "https":
            raw, pre_tls = await loop.create_connection(_PreTlsProtocol, sock=connected)
            connection = create_connection(target.origin, connected)
            connection.connection_made(raw)
            await self._start_tls(target, raw, pre_tls, connection)
        else:
            _, connection = await loop.create_connection(
                lambda: create_connection(target.origin, connected), sock=connected
            )
        return connection

    def _tls_context(self, target: Target) -> ssl.SSLContext:
        return self._egress.client_contexts.get(target.origin, self._ssl_context)

    async def _start_tls(
        self, target: Target, raw: asyncio.Transport, pre_tls: "_PreTlsProtocol", connection: ReceiverConnection
    ) -> None:
        """Start TLS over the raw transport, because only the raw transport reports its unsent bytes."""
        try:
            pre_tls.raise_error()
            encrypted = await asyncio.get_running_loop().start_tls(
                raw, connection, self._tls_context(target), server_hostname=target.host
            )
        except BaseException:
            connection.abort()
            raise
        if encrypted is None or raw.is_closing():
            connection.abort()
            raise ConnectionResetError("the receiver closed the connection after the handshake")
        connection.switch_to_tls(encrypted)


async def connect_any_address(
    addresses: Sequence[Address], connect_address: Callable[[Address], Awaitable[socket.socket]]
) -> socket.socket:
    """Try the first addresses in turn; each but the last gets only a fraction of the remaining time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + CONNECT_SECONDS
    *others, last = addresses[:ADDRESSES_TRIED_MAX]
    for address in others:
        with suppress(OSError):
            async with asyncio.timeout((until - loop.time()) * ADDRESS_TIMEOUT_FRACTION):
                return await connect_address(address)
    return await connect_address(last)


async def connect_socket(open_socket: OpenSocket, address: Address, port: int) -> socket.socket:
    """A new non-blocking socket that is connected to this address."""
    opened = open_socket(address)
    try:
        opened.setblocking(False)  # noqa: FBT003 - its only argument
        await _connect_socket(opened, address, port)
    except BaseException:
        opened.close()
        raise
    return opened


def _make_late_error(target: Target) -> TimeoutError:
    """Of a connection that is accepted and not ready in time."""
    if target.scheme == "https":
        return TlsTimeout("the TLS handshake did not end in time")
    return ConnectTimeout("the connection was not ready in time")


@asynccontextmanager
async def _limit_stage(until: float, expired: TimeoutError) -> AsyncGenerator[None]:
    """Raise `expired` at the loop time `until`, and in place of a timeout that the kernel reports."""
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError as error:
        if isinstance(error, type(expired)):
            raise
        raise expired from None


class _PreTlsProtocol(asyncio.Protocol):
    """Holds the connection for one turn of the event loop until TLS starts: bytes that arrive before it are an error."""

    def __init__(self) -> None:
        self._error: OSError | None = None

    def raise_error(self) -> None:
        """Raise the error that the connection had before TLS started."""
        if self._error is not None:
            raise self._error

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - asyncio's name
        self._error = self._error or ssl.SSLError("the receiver sent bytes before the handshake")

    def eof_received(self) -> None:
        self._error = self._error or ConnectionResetError("the receiver closed the connection before the handshake")

    def connection_lost(self, exc: Exception | None) -> None:
        self._error = self._error or ConnectionResetError(str(exc))


async def _connect_socket(connecting: socket.socket, address: Address, port: int) -> None:
    """Connect without the event loop's `sock_connect`: uvloop calls getaddrinfo even for a literal address.

    getaddrinfo runs in a thread pool that the whole process shares, and two hanging lookups occupy its share for lookups.
    Python's `connect` parses literal addresses itself.
    """
    code = connecting.connect_ex((str(address), port))
    if code == errno.EINPROGRESS:
        await _wait_until_writable(connecting)
        code = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


async def _wait_until_writable(connecting: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(connecting, writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(connecting)
