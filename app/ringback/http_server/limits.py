"""The limits on what a peer sends and holds, and for how long."""

from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Final, assert_never

from ringback.domain.client_address import Network, identify_peer, is_trusted, parse_address

FILES_RESERVED: Final = 4096
"""Open files for everything except clients: 2,048 callbacks in flight, 2,048 pooled connections to receivers, upstreams."""
CONNECTIONS_MIN: Final = 16
"""With fewer, the service could not answer health checks during an attack."""


class ConnectionPhase(IntEnum):
    """What a connection waits for from its peer. While a request is served, the connection is in no phase.

    A number, because each request looks phases up in dictionaries, and the hash of any other enum is a function in Python.
    """

    HEADERS = auto()
    BODY = auto()
    REST_OF_BODY = auto()
    """The response was sent before the whole body arrived."""
    NEXT_REQUEST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Bytes are counted as they arrive from the socket, before parsing."""

    url_bytes_max: int = 16 * 1024
    """Ringback's longest cursor, filter and search take 2 KiB; browsers and proxies allow 8 to 64 KiB."""
    headers_bytes_max: int = 64 * 1024
    """An access token has up to 16 KiB; common servers allow 8 to 64 KiB of headers."""
    headers_max: int = 128
    """Apache allows 100; browsers behind two proxies send 40."""
    pipelined_max: int = 16
    """Requests that wait behind the active one on a connection. Hardly any client pipelines."""
    headers_seconds: float = 15.0
    """From the accepted connection, or from the first byte of a later request, to the end of the headers."""
    body_seconds: float = 60.0
    """For the next `progress_bytes` of a body, while the application waits for them."""
    rest_of_body_seconds: float = 10.0
    """For the rest of a body after the response, so that a client that writes everything before it reads gets the response."""
    keep_alive_seconds: float = 75.0
    """Between two requests. Common proxies and load balancers close after 60 s, and their side should close first."""
    write_seconds: float = 60.0
    """For the peer to read the next `progress_bytes` of a response."""
    progress_bytes: int = 1024
    """The progress that restarts the time of a body or a response. One byte a minute would hold a connection for years."""
    connections_max: int = 4096
    peer_connections_max: int = 256
    trusted_proxies: tuple[Network, ...] = ()
    """Peers with many clients behind them. `peer_connections_max` applies to the requests of each client instead."""

    def phase_seconds(self, phase: ConnectionPhase) -> float:
        match phase:
            case ConnectionPhase.HEADERS:
                return self.headers_seconds
            case ConnectionPhase.BODY:
                return self.body_seconds
            case ConnectionPhase.REST_OF_BODY:
                return self.rest_of_body_seconds
            case ConnectionPhase.NEXT_REQUEST:
                return self.keep_alive_seconds
            case _:
                assert_never(phase)

    def peer_key(self, host: str) -> str | None:
        """The key that counts this address's connections; None for a trusted proxy."""
        address = parse_address(host)
        if address is None:
            return host
        return None if is_trusted(address, self.trusted_proxies) else identify_peer(address)


def count_wanted_files(connections_max: int) -> int:
    """The open files with which so many clients and everything else have what they need."""
    return FILES_RESERVED + connections_max


def compute_connections_max(open_files_max: int) -> int:
    """The connections that clients may have when the process may open that many files (RLIMIT_NOFILE)."""
    return max(CONNECTIONS_MIN, open_files_max - min(FILES_RESERVED, open_files_max // 2))
