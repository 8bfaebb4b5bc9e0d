"""Ports for services that a test starts, kills and starts again on the same port."""

import itertools
import os
import socket
from typing import Final

PORTS: Final = range(10_000, 32_000)
"""Below those that Linux gives to outgoing connections (from 32768 on), which might take one between a kill and a restart."""

_candidates = itertools.count(os.getpid() * 97)


def free_port() -> int:
    """A port of the loopback address on which no process listens. Each process of the tests begins at another one."""
    return next(port for candidate in _candidates if _is_free(port := PORTS[candidate % len(PORTS)]))


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
