"""Ports for services that are started, killed and started again on the same port, by tests and by the tools in this folder."""

import fcntl
import functools
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PORTS: Final = range(10_000, 32_000)
"""Below those that Linux gives to outgoing connections (from 32768 on), which might take one between a kill and a restart."""
BLOCK_SIZE: Final = 100
"""More than one needs at once: chaos with three nodes takes seven."""
LOCKS: Final = Path(tempfile.gettempdir()) / f"ringback-ports-{os.getuid()}"


def free_port() -> int:
    """A port of the loopback address on which no process listens, and which no other process that asks here gets meanwhile."""
    candidates = _own_ports(os.getpid())
    return next(port for port in itertools.islice(candidates, BLOCK_SIZE) if _is_free(port))


@functools.cache
def _own_ports(process_id: int) -> Iterator[int]:
    """The ports of this process, also if it is a fork: a block that it locks until it ends, again and again.

    A service that was killed does not listen, so only the lock keeps other processes from its port until it starts again.
    """
    LOCKS.mkdir(exist_ok=True)
    numbers = range(len(PORTS) // BLOCK_SIZE)
    block = next(number for number in numbers if _lock(LOCKS / str((process_id + number) % len(numbers))))
    first = (process_id + block) % len(numbers) * BLOCK_SIZE
    return itertools.cycle(PORTS[first : first + BLOCK_SIZE])


def _lock(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
