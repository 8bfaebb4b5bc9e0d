"""Freed memory returns to the operating system: large blocks, because they are mapped by themselves, and pages of the heaps."""

import platform
import subprocess
import sys
from typing import Final

from tests.support.limits import WAIT_SECONDS

PROGRAM: Final = """
import ctypes

from ringback.freed_memory import MAPPED_BLOCK_BYTES, map_large_blocks

FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"

class MallocInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS.split()]

def count_mapped_bytes():
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = MallocInfo
    return mallinfo2().hblkhd

assert map_large_blocks()
first = bytes(16 * MAPPED_BLOCK_BYTES)
del first  # from here on, glibc would take blocks of this size from its heap
before = count_mapped_bytes()
second = bytes(16 * MAPPED_BLOCK_BYTES)
assert count_mapped_bytes() - before >= len(second)
del second
assert count_mapped_bytes() == before
"""
"""A process of its own: one whose heap has a free block of this size uses it, whatever the size from which malloc maps."""


RETURNING_PROGRAM: Final = """
import threading, time
from pathlib import Path

from ringback.freed_memory import returning_free_pages

PAGE, SIZE = 4096, 64 * 1024

def count_resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

blocks = [b"x" * SIZE for _ in range(2000)]
kept = blocks[::2]  # between the freed ones, so that no end of the heap is free
del blocks
full = count_resident_bytes()
with returning_free_pages(0.01):
    while count_resident_bytes() > full - 800 * SIZE:
        time.sleep(0.01)
assert threading.active_count() <= 2 and len(kept) == 1000
"""
"""Ends when the freed half of the heap has left the process."""


def test_free_pages_between_blocks_in_use_leave_the_process() -> None:
    program = RETURNING_PROGRAM
    if platform.libc_ver()[0] != "glibc":
        program = "from ringback import freed_memory as m\nwith m.returning_free_pages(): pass"

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=WAIT_SECONDS
    )

    assert ended.returncode == 0, ended.stderr


def test_a_large_block_is_mapped_after_another_one_was_freed() -> None:
    program = (
        PROGRAM if platform.libc_ver()[0] == "glibc" else "from ringback import freed_memory as m; m.map_large_blocks()"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
