"""`ringback backup` and `ringback restore`: the database with its keys, as one folder."""

import time
from pathlib import Path
from typing import Annotated, Final

import typer

from ringback.cli.output import AsJson, print_json, print_message, print_output
from ringback.cli.server_options import Database, exit_on_service_errors
from ringback.domain.clock import SystemClock
from ringback.service_database.backup import back_up, find_keys_left_out
from ringback.service_database.backup_manifest import KEY_FILE_NAME, BackupError, Manifest
from ringback.service_database.restore import Restored, restore
from ringback.settings import load_settings
from ringback.storage.urls import describe_database

STEP_PAUSE_SECONDS: Final = 0.002
"""After each 4 MB, so that a running service also gets the disk."""


@exit_on_service_errors(BackupError)
def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, which gets the backup.")],
    *,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Back up the database and its key file. The service may run meanwhile."""
    settings = load_settings(database_url=database)
    manifest = back_up(settings, folder, clock=SystemClock(), on_step=_pause)
    if left_out := find_keys_left_out(settings):
        names = ", ".join(f"'{key_id}'" for key_id in left_out)
        print_message(
            f"Warning: the backup lacks {names}, which sealed stored secrets. If the service has RINGBACK_SECRET_KEYS, keep "
            "it, too, and set it for every command: without its keys no program can read the secrets."
        )
    if as_json:
        print_json({"folder": str(folder), **_to_json(manifest)})
        return
    total = sum(file.bytes for file in manifest.files.values())
    print_output(
        f"{folder}: {', '.join(manifest.files)}, {total:,} bytes, of {describe_database(settings.database_url)}"
    )
    if KEY_FILE_NAME not in manifest.files:
        print_message(
            "The keys are not in it. Keep RINGBACK_SECRET_KEYS, too: without them no program can read the secrets."
        )


def _pause(_remaining: int, _total: int) -> None:
    time.sleep(STEP_PAUSE_SECONDS)


@exit_on_service_errors(BackupError)
def restore_backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `ringback backup` made.")],
    *,
    database: Database = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace the SQLite database that is there. It is kept beside the new one."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup. Stop the service first, on PostgreSQL all nodes. What was acknowledged since the backup is lost."""
    settings = load_settings(database_url=database)
    restored = restore(settings, folder, replace=replace, clock=SystemClock())
    if as_json:
        moved = [str(file) for file in restored.moved_aside]
        print_json({"folder": str(folder), "moved_aside": moved, **_to_json(restored.manifest)})
    else:
        _print_restored(restored, describe_database(settings.database_url))


def _print_restored(restored: Restored, database: str) -> None:
    print_output(
        f"{database} is as it was at {restored.manifest.created_at}. Start the service. It continues the calls that had not "
        "ended then: a service that still runs on the original database would run the same calls."
    )
    if restored.moved_aside:
        print_message(f"What was there before is kept: {', '.join(str(file) for file in restored.moved_aside)}.")
    if KEY_FILE_NAME not in restored.manifest.files:
        print_message("The keys are not in the backup. Start the service with the RINGBACK_SECRET_KEYS of that time.")


def _to_json(manifest: Manifest) -> dict[str, object]:
    return {
        "created_at": manifest.created_at,
        "ringback": manifest.ringback,
        "store": manifest.store,
        "migration": manifest.migration,
        "files": {name: {"bytes": file.bytes, "sha256": file.sha256} for name, file in manifest.files.items()},
    }
