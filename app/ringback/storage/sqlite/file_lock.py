"""The lock that one serving process has on a database file, and the count of its commits.

The lock is the operating system's (flock), so it ends with the process however that ends. The lock file stays in place: if it
were removed, two processes could lock two files of the same name. It has two lines of fixed width, and a third after a copy:

    1234                     the process id, to name the holder in an error
    00000000000000004711     the number of the holder's group commits, written after each COMMIT
    postgresql://host/db     where the database was moved, without the password (`use_mark`)

A forked child has a copy of the descriptor, with which the lock would outlive the process: it closes its copy at once. Workers
of a process pool, for example, go on when their server was killed, and the next server could not start.

The count is not synced to the disk. In the page cache it survives the death of the process. After a power failure it may be
behind the database, never ahead of it, because a COMMIT is durable before its count is written here.
"""

import errno
import fcntl
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final
from weakref import WeakSet

from ringback.domain.errors import StoreUnavailable

LOCK_FILE_SUFFIX: Final = ".lock"
_DIGITS: Final = 20
"""Digits of a line: as many as 2**64 has."""
_COUNT_OFFSET: Final = _DIGITS + 1
_MOVED_OFFSET: Final = 2 * _COUNT_OFFSET
_COUNT_PATTERN: Final = re.compile(rb"[0-9]{20}\n")
_REFUSALS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""Errors that last until a person gives this user the right to write."""
_LOOKS_MAX: Final = 20
LOOK_AGAIN_SECONDS: Final = 0.01
"""Between two attempts to take the lock. A command that looks whether it is held (`is_held`) has it for microseconds."""


class FileLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def path(self) -> Path:
        return self._path

    def acquire(self) -> None:
        """Take the lock, or raise `StoreUnavailable`, which names the holder. The commit count stays unchanged.

        Blocks for a fifth of a second while another process has it.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unwritable_error(error) from error
        self._leave_to_owner_of_database(descriptor)
        try:
            _lock_soon(descriptor)
            os.pwrite(descriptor, f"{os.getpid():<{_DIGITS}}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(descriptor, _DIGITS, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreUnavailable(
                f"Another service (process {holder}) already serves this database. Stop it, or name another "
                "database: RINGBACK_DATABASE_URL or --database."
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise self._unwritable_error(error) from error
        self._descriptor = descriptor
        _held_locks.add(self)

    def _leave_to_owner_of_database(self, descriptor: int) -> None:
        """If a command of root makes the file: the service runs as that user. SQLite does the same with its own files."""
        if os.geteuid() == 0:
            with suppress(OSError):  # the database does not exist yet
                owner = self._path.with_name(self._path.name.removesuffix(LOCK_FILE_SUFFIX)).stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)

    def is_held(self) -> bool:
        """Whether a process has the lock, without waiting for it or creating the file."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def read_commit_count(self) -> int | None:
        """The count that the last holder wrote; None in files of earlier versions, which have none."""
        if self._descriptor is None:
            return None
        line = os.pread(self._descriptor, _DIGITS + 1, _COUNT_OFFSET)
        return int(line) if _COUNT_PATTERN.fullmatch(line) else None

    def peek_commit_count(self) -> int | None:
        """The same, without having the lock."""
        try:
            with self._path.open("rb") as file:
                line = file.read(_COUNT_OFFSET + _DIGITS + 1)[_COUNT_OFFSET:]
        except OSError:
            return None
        return int(line) if _COUNT_PATTERN.fullmatch(line) else None

    def write_commit_count(self, number: int) -> None:
        if self._descriptor is not None:
            os.pwrite(self._descriptor, f"{number:0{_DIGITS}}\n".encode(), _COUNT_OFFSET)

    def write_moved_to(self, database: str) -> None:
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, _MOVED_OFFSET)
            os.pwrite(self._descriptor, f"{database}\n".encode(), _MOVED_OFFSET)

    def peek_moved_to(self) -> str | None:
        """Where the last copy was made, without having the lock; None if there was none."""
        try:
            with self._path.open("rb") as file:
                line = file.read()[_MOVED_OFFSET:]
        except OSError:
            return None
        return line.decode(errors="replace").strip() or None

    def release(self) -> None:
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.close_copy()

    def close_copy(self) -> None:
        """Close the descriptor. In a forked child this leaves the lock to the parent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held_locks.discard(self)

    def _unwritable_error(self, error: OSError) -> StoreUnavailable:
        is_refused = error.errno in _REFUSALS
        advice = (
            "Run this as the service's user, and let that user write there." if is_refused else "Free it, or its disk."
        )
        return StoreUnavailable(
            f"The lock file '{self._path}' cannot be written: {error.strerror}. {advice}", needs_operator=is_refused
        )


def _lock_soon(descriptor: int) -> None:
    """Raises `BlockingIOError` if another process keeps the lock."""
    for _ in range(_LOOKS_MAX):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_AGAIN_SECONDS)
    return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_held_locks: Final = WeakSet[FileLock]()


def _leave_to_parent() -> None:
    for lock in list(_held_locks):
        lock.close_copy()


os.register_at_fork(after_in_child=_leave_to_parent)
