"""What a peer may send and hold, and for how long: values only."""

import ipaddress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

FILES_RESERVED: Final = 4096
"""Open files for everything but clients: 2,048 callbacks in flight, as many connections kept to receivers, and upstreams."""
CONNECTIONS_MIN: Final = 16
"""A service with fewer could not answer its own health checks while it is attacked."""
_IPV6_SITE_BITS: Final = 64
"""One host of IPv6 has a whole network of addresses (RFC 6177), so a peer is its first 64 bits."""


class ConnectionPhase(Enum):
    """What a connection is waiting for from its peer. A connection is in one at most, and in none while a request is served."""

    HEADERS = auto()
    BODY = auto()
    REST_OF_BODY = auto()
    """The request was answered before its body had come."""
    NEXT_REQUEST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Bytes are counted as they come from the socket, before anything is made of them."""

    url_bytes_max: int = 16 * 1024
    """The longest cursor, filter and search of ours take 2 KiB; browsers and proxies stop between 8 and 64 KiB."""
    headers_bytes_max: int = 64 * 1024
    """Access tokens of 16 KiB are taken; the common servers stop between 8 and 64 KiB."""
    headers_max: int = 128
    """Apache allows 100; browsers behind two proxies send 40."""
    pipelined_max: int = 16
    """Requests that wait behind the one that is served, on one connection. Hardly a client sends a second one early."""
    headers_seconds: float = 15.0
    """From the accepted connection, or from the first byte of a later request, to the end of its headers."""
    body_seconds: float = 60.0
    """For the next `progress_bytes` of a body, while the application waits for them."""
    rest_of_body_seconds: float = 10.0
    """For the rest of a body whose request was answered already: a client that writes first and reads then gets its answer."""
    keep_alive_seconds: float = 75.0
    """Between two requests. Common proxies and load balancers let go after 60 s, which is their side to choose."""
    write_seconds: float = 60.0
    """For the next `progress_bytes` of what the peer was sent and has not read."""
    progress_bytes: int = 1024
    """What counts as progress of a body or an answer. A byte a minute would hold a connection for years."""
    connections_max: int = 4096
    peer_connections_max: int = 256
    trusted_proxies: tuple[Network, ...] = ()
    """Peers that stand for many clients each; `peer_connections_max` is not for them."""

    def phase_seconds(self, phase: ConnectionPhase) -> float:
        return {
            ConnectionPhase.HEADERS: self.headers_seconds,
            ConnectionPhase.BODY: self.body_seconds,
            ConnectionPhase.REST_OF_BODY: self.rest_of_body_seconds,
            ConnectionPhase.NEXT_REQUEST: self.keep_alive_seconds,
        }[phase]

    def peer_key(self, host: str) -> str | None:
        """The name under which this address is counted; None for one that is not."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return host
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self.trusted_proxies):
            return None
        if isinstance(address, ipaddress.IPv6Address):
            return str(ipaddress.IPv6Network((address, _IPV6_SITE_BITS), strict=False))
        return str(address)


def compute_connections_max(open_files_max: int) -> int:
    """How many connections clients may have when the process may have that many files open (RLIMIT_NOFILE)."""
    return max(CONNECTIONS_MIN, open_files_max - min(FILES_RESERVED, open_files_max // 2))
