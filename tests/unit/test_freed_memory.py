"""Large blocks are mapped by themselves, so their memory returns to the operating system when they are freed."""

import ctypes
import platform

from ringback.freed_memory import MAPPED_BLOCK_BYTES, map_large_blocks

LARGE_BYTES = 16 * MAPPED_BLOCK_BYTES


class MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc. `hblkhd` are the bytes of all mapped blocks."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def count_mapped_bytes() -> int:
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = MallocInfo
    return mallinfo2().hblkhd


def test_a_large_block_is_mapped_after_another_one_was_freed() -> None:
    has_glibc = platform.libc_ver()[0] == "glibc"
    assert map_large_blocks() == has_glibc
    if not has_glibc:
        return

    first = bytes(LARGE_BYTES)
    del first  # from here on, glibc would take blocks of this size from its heap
    before = count_mapped_bytes()
    second = bytes(LARGE_BYTES)

    assert count_mapped_bytes() - before >= len(second)
    del second
    assert count_mapped_bytes() == before
