"""TCP probes of long-lived connections. Without a read timeout, nothing else detects a lost host."""

import socket
from collections.abc import Sequence
from typing import Final

_PROBES: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""After a minute of silence, every 15 s. A connection whose host answers none of four is lost."""


def keepalive_options() -> Sequence[tuple[int, int, int]]:
    """For `setsockopt`; without what this platform does not have."""
    probes = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _PROBES if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *probes]
