"""Ports for servers that start later, or stop and start again.

The kernel gives a port of its own range to each outgoing connection and to each server on port 0. A test that closes such a
port and opens it again may find it taken. `free_port` picks a port below the range, where the kernel gives none by itself.
"""

import atexit
import os
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

FIRST_PORT: Final = 10_000
"""Above the ports of the databases and proxies that a developer's machine may run."""
_KERNELS_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_KERNELS_FIRST_PORT: Final = 32_768
"""Linux's default; other systems begin higher."""
_RESERVED: Final = ExitStack()
"""Keeps other test processes from the ports that this one got, until it ends."""
atexit.register(_RESERVED.close)


def free_port() -> int:
    """A port that no server uses, that the kernel gives to nobody, and that no other test process gets."""
    end = _read_end_of_range()
    first = FIRST_PORT + int.from_bytes(os.urandom(4), "big") % (end - FIRST_PORT)
    for port in (*range(first, end), *range(FIRST_PORT, first)):
        with suppress(OSError):
            # The UDP port of the same number is the reservation: no test's server uses it.
            reservation = _bind(socket.SOCK_DGRAM, port)
            try:
                _bind(socket.SOCK_STREAM, port).close()
            except OSError:
                reservation.close()
                raise
            _RESERVED.enter_context(reservation)
            return port
    raise AssertionError(f"every port from {FIRST_PORT} to {end - 1} is in use")


def _bind(kind: socket.SocketKind, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, kind)
    try:
        if kind is socket.SOCK_STREAM:
            bound.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # else a port of a closed connection counts as used
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        raise
    return bound


def _read_end_of_range() -> int:
    with suppress(OSError, ValueError, IndexError):
        return max(FIRST_PORT + 1, int(_KERNELS_RANGE.read_text(encoding="ascii").split()[0]))
    return _KERNELS_FIRST_PORT
