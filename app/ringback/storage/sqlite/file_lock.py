"""One serving process for one database file, and what that process last committed.

The lock is the operating system's (flock), so it goes with the process however that ends. The file is left in place, because
removing it would let two processes lock two files of the same name. It holds two lines of fixed width:

    1234                     the process id, only to be able to name the holder
    00000000000000004711     how many group commits the holder has made, written after each COMMIT

The count is not synced to the disk. It survives the death of the process in the page cache; after a power failure it may be
behind the database, never ahead of it, because a COMMIT is durable before its count is written here.
"""

import fcntl
import os
import re
from pathlib import Path
from typing import Final

from ringback.domain.errors import StoreUnavailable

LOCK_FILE_SUFFIX: Final = ".lock"
_DIGITS: Final = 20
"""Of a line; 2**64 has as many."""
_COUNT_OFFSET: Final = _DIGITS + 1
_COUNT_PATTERN: Final = re.compile(rb"[0-9]{20}\n")


class FileLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def path(self) -> Path:
        return self._path

    def acquire(self) -> None:
        """Take the lock, or raise `StoreUnavailable` and name its holder. The commit count stays as it is."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unwritable_error(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(descriptor, f"{os.getpid():<{_DIGITS}}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(descriptor, _DIGITS, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreUnavailable(
                f"Another service (process {holder}) already serves this database. Stop it, or use another database file."
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise self._unwritable_error(error) from error
        self._descriptor = descriptor

    def read_commit_count(self) -> int | None:
        """The count that the last holder wrote; None when there is none, as in files of earlier versions."""
        if self._descriptor is None:
            return None
        line = os.pread(self._descriptor, _DIGITS + 1, _COUNT_OFFSET)
        return int(line) if _COUNT_PATTERN.fullmatch(line) else None

    def peek_commit_count(self) -> int | None:
        """The same, read beside whoever holds the lock."""
        try:
            with self._path.open("rb") as file:
                line = file.read(_COUNT_OFFSET + _DIGITS + 1)[_COUNT_OFFSET:]
        except OSError:
            return None
        return int(line) if _COUNT_PATTERN.fullmatch(line) else None

    def write_commit_count(self, number: int) -> None:
        if self._descriptor is not None:
            os.pwrite(self._descriptor, f"{number:0{_DIGITS}}\n".encode(), _COUNT_OFFSET)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _unwritable_error(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(
            f"The lock file '{self._path}' cannot be written: {error.strerror}. Free it, or its disk."
        )
