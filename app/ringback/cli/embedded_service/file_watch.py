"""Notices that a file of the service's configuration has changed, so that it is read again without a command."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ringback.domain.clock import Clock

LOOK_SECONDS: Final = 2.0
"""Between two looks. A user who saves the file and goes back to the client finds the new servers."""

Signature = tuple[int, int, int] | None
"""The time of the last change in nanoseconds, the size in bytes and the inode; None without a file."""


class FileWatch:
    """The files as they were when this was made, or when `wait_for_change` returned last."""

    def __init__(self, files: Sequence[Path], *, clock: Clock) -> None:
        self._files = tuple(files)
        self._clock = clock
        self._known = self._look()

    async def wait_for_change(self) -> None:
        """Wait until a file has changed and two looks have found it the same: a program may still be writing it."""
        last = self._known
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            now = await asyncio.to_thread(self._look)
            if now == last != self._known:
                self._known = now
                return
            last = now

    def _look(self) -> tuple[Signature, ...]:
        return tuple(map(_read_signature, self._files))


def _read_signature(path: Path) -> Signature:
    """Symbolic links are followed. A file that cannot be looked at counts as missing; reading it says why."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
