"""Returns freed memory to the operating system.

glibc's malloc maps a large block by itself, and unmaps it when it is freed. But each time it frees such a block, up to 32 MiB,
it takes that size as the one from which it maps blocks. From then on results of 15 MiB are in its heaps, between small objects,
and the process keeps what they took: 160 MiB after the hostile clients of a soak were gone, 30 with a fixed size (measured).

Smaller blocks are in the heaps, and what is free between those in use stays: some 100 MiB in a soak, of pieces of
responses and reads of streams, and more from minute to minute. So the free pages of the heaps are returned once a minute.
"""

import ctypes
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

MAPPED_BLOCK_BYTES: Final = 1024 * 1024
"""Larger blocks are always mapped. Smaller ones are frequent, and mapping costs a system call and the zeroing of pages."""
RETURN_INTERVAL_SECONDS: Final = 60.0
_M_MMAP_THRESHOLD: Final = -3
"""Of `malloc.h`."""


def map_large_blocks() -> bool:
    """Fix the size from which malloc maps blocks. False where the C library does not have `mallopt`, as musl and macOS."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BLOCK_BYTES))


@contextmanager
def returning_free_pages(interval_seconds: float = RETURN_INTERVAL_SECONDS) -> Generator[None]:
    """Return the free pages of malloc's heaps regularly. Does nothing where the C library does not have `malloc_trim`."""
    try:
        malloc_trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_return_regularly, args=(malloc_trim, ended, interval_seconds), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def _return_regularly(malloc_trim: Callable[[int], int], ended: threading.Event, interval_seconds: float) -> None:
    """In a thread of its own, because the first time takes 20 ms; later ones take less than one (measured)."""
    while not ended.wait(interval_seconds):
        malloc_trim(0)
