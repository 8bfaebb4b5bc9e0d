"""File locks that end with their process, also after a kill."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ringback.domain.clock import Clock

FILE_MODE: Final = 0o600
"""The locks stand beside files that contain secrets."""
PROCESS_ID_LENGTH_MAX: Final = 32
"""Digits of a process id and a line end; more is something else."""
LOOK_AGAIN_SECONDS: Final = 0.05
"""A lock that is waited for in a thread could not be interrupted, so it is tried again."""


@contextmanager
def open_lock_file(path: Path) -> Generator[int]:
    """A descriptor that no child process inherits."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Whether this process now holds the lock, until it closes the descriptor."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock. For a moment this holds a shared lock, so `try_lock` may need a second try."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def write_process_id(descriptor: int) -> None:
    """The holder writes who it is, for `read_process_id`."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def read_process_id(path: Path) -> int | None:
    """The living process that holds the lock; None if there is none, or if it has not written its id."""
    if not is_locked(path):
        return None
    try:
        return int(path.read_bytes()[:PROCESS_ID_LENGTH_MAX])
    except (OSError, ValueError):
        return None


async def wait_for_lock(descriptor: int, *, clock: "Clock", timeout_seconds: float) -> bool:
    """Wait for the lock, `timeout_seconds` at most. Return whether this process holds it."""
    ends_at = clock.monotonic() + timeout_seconds
    while not (is_held := try_lock(descriptor)) and clock.monotonic() < ends_at:
        await clock.sleep(LOOK_AGAIN_SECONDS)
    return is_held
