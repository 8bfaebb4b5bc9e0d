"""New connections, with the guard at the one place that every socket passes.

A name is judged by all of its addresses; then the very address that is connected to is judged once more, right where its
socket is made, and is what the socket gets: between the two nobody resolves anything. TLS is spoken with the host that was
judged, so the certificate must be for that name, or for that address where the host is one.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ringback.domain.principal import Principal
from ringback.notifier.http.addresses import Address
from ringback.notifier.http.connection import ReceiverConnection
from ringback.notifier.http.guard import Target, TargetGuard
from ringback.notifier.http.sender import CONNECT_SECONDS

ADDRESSES_TRIED_MAX: Final = 8
"""Of one name that are tried, lest a name with hundreds make us knock at hundreds of doors for one callback."""
ADDRESS_TIMEOUT_FRACTION: Final = 0.5
"""Of the time that is left, for each address but the last: 1.5 s for the first, in which one lost SYN is survived."""

OpenSocket = Callable[[Address], socket.socket]


def open_socket(address: Address) -> socket.socket:
    """The protocol is named, because asyncio switches Nagle's algorithm off only where it is."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IP versions
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)


def make_tls_context() -> ssl.SSLContext:
    """The machine's trust store, names verified. One for the process: making it costs milliseconds."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Dialer:
    def __init__(self, guard: TargetGuard, *, ssl_context: ssl.SSLContext, open_socket: OpenSocket) -> None:
        self._guard = guard
        self._ssl_context = ssl_context
        self._open_socket = open_socket

    async def connect(
        self,
        target: Target,
        create_connection: Callable[[str, socket.socket], ReceiverConnection],
        *,
        principal: Principal,
        until: float,
    ) -> ReceiverConnection:
        """A connection to `target`, made by `new`; raises OSError, of which TimeoutError and ssl.SSLError are kinds.

        The look-up counts for `principal`. One that takes until `until` is a failed look-up, not a receiver that is slow.
        """
        addresses = await self._guard.resolve_host(target.host, principal, until=until)
        async with asyncio.timeout_at(until):
            async with asyncio.timeout(CONNECT_SECONDS):
                connected = await self._connect_any_address(addresses[:ADDRESSES_TRIED_MAX], target.port)
                return await self._attach_protocol(target, connected, create_connection)

    async def _connect_any_address(self, addresses: Sequence[Address], port: int) -> socket.socket:
        """One after the other, so that a silent address leaves some time to the next."""
        loop = asyncio.get_running_loop()
        until = loop.time() + CONNECT_SECONDS
        for address in addresses[:-1]:
            with suppress(OSError):
                async with asyncio.timeout((until - loop.time()) * ADDRESS_TIMEOUT_FRACTION):
                    return await self._connect_address(address, port)
        return await self._connect_address(addresses[-1], port)

    async def _connect_address(self, address: Address, port: int) -> socket.socket:
        self._guard.require_allowed_address(address)
        opened = self._open_socket(address)
        try:
            opened.setblocking(False)  # noqa: FBT003 - its only argument
            await _connect_socket(opened, address, port)
        except BaseException:
            opened.close()
            raise
        return opened

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

    async def _start_tls(
        self, target: Target, raw: asyncio.Transport, pre_tls: "_PreTlsProtocol", connection: ReceiverConnection
    ) -> None:
        """On top of a transport that we know, because only that one tells what is still to be written."""
        try:
            pre_tls.raise_error()
            encrypted = await asyncio.get_running_loop().start_tls(
                raw, connection, self._ssl_context, server_hostname=target.host
            )
        except BaseException:
            connection.abort()
            raise
        if encrypted is None or raw.is_closing():
            connection.abort()
            raise ConnectionResetError("the receiver closed the connection after the handshake")
        connection.switch_to_tls(encrypted)


class _PreTlsProtocol(asyncio.Protocol):
    """Keeps the place of TLS for a turn of the event loop: what comes in it is no TLS, and must not be taken for an answer."""

    def __init__(self) -> None:
        self._error: OSError | None = None

    def raise_error(self) -> None:
        """Raise what happened to the connection meanwhile."""
        if self._error is not None:
            raise self._error

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - asyncio's name
        self._error = self._error or ssl.SSLError("the receiver spoke before the handshake")

    def eof_received(self) -> None:
        self._error = self._error or ConnectionResetError("the receiver closed the connection before the handshake")

    def connection_lost(self, exc: Exception | None) -> None:
        self._error = self._error or ConnectionResetError(str(exc))


async def _connect_socket(connecting: socket.socket, address: Address, port: int) -> None:
    """Not the event loop's `sock_connect`: uvloop's puts even a literal address through getaddrinfo.

    It does so in a pool of threads that the process shares, and of which two look-ups that hang anywhere take the half that
    look-ups may have. Python's own `connect` reads literal addresses by itself.
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
