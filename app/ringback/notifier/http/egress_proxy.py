"""The egress proxy that the operator names: every callback goes through it, by CONNECT (RFC 9110 §9.3.6).

    guard: addresses of the receiver ──▶ proxy: CONNECT 203.0.113.7:443 ──▶ TLS with the receiver, for the URL's host name

The service resolves the receiver's name itself, and the guard judges the address right before the proxy gets it, so a proxy is
no way around the guard. The proxy cannot read a callback: TLS is between the service and the receiver, and it names and
verifies the receiver's host. The operator chooses the proxy, so its own address may be private.
"""

import asyncio
import errno
import re
import socket
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from ringback.domain.client_address import Address, Network
from ringback.notifier.configured_hosts import LookUp
from ringback.notifier.http.dialer import connect_socket, open_socket
from ringback.notifier.http.failures import ConnectTimeout, ProxyFailed
from ringback.notifier.http.sender import ADDED_HEADERS

PROXY_CONNECT_SECONDS: Final = 1.5
"""To connect to the proxy: half of `sender.CONNECT_SECONDS`, so that a proxy that is down is not taken for the receiver."""
PROXY_RESPONSE_BYTES_MAX: Final = 16 * 1024
"""Of the response to CONNECT: proxies send a status and a few headers, and an error page after a refusal."""
DEFAULT_PROXY_PORT: Final = 3128
"""Squid's."""

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_UNREACHABLE_STATUS_CODES: Final = frozenset({502, 503})
"""What proxies send if the receiver does not accept a connection."""
_TIMEOUT_STATUS_CODE: Final = 504


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressProxy:
    """A parsed RINGBACK_CALLBACK_PROXY."""

    host: str
    port: int
    credentials: str | None = field(default=None, repr=False)
    """`user:password`."""
    bypassed_networks: tuple[Network, ...] = ()
    """Receivers with these addresses are reached directly."""

    def bypasses(self, address: Address) -> bool:
        return any(address in network for network in self.bypassed_networks)


def parse_proxy_url(url: str, *, bypassed_networks: Sequence[Network] = ()) -> EgressProxy:
    """Raises ValueError with a sentence that does not repeat the URL, which may contain a password."""
    advice = "write it as http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT."
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(advice) from None
    if parts.scheme != "http" or not host or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise ValueError(advice)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return EgressProxy(
        host=host,
        port=port or DEFAULT_PROXY_PORT,
        credentials=f"{user}:{password}" if user else None,
        bypassed_networks=tuple(bypassed_networks),
    )


class ProxyConnector:
    """Connects sockets to receivers through the proxy."""

    def __init__(self, proxy: EgressProxy, *, look_up: LookUp) -> None:
        self.proxy = proxy
        self._look_up = look_up

    async def connect(self, address: Address, port: int) -> socket.socket:
        """A socket to this address and port; the caller's timeout bounds it.

        Raises ProxyFailed if the proxy is unreachable or refuses, and otherwise an OSError about the receiver.
        """
        connected = await self._connect_to_proxy()
        try:
            await self._open_tunnel(connected, address, port)
        except BaseException:
            connected.close()
            raise
        return connected

    async def _connect_to_proxy(self) -> socket.socket:
        try:
            async with asyncio.timeout(PROXY_CONNECT_SECONDS):
                address, *_ = await self._look_up(self.proxy.host)
                return await connect_socket(open_socket, address, self.proxy.port)
        except OSError as problem:
            reason = (problem.strerror or "").lower() or str(problem) or "no connection in time"
            raise ProxyFailed(f"the egress proxy is unreachable: {reason}") from None

    async def _open_tunnel(self, connected: socket.socket, address: Address, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(connected, self._encode_request(address, port))
            response = await _read_response_head(connected)
        except ConnectionError as problem:
            raise ProxyFailed(f"the egress proxy closed the connection: {problem}") from None
        _require_tunnel(response)

    def _encode_request(self, address: Address, port: int) -> bytes:
        authority = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"  # noqa: PLR2004 - IP version
        lines = [f"CONNECT {authority} HTTP/1.1", f"host: {authority}", f"user-agent: {ADDED_HEADERS['user-agent']}"]
        if self.proxy.credentials is not None:
            lines.append(f"proxy-authorization: Basic {b64encode(self.proxy.credentials.encode()).decode()}")
        return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _read_response_head(connected: socket.socket) -> bytes:
    """The response up to its empty line, and what came with it."""
    loop = asyncio.get_running_loop()
    received = bytearray()
    while b"\r\n\r\n" not in received:
        chunk = await loop.sock_recv(connected, 4096)
        received += chunk
        if not chunk or len(received) > PROXY_RESPONSE_BYTES_MAX:
            raise ProxyFailed("the egress proxy sent no complete response")
    return bytes(received)


def _require_tunnel(response: bytes) -> None:
    """Raise an error unless the response opens the tunnel. Bytes after it would be read as the receiver's."""
    found = _STATUS_LINE.match(response)
    status_code = int(found[1]) if found else 0
    said = f"the egress proxy responds with status {status_code}"
    if status_code // 100 == 2:  # noqa: PLR2004 - every 2xx opens the tunnel
        if response.partition(b"\r\n\r\n")[2]:
            raise ProxyFailed("the egress proxy sent bytes after its response")
    elif status_code in _UNREACHABLE_STATUS_CODES:
        raise OSError(errno.EHOSTUNREACH, said)
    elif status_code == _TIMEOUT_STATUS_CODE:
        raise ConnectTimeout(said)
    else:
        raise ProxyFailed(said if found else "the egress proxy does not speak HTTP/1")
