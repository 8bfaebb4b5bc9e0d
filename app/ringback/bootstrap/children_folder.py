"""The folder in which a process records its upstreams' child processes (`upstreams.transports.child_records`).

SQLite       beside the database, which one process serves at a time
PostgreSQL   any number of nodes may run on a machine. Each holds the lock of a folder of its own below the user's state folder:
             the first that no living process holds. A node that starts ends what killed nodes have left in the others, too:
             fewer may start again than were killed
"""

import fcntl
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ringback.storage.urls import find_sqlite_path
from ringback.upstreams.transports.child_records import ChildRecords

log = logging.getLogger(__name__)

NODE_FOLDERS_MAX: Final = 64
"""Nodes of one user on one machine. A further one runs without records: a kill of it may leave processes behind."""


@contextmanager
def claim_children_folder(database_url: str) -> Generator[Path | None]:
    """The folder, held until the end of the context; None if this process can have none."""
    database = find_sqlite_path(database_url)
    if database is not None:
        yield database.with_name(f"{database.name}-children")
        return
    claimed = _claim_node_folder()
    if claimed is not None:
        _end_leftovers_beside(claimed[0])
    try:
        yield None if claimed is None else claimed[0]
    finally:
        if claimed is not None:
            os.close(claimed[1])


def _claim_node_folder() -> tuple[Path, int] | None:
    """The folder and the descriptor that holds its lock. The lock ends with the process, even after a kill."""
    try:
        parent = _state_folder()
        for number in range(NODE_FOLDERS_MAX):
            folder = parent / str(number)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            if _try_lock(descriptor):
                return folder, descriptor
            os.close(descriptor)
    except (OSError, RuntimeError) as error:  # a read-only file system, or a user without a home folder
        log.info("upstream.children_not_recorded", extra={"reason": str(error)})
    return None


def _end_leftovers_beside(own: Path) -> None:
    for folder in own.parent.iterdir():
        if folder != own and any(folder.glob("*.json")):
            with suppress(OSError):  # a folder that another user has made
                _end_leftovers(folder)


def _end_leftovers(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _try_lock(descriptor):
            ChildRecords(folder).kill_leftovers()
    finally:
        os.close(descriptor)


def _state_folder() -> Path:
    """Where the XDG Base Directory Specification puts state that a restart needs. It ignores a relative path."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path("~/.local/state").expanduser()) / "ringback" / "nodes"


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
