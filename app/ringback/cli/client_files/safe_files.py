"""Reads and replaces files that belong to other programs: bounded, atomic, with the mode and the owner that they had."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringback.cli.client_files.text_edits import UnreadableDocument

FILE_BYTES_MAX: Final = 1024 * 1024
"""A file with servers has a few kilobytes."""
HISTORY_BYTES_MAX: Final = 16 * 1024 * 1024
"""`~/.claude.json` also keeps the history of prompts; files of several megabytes are reported."""
PRIVATE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
_OPEN_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""A named pipe opens at once and is refused: without a writer, the command would wait for one without end."""


class FileRefused(Exception):
    """The file is left alone. The message names it and says what to do."""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file as it was read; it is replaced only if it still has these bytes."""

    path: Path
    """The file itself: symbolic links are resolved."""
    content: bytes
    mode: int

    @property
    def text(self) -> str:
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            raise UnreadableDocument("is not UTF-8") from None


def read_file(path: Path, *, bytes_max: int = FILE_BYTES_MAX) -> ReadFile | None:
    """None if there is no file. Raises `FileRefused`."""
    target = Path(os.path.realpath(path))
    try:
        with os.fdopen(os.open(target, _OPEN_FLAGS), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise FileRefused(f"{path}: is no regular file. It was left alone.")
            content = file.read(bytes_max + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileRefused(f"{path}: cannot be read ({error.strerror}).") from None
    if len(content) > bytes_max:
        raise FileRefused(f"{path}: is larger than {bytes_max} bytes. It was left alone.")
    return ReadFile(target, content, stat.S_IMODE(status.st_mode))


def replace_file(file: ReadFile, content: bytes) -> None:
    """Replace the content at once. Raises `FileRefused` if it changed since it was read, or cannot be written."""
    with staging_replacement(file, content) as staged:
        commit_replacement(staged)


@dataclass(frozen=True, slots=True)
class StagedReplacement:
    """The new content of a file, on the disk beside it."""

    file: ReadFile
    temporary: Path


@contextlib.contextmanager
def staging_replacement(file: ReadFile, content: bytes) -> Generator[StagedReplacement]:
    """Write the new content beside the file, and remove it unless it is committed meanwhile. Raises as `replace_file`."""
    _check_unchanged(file)
    status = file.path.stat()
    if not status.st_mode & 0o222 or not os.access(file.path, os.W_OK):
        raise FileRefused(f"{file.path}: is read-only. Make it writable and repeat the command.")
    temporary = _write_beside(file.path, content, file.mode, status)
    try:
        yield StagedReplacement(file, temporary)
    finally:
        temporary.unlink(missing_ok=True)


def commit_replacement(staged: StagedReplacement) -> None:
    """A reader sees the old content or the new one. Raises `FileRefused` if the file changed since it was read."""
    _check_unchanged(staged.file)
    staged.temporary.replace(staged.file.path)
    _sync_folder(staged.file.path.parent)


def create_file(path: Path, content: bytes) -> None:
    """Create a file with its folders, which only the user may enter. Raises `FileRefused` if it exists."""
    target = Path(os.path.realpath(path))
    _make_folder(target.parent)
    temporary = _write_beside(target, content, PRIVATE_MODE, None)
    try:
        _name_new_file(temporary, target)
    except FileExistsError:
        raise FileRefused(f"{path}: was made meanwhile. Repeat the command.") from None
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def _name_new_file(temporary: Path, target: Path) -> None:
    """Give the file its name, unless another process has made one of this name: a rename would replace that."""
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError from None
        temporary.rename(target)


def _make_folder(folder: Path) -> None:
    """`mkdir(parents=True)` would give the mode to the last folder only."""
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=FOLDER_MODE, exist_ok=True)


def remove_file(file: ReadFile) -> None:
    _check_unchanged(file)
    file.path.unlink()


def _check_unchanged(file: ReadFile) -> None:
    now = read_file(file.path, bytes_max=max(HISTORY_BYTES_MAX, len(file.content)))
    if now is None or now.content != file.content:
        raise FileRefused(f"{file.path}: changed meanwhile. Nothing was overwritten; repeat the command.")


def _write_beside(target: Path, content: bytes, mode: int, status: os.stat_result | None) -> Path:
    """Write a new file beside the target, and return its path. On a full disk it raises `FileRefused` and leaves nothing."""
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise _refuse_write(target, error) from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            _copy_owner(file.fileno(), target, status)
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _refuse_write(target, error) from None
        raise
    return temporary


def _refuse_write(target: Path, error: OSError) -> FileRefused:
    return FileRefused(f"{target}: cannot be written ({error.strerror}). It is as it was.")


def _copy_owner(handle: int, target: Path, status: os.stat_result | None) -> None:
    if status is None or not hasattr(os, "fchown"):
        return
    own = os.fstat(handle)
    if (own.st_uid, own.st_gid) == (status.st_uid, status.st_gid):
        return
    try:
        os.fchown(handle, status.st_uid, status.st_gid)
    except PermissionError:
        raise FileRefused(f"{target}: belongs to another user or group. Run the command as its owner.") from None


def _sync_folder(folder: Path) -> None:
    """After a power cut the rename is there, too. Not every system syncs folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
