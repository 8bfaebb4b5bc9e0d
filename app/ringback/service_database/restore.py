"""Restores a backup, after every check that needs no change."""

import asyncio
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringback.domain.clock import Clock
from ringback.keyring import KEY_FILE_SUFFIX
from ringback.service_database.backup_manifest import (
    DATABASE_NAME,
    DUMP_NAME,
    KEY_FILE_NAME,
    BackupError,
    Manifest,
    copy_private_file,
    read_manifest,
    sync_folder,
)
from ringback.settings import Settings
from ringback.storage.migrations import require_allowed
from ringback.storage.postgres_programs import restore_database
from ringback.storage.schema import read_schema_state
from ringback.storage.sqlite.backup import replace_database_file, require_unused
from ringback.storage.urls import describe_database, find_sqlite_path

_DRAFT_SUFFIX: Final = ".restoring"


@dataclass(frozen=True, slots=True)
class Restored:
    manifest: Manifest
    moved_aside: list[Path]
    """The files of the database that was there before."""


def restore(settings: Settings, folder: Path, *, replace: bool, clock: Clock) -> Restored:
    """Put a backup into the place of the settings' database; with `replace`, also if there is one, which is kept.

    Raises `BackupError`, `SettingsError` and `StoreUnavailable`, the last one also while a service uses the database and if
    this version may not run on the backup. Nothing is changed then, except by a backup of PostgreSQL whose manifest does not
    say that: it may fail after the restore, into a database that was empty.
    """
    manifest = read_manifest(folder)
    path = find_sqlite_path(settings.database_url)
    _require_same_store(manifest, settings, is_sqlite=path is not None)
    if path is None:
        _restore_postgres(settings, folder, manifest)
        return Restored(manifest, [])
    if not replace:
        _require_absent(path, folder, settings.database_url)
    _require_folder(path.absolute().parent)
    require_unused(path)
    asyncio.run(read_schema_state(str(folder / DATABASE_NAME)))
    return Restored(manifest, _restore_file(path, folder, manifest, clock))


def _require_same_store(manifest: Manifest, settings: Settings, *, is_sqlite: bool) -> None:
    if (manifest.store == "sqlite") != is_sqlite:
        raise BackupError(
            f"The backup is one of {manifest.store}, and {describe_database(settings.database_url)} is not. Name a database of "
            "the same kind: --database, or RINGBACK_DATABASE_URL. From SQLite to PostgreSQL: ringback copy"
        )


def _require_absent(path: Path, folder: Path, database_url: str) -> None:
    found = [file for file in (path, path.with_name(f"{path.name}{KEY_FILE_SUFFIX}")) if file.exists()]
    if found:
        command = shlex.join(["ringback", "restore", str(folder), "--replace", "--database", database_url])
        raise BackupError(f"'{found[0]}' exists. To replace it and keep it beside the restored database: {command}")


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise BackupError(f"There is no folder '{folder}' for the database. Make it, or correct the path: --database")


def _restore_file(path: Path, folder: Path, manifest: Manifest, clock: Clock) -> list[Path]:
    names = {"": DATABASE_NAME, KEY_FILE_SUFFIX: KEY_FILE_NAME}
    drafts = {
        suffix: path.with_name(f"{path.name}{suffix}{_DRAFT_SUFFIX}")
        for suffix, name in names.items()
        if name in manifest.files
    }
    try:
        for suffix, draft in drafts.items():
            draft.unlink(missing_ok=True)  # of an earlier run that was killed
            copy_private_file(folder / names[suffix], draft)
        moved = replace_database_file(path, drafts, now=clock.wall_time())
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
    sync_folder(path.absolute().parent)
    return moved


def _restore_postgres(settings: Settings, folder: Path, manifest: Manifest) -> None:
    url = settings.database_url
    state = asyncio.run(read_schema_state(url))
    require_allowed(manifest.migration, manifest.required_code, state.known)
    if state.applied:
        raise BackupError(
            f"{describe_database(url)} has tables of Ringback. Restore into an empty database, so that nothing of the lost one "
            "remains, and name it in RINGBACK_DATABASE_URL: createdb NAME"
        )
    restore_database(url, folder / DUMP_NAME)
    asyncio.run(read_schema_state(url))  # the dump itself says whether this version may run on it
