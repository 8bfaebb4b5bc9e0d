"""The path of a listener's state file, and the lock that keeps a second listener from it."""

import hashlib
import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringback.cli.file_locks import PROCESS_ID_LENGTH_MAX, open_lock_file, try_lock, write_process_id
from ringback.cli.home_folder import find_base_folder

FOLDER_MODE: Final = 0o700
NAME_LENGTH: Final = 16
"""Hexadecimal digits of a hash in a file name: 64 bits, so that no two listeners of a person share a name."""


class StateFileUnusable(Exception):
    """The state file cannot be used. The text says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSelection:
    """The events that a listener handles. Two listeners with the same selection share one state file."""

    url: str
    names: Sequence[str]
    client_session_id: str | None = None
    correlation_id: str | None = None

    def describe(self) -> Mapping[str, object]:
        return {
            "url": self.url.rstrip("/"),
            "names": sorted(set(self.names)),
            "client_session_id": self.client_session_id,
            "correlation_id": self.correlation_id,
        }

    def serialize(self) -> str:
        return json.dumps(self.describe(), sort_keys=True)


def default_path(selection: EventSelection, *, api_key: str | None, environment: Mapping[str, str]) -> Path:
    """The state file for this selection and this API key, in the user's folder for state (XDG_STATE_HOME)."""
    folder = find_base_folder(environment, "XDG_STATE_HOME", ".local/state")
    name = f"{_short_hash(selection.serialize())}-{_short_hash(api_key or '')}.db"
    return folder / "ringback" / "listen" / name


def find_files_of_other_keys(path: Path) -> Sequence[Path]:
    """State files for the same selection and another API key, at their default paths."""
    selection, _, _ = path.name.partition("-")
    return sorted(found for found in path.parent.glob(f"{selection}-*.db") if found != path)


@contextmanager
def locked_state_file(path: Path) -> Generator[None]:
    """Create the file's folder, and hold the file's lock, which ends with the process. Raises `StateFileUnusable`."""
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from None
    with open_lock(path, "lock") as descriptor:
        _acquire_lock(descriptor, path)
        yield


@contextmanager
def open_lock(path: Path, suffix: str) -> Generator[int]:
    """The descriptor of a lock file beside the state file. Raises `StateFileUnusable`."""
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(open_lock_file(path.with_name(f"{path.name}.{suffix}")))
        except OSError as error:
            raise _unwritable(path, error) from None
        yield descriptor


def _unwritable(path: Path, error: OSError) -> StateFileUnusable:
    return StateFileUnusable(f"{path} cannot be written: {error.strerror}. Choose another --state.")


def _acquire_lock(descriptor: int, path: Path) -> None:
    try:
        is_held = try_lock(descriptor)
    except OSError as error:  # some network file systems have no locks
        raise StateFileUnusable(f"{path} cannot be locked: {error.strerror}. Choose another --state.") from None
    if not is_held:
        holder = os.pread(descriptor, PROCESS_ID_LENGTH_MAX, 0).decode(errors="replace").strip() or "unknown"
        raise StateFileUnusable(
            f"Another listener (process {holder}) uses {path}. Stop it, or give this one a file of its own: --state PATH"
        )
    write_process_id(descriptor)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:NAME_LENGTH]
