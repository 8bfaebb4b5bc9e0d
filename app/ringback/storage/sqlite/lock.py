"""One serving process for one database file.

The lock is the operating system's (flock), so it goes with the process however that ends. The file keeps the process id only to
be able to name it; it is left in place, because removing it would let two processes lock two files of the same name.
"""

import fcntl
import os
from pathlib import Path
from typing import Final

from ringback.domain.errors import StoreUnavailable

_PROCESS_ID_DIGITS_MAX: Final = 20


class FileLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise `StoreUnavailable` and name its holder."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, _PROCESS_ID_DIGITS_MAX).decode(errors="replace") or "unknown"
            os.close(descriptor)
            raise StoreUnavailable(
                f"Another service (process {holder}) already serves this database. Stop it, or use another database file."
            ) from None
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
