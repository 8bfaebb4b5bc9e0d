"""Returns freed memory of large results to the operating system.

glibc's malloc maps a large block by itself, and unmaps it when it is freed. But each time it frees such a block, up to 32 MiB,
it takes that size as the one from which it maps blocks. From then on results of 15 MiB are in its heaps, between small objects,
and the process keeps what they took: 160 MiB after the hostile clients of a soak were gone, 30 with a fixed size (measured).
"""

import ctypes
from typing import Final

MAPPED_BLOCK_BYTES: Final = 1024 * 1024
"""Larger blocks are always mapped. Smaller ones are frequent, and mapping costs a system call and the zeroing of pages."""
_M_MMAP_THRESHOLD: Final = -3
"""Of `malloc.h`."""


def map_large_blocks() -> bool:
    """Fix the size from which malloc maps blocks. False where the C library does not have `mallopt`, as musl and macOS."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BLOCK_BYTES))
