"""New connections, with the guard at the one place that every socket passes.

A name is judged by all of its addresses; then the very address that is connected to is judged once more, right where its
socket is made, and is what the socket gets: between the two nobody resolves anything. TLS is spoken with the host that was
judged, so the certificate must be for that name, or for that address where the host is one.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ringback.notifier.addresses import Address
from ringback.notifier.http1_connection import Connection
from ringback.notifier.sender import CONNECT_SECONDS
from ringback.notifier.target_guard import Target, TargetGuard

ADDRESSES_MAX: Final = 8
"""Of one name that are tried, lest a name with hundreds make us knock at hundreds of doors for one callback."""
SHARE: Final = 0.5
"""Of the time that is left, for each address but the last: 1.5 s for the first, in which one lost SYN is survived."""

OpenSocket = Callable[[Address], socket.socket]


def open_socket(address: Address) -> socket.socket:
    """The protocol is named, because asyncio switches Nagle's algorithm off only where it is."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IP versions
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)


def tls_context() -> ssl.SSLContext:
    """The machine's trust store, names verified. One for the process: making it costs milliseconds."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Dialer:
    def __init__(self, guard: TargetGuard, *, ssl_context: ssl.SSLContext, open_socket: OpenSocket) -> None:
        self._guard = guard
        self._ssl_context = ssl_context
        self._open_socket = open_socket

    async def dial(
        self, target: Target, new: Callable[[str, socket.socket], Connection], *, until: float
    ) -> Connection:
        """A connection to `target`, made by `new`; raises OSError, of which TimeoutError and ssl.SSLError are kinds."""
        async with asyncio.timeout_at(until):
            addresses = await self._guard.resolve(target.host)
            async with asyncio.timeout(CONNECT_SECONDS):
                connected = await self._reach_any(addresses[:ADDRESSES_MAX], target.port)
                return await self._speak(target, connected, new)

    async def _reach_any(self, addresses: Sequence[Address], port: int) -> socket.socket:
        """One after the other, so that a silent address leaves some time to the next."""
        loop = asyncio.get_running_loop()
        until = loop.time() + CONNECT_SECONDS
        for address in addresses[:-1]:
            with suppress(OSError):
                async with asyncio.timeout((until - loop.time()) * SHARE):
                    return await self._reach(address, port)
        return await self._reach(addresses[-1], port)

    async def _reach(self, address: Address, port: int) -> socket.socket:
        self._guard.admit(address)
        opened = self._open_socket(address)
        try:
            opened.setblocking(False)  # noqa: FBT003 - its only argument
            await asyncio.get_running_loop().sock_connect(opened, (str(address), port))
        except BaseException:
            opened.close()
            raise
        return opened

    async def _speak(
        self, target: Target, connected: socket.socket, new: Callable[[str, socket.socket], Connection]
    ) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: new(target.origin, connected),
            sock=connected,
            ssl=self._ssl_context if target.scheme == "https" else None,
            server_hostname=target.host if target.scheme == "https" else None,
        )
        return connection
