"""Ports for services that a test starts, kills and starts again on the same port."""

import functools
import itertools
import os
import socket
from collections.abc import Iterator
from typing import Final

PORTS: Final = range(10_000, 32_000)
"""Below those that Linux gives to outgoing connections (from 32768 on), which might take one between a kill and a restart."""


@functools.cache
def _candidates(process_id: int) -> Iterator[int]:
    """Each process of the tests begins at another port, also if it is a fork."""
    return itertools.count(process_id * 97)


def free_port() -> int:
    """A port of the loopback address on which no process listens."""
    return next(port for candidate in _candidates(os.getpid()) if _is_free(port := PORTS[candidate % len(PORTS)]))


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
