"""Opens configuration files, which the service reads again on the event loop: an open waits for no other process."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular_file(path: Path) -> BinaryIO:
    """Open the file to read it. Raises `OSError`, also for a folder, a named pipe or a device."""
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return file


def _open_at_once(path: str, flags: int) -> int:
    """A named pipe without a writer opens at once, too: otherwise the open would last until there is one."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
