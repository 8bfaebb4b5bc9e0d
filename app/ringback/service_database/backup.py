"""Makes a backup of a service's database and key file while the service runs, or not."""

import asyncio
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ringback import __version__
from ringback.domain.clock import Clock, format_iso
from ringback.keyring import find_key_file, load_key_ring, missing_key_file
from ringback.service_database.backup_manifest import (
    DATABASE_NAME,
    DRAFT_NAME,
    DUMP_NAME,
    KEY_FILE_NAME,
    BackupError,
    Manifest,
    claim_folder,
    copy_private_file,
    digest_file,
    sync_folder,
    write_manifest,
)
from ringback.service_database.keyless_store import open_store_without_keys
from ringback.services.sealing_keys import find_missing_keys
from ringback.settings import Settings
from ringback.storage.postgres_programs import dump_database
from ringback.storage.schema import find_other_installations, read_schema_state
from ringback.storage.sqlite.backup import OnStep, copy_database_file
from ringback.storage.urls import describe_database, find_sqlite_path

_FOLDER_MODE: Final = 0o700


def back_up(settings: Settings, folder: Path, *, clock: Clock, on_step: OnStep) -> Manifest:
    """Make a backup in a new or empty folder. A failure leaves none; raises `BackupError` and `StoreUnavailable`.

    Blocks until it is done, so that Ctrl-C ends it: do not call it on an event loop.

    The database is copied before the keys: a rotation meanwhile adds a key, and removes none.
    """
    state = asyncio.run(read_schema_state(settings.database_url))
    if state.applied == 0:
        raise BackupError(
            f"{describe_database(settings.database_url)} has no tables of Ringback, so there is nothing to back up. Name the "
            "service's database: --database, or RINGBACK_DATABASE_URL."
        )
    path = find_sqlite_path(settings.database_url)
    with _new_folder(folder):
        if path is None:
            others = asyncio.run(find_other_installations(settings.database_url))
            dump_database(settings.database_url, folder / DUMP_NAME, without_schemas=others)
        else:
            copy_database_file(path, folder / DATABASE_NAME, on_step=on_step)
            _copy_key_file(settings, folder)
        files = {file.name: digest_file(file) for file in sorted(folder.iterdir()) if file.name != DRAFT_NAME}
        manifest = Manifest(
            created_at=format_iso(clock.wall_time()),
            ringback=__version__,
            store="postgresql" if path is None else "sqlite",
            migration=state.applied,
            required_code=state.required_code,
            files=files,
        )
        write_manifest(folder, manifest)
    return manifest


def find_keys_left_out(settings: Settings) -> Sequence[str]:
    """The ids of keys that sealed stored data and that a backup with the key file lacks.

    A service has such keys in RINGBACK_SECRET_KEYS if there is a key file, too, which a command made without this variable.
    """
    if find_sqlite_path(settings.database_url) is None or settings.secret_keys is not None:
        return ()
    return asyncio.run(_find_missing_keys(settings))


async def _find_missing_keys(settings: Settings) -> Sequence[str]:
    if (await read_schema_state(settings.database_url)).missing:
        return ()  # opening the store would migrate what has just been backed up
    key_ids = load_key_ring(settings, random_bytes=os.urandom).keys.keys()
    async with open_store_without_keys(settings) as store:
        return await find_missing_keys(store, key_ids)


def _copy_key_file(settings: Settings, folder: Path) -> None:
    """With RINGBACK_SECRET_KEYS, there is no key file that counts."""
    if settings.secret_keys is not None:
        return
    if (missing := missing_key_file(settings)) is not None:
        raise BackupError(
            f"There is no key file '{missing}', without which a backup is unreadable. If the service has RINGBACK_SECRET_KEYS, "
            "set it here, too; otherwise restore the file."
        )
    if (file := find_key_file(settings.database_url)) is not None:
        copy_private_file(file, folder / KEY_FILE_NAME)


@contextmanager
def _new_folder(folder: Path) -> Generator[None]:
    """A folder for this backup only. After an error, what was written is removed."""
    is_new = not folder.exists()
    if is_new:
        folder.mkdir(mode=_FOLDER_MODE, parents=True)
        sync_folder(folder.parent)
    elif not folder.is_dir() or any(folder.iterdir()):
        raise BackupError(f"'{folder}' exists and is not empty. Name a new folder: each backup has its own.")
    try:
        claim_folder(folder)
    except FileExistsError:
        raise BackupError(
            f"Another backup is being made in '{folder}'. Name a new folder: each backup has its own."
        ) from None
    try:
        yield
    except BaseException:
        for file in folder.iterdir():
            file.unlink()
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise
