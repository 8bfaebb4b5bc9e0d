"""Finds damage in the write-ahead log before SQLite opens it.

SQLite reads the log up to the first frame whose checksum is wrong, and ignores the rest without an error: there the last write
was interrupted. When the last connection closes, it removes the log. So one wrong bit in the middle would lose every later
commit for good.

    header │ frame frame COMMIT │ frame COMMIT │ fraXe COMMIT │ frame COMMIT │ …
                                                  └── SQLite ends here; two commits follow: damage

Each commit is synced before the next is written. So after an interrupted write one commit at most follows the wrong frame: the
one that was being written, which was never acknowledged. Frames of an earlier log that this one overwrites have other salts.
(The file format is in SQLite's "Database File Format", §4.)
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGICS: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""By the magic number, the byte order of the words that checksums are made of."""
_VERSION: Final = 3_007_000
_PAGE_SIZE_OFFSET: Final = 16
"""In the database file. The log's own header may be what is damaged."""
_WORD: Final = 0xFFFFFFFF
_UNFINISHED_COMMITS_MAX: Final = 1

_Checksum = tuple[int, int]


class _Frame(NamedTuple):
    checked: bytes
    """What its checksum is made of: the first two words of its header, and the page."""
    is_commit: bool
    salts: tuple[int, int]
    checksum: _Checksum


def count_unreadable_commits(database: Path) -> int:
    """Commits behind the first damaged frame of the log; 0 for a log that is whole or was interrupted, and without one.

    Takes two seconds for 64 MB, which is about as large as a log grows. Do not call it while a service writes.
    """
    try:
        with database.open("rb") as file, database.with_name(f"{database.name}-wal").open("rb") as log:
            file.seek(_PAGE_SIZE_OFFSET)
            page_bytes = int.from_bytes(file.read(2), "big")
            commits = _count_commits(log, page_bytes=65_536 if page_bytes == 1 else page_bytes)
    except OSError:
        return 0  # opening it says why
    return commits if commits > _UNFINISHED_COMMITS_MAX else 0


def _count_commits(log: BinaryIO, *, page_bytes: int) -> int:
    header = log.read(_HEADER.size)
    if len(header) < _HEADER.size or not page_bytes:
        return 0
    magic, version, _, _, *salts, first, second = _HEADER.unpack(header)
    order = _MAGICS.get(magic, "<")
    checksum = _add_to_checksum((0, 0), header[:24], order)
    is_readable = magic in _MAGICS and version == _VERSION and checksum == (first, second)
    expected_salts = tuple(salts) if is_readable else None
    commits = 0
    for frame in _read_frames(log, page_bytes):
        expected_salts = expected_salts or frame.salts
        if is_readable:
            checksum = _add_to_checksum(checksum, frame.checked, order)
            is_readable = frame.salts == expected_salts and frame.checksum == checksum
        if not is_readable:
            commits += frame.is_commit and frame.salts == expected_salts
    return commits


def _read_frames(log: BinaryIO, page_bytes: int) -> Iterator[_Frame]:
    while len(data := log.read(_FRAME.size + page_bytes)) == _FRAME.size + page_bytes:
        _, pages_after_commit, salt_1, salt_2, first, second = _FRAME.unpack_from(data)
        yield _Frame(data[:8] + data[_FRAME.size :], pages_after_commit > 0, (salt_1, salt_2), (first, second))


def _add_to_checksum(checksum: _Checksum, data: bytes, order: str) -> _Checksum:
    first, second = checksum
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & _WORD
        second = (second + odd + first) & _WORD
    return first, second
