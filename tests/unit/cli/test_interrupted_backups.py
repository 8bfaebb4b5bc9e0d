"""`ringback backup` and `ringback restore` that end early, or two at once, lose neither a database nor a backup."""

import errno
import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringback.domain.clock import SystemClock
from ringback.service_database.backup import back_up
from ringback.settings import load_settings
from tests.support.backups import BACKUP, Run, create_key, list_files, principals, serving


@pytest.fixture
def made(run: Run) -> Run:
    """The commands, in a folder with a database that has the key of a principal named before."""
    create_key(run, "before")
    return run


def test_two_restores_within_a_second_keep_both_databases_that_they_replace(made: Run) -> None:
    made("backup", str(BACKUP))
    kept = [made("restore", str(BACKUP), "--replace", "--json") for _ in range(3)]

    moved = [name for restored in kept for name in json.loads(restored.stdout)["moved_aside"]]
    assert len(set(moved)) == len(moved)
    assert all(Path(name).exists() for name in moved)


def test_a_restore_moves_the_database_itself_aside_as_the_last_of_its_files(
    made: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two renames, it leaves a database that no service starts with, and not the log of none."""
    made("backup", str(BACKUP))
    with serving():
        for name in ("ringback.db-wal", "ringback.db-shm"):
            shutil.copy(name, f"{name}.copy")
    for name in ("ringback.db-wal", "ringback.db-shm"):
        Path(f"{name}.copy").rename(name)
    renamed: list[str] = []
    rename = Path.rename

    def note(self: Path, target: Path) -> Path:
        renamed.append(self.name)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", note)
    made("restore", str(BACKUP), "--replace")

    assert set(renamed) == {"ringback.db", "ringback.db-wal", "ringback.db-shm", "ringback.db.key"}
    assert renamed[-1] == "ringback.db"


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_full_disk_names_the_file_and_ends_a_command_as_one_that_may_be_repeated(
    made: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """It was taken for a full disk of the command's output, after which the work is done."""
    made("backup", str(BACKUP))

    def fill_disk(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fill_disk)
    full = made("backup", "tuesday") if command == "backup" else made("restore", str(BACKUP), "--replace")

    assert (full.exit_code, Path("tuesday").exists()) == (75, False)
    assert "cannot be written: No space left on device." in full.stderr
    assert principals(made) == {"before"}


def test_a_backup_that_fills_its_disk_names_this_disk_and_not_the_database_s(
    made: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def connect_to_small_disk(file: Path, **options: Any) -> sqlite3.Connection:
        connection = connect(file, **options)
        if BACKUP in file.parents:
            connection.execute("PRAGMA max_page_count = 3")
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_to_small_disk)
    full = made("backup", str(BACKUP))

    assert (full.exit_code, BACKUP.exists()) == (75, False)
    assert f"The disk of '{BACKUP}' is full" in full.stderr


def test_two_backups_at_once_into_one_folder_leave_one_whole_backup(made: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    BACKUP.mkdir(parents=True)
    look = Path.iterdir

    def look_too_early(folder: Path) -> Iterator[Path]:
        """As if the other one had not begun."""
        if folder != BACKUP:
            return look(folder)
        monkeypatch.setattr(Path, "iterdir", look)
        return iter(())

    def begin_another(_remaining: int, _total: int) -> None:
        monkeypatch.setattr(Path, "iterdir", look_too_early)
        refused = made("backup", str(BACKUP))
        assert (refused.exit_code, refused.stdout) == (2, "")

    manifest = back_up(load_settings(), BACKUP, clock=SystemClock(), on_step=begin_another)

    assert manifest.files.keys() == {"ringback.db", "ringback.db.key"}
    assert list_files(BACKUP) == {"ringback.db", "ringback.db.key", "backup.json"}


def test_a_backup_that_fails_leaves_nothing(made: Run) -> None:
    def interrupt(_remaining: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(load_settings(), BACKUP, clock=SystemClock(), on_step=interrupt)

    assert not BACKUP.exists()
