"""What a backup's folder holds. The manifest is written last, so a folder with one is a whole backup.

ringback.db        SQLite: the database, complete without a log     ringback.dump     PostgreSQL: what pg_dump wrote
ringback.db.key    SQLite: the key file, if the keys are in a file
backup.json        this manifest: what made it, when, and the size and SHA-256 of each file
"""

import errno
import hashlib
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ringback.domain.errors import StoreUnavailable

MANIFEST_NAME: Final = "backup.json"
DRAFT_NAME: Final = "backup.json.draft"
"""The manifest until it is whole. A backup that is being made has claimed its folder with it."""
DATABASE_NAME: Final = "ringback.db"
KEY_FILE_NAME: Final = "ringback.db.key"
DUMP_NAME: Final = "ringback.dump"
FORMAT: Final = 1
"""Raised when an older `ringback restore` could not read a backup."""


class BackupError(Exception):
    """A backup cannot be made or restored. The message says what to do; a failed backup leaves no manifest."""


@dataclass(frozen=True, slots=True)
class FileDigest:
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    created_at: str
    """ISO 8601, UTC."""
    ringback: str
    """The version that made the backup."""
    store: Literal["sqlite", "postgresql"]
    migration: int
    """The last migration of the database."""
    required_code: int = 0
    """The last migration that code must know to run on the database. 0 in backups of versions without this field."""
    files: Mapping[str, FileDigest]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it as a whole, and sync it and its folder."""
    draft = folder / DRAFT_NAME
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with _naming_file(draft), os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **asdict(manifest)}, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / MANIFEST_NAME)
    sync_folder(folder)


def claim_folder(folder: Path) -> None:
    """Let no other backup use the folder. Raises `FileExistsError` if one does."""
    os.close(os.open(folder / DRAFT_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a whole backup, each file of which is what it was; raises `BackupError`."""
    manifest = _parse_manifest(folder)
    for name, expected in manifest.files.items():
        try:
            found = digest_file(folder / name)
        except OSError as error:
            raise BackupError(f"'{folder / name}' cannot be read: {error.strerror}. The backup is not whole.") from None
        if found != expected:
            raise BackupError(f"'{folder / name}' is not what was backed up: its SHA-256 differs. Use another backup.")
    return manifest


def _parse_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST_NAME
    try:
        text: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = text.pop("format")
        if version != FORMAT:
            raise BackupError(f"'{path}' has the format {version}; this version reads {FORMAT}. Use a later version.")
        files = {name: FileDigest(**digest) for name, digest in text.pop("files").items()}
        if not files.keys() <= {DATABASE_NAME, KEY_FILE_NAME, DUMP_NAME}:
            raise BackupError(f"'{path}' names files that no backup has.")
        return Manifest(**text, files=files)
    except OSError as error:
        raise BackupError(
            f"'{folder}' is no whole backup: {MANIFEST_NAME} cannot be read ({error.strerror})."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BackupError(f"'{path}' is damaged. Use another backup.") from None


def digest_file(path: Path) -> FileDigest:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileDigest(bytes=file.tell(), sha256=digest)


def copy_private_file(source: Path, target: Path) -> None:
    """Copy into a new file that only its owner can read, and sync it."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with _naming_file(target), os.fdopen(descriptor, "wb") as writer, source.open("rb") as reader:
        while block := reader.read(COPY_BYTES):
            writer.write(block)
        writer.flush()
        os.fsync(writer.fileno())


@contextmanager
def _naming_file(path: Path) -> Generator[None]:
    """An error of a write names no file, and would pass for one of the command's output. A full disk may pass by itself."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise StoreUnavailable(
            f"'{path}' cannot be written: {error.strerror}.",
            needs_operator=error.errno not in {errno.ENOSPC, errno.EDQUOT},
        ) from None


COPY_BYTES: Final = 1024 * 1024
"""A block of a copy: large enough that system calls do not count."""


def sync_folder(folder: Path) -> None:
    """New names in a folder survive a crash once it is synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
