"""Large blocks are mapped by themselves, so their memory returns to the operating system when they are freed."""

import platform
import subprocess
import sys
from typing import Final

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


def test_a_large_block_is_mapped_after_another_one_was_freed() -> None:
    program = (
        PROGRAM if platform.libc_ver()[0] == "glibc" else "from ringback import freed_memory as m; m.map_large_blocks()"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert ended.returncode == 0, ended.stderr
