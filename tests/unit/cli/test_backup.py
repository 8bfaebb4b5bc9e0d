"""`ringback backup` and `ringback restore`, on SQLite; tests/crash/test_backup_and_restore.py has the story on both stores."""

import asyncio
import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ringback.domain.clock import SystemClock
from ringback.domain.errors import StoreUnavailable
from ringback.keyring import load_key_ring
from ringback.service_database import open_shared_store
from ringback.service_database import restore as restoring
from ringback.service_database.backup import back_up
from ringback.service_database.backup_manifest import Manifest, digest_file, write_manifest
from ringback.service_database.key_ring import require_key_ring
from ringback.settings import load_settings
from ringback.signing import sealing
from ringback.storage.migrations import SchemaState
from ringback.storage.sqlite import backup as copying
from ringback.storage.sqlite.store import lock_for_database
from tests.support.backups import BACKUP, DATABASE, KEY_FILE, Run, create_key, list_files, principals, serving
from tests.support.examples import WEBHOOK

SERVICE_USER = 65_534
"""Any user but root."""


@pytest.fixture
def made(run: Run) -> Run:
    """The commands, in a folder with a database that has the key of a principal named before."""
    create_key(run, "before")
    return run


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_backup_is_complete_and_private_and_says_what_is_in_it(made: Run) -> None:
    with serving():
        backed_up = made("backup", str(BACKUP), "--json")

    assert backed_up.exit_code == 0, backed_up.stderr
    assert list_files(BACKUP) == {"ringback.db", "ringback.db.key", "backup.json"}
    assert [mode(BACKUP), *(mode(file) for file in BACKUP.iterdir())] == [0o700, 0o600, 0o600, 0o600]
    manifest = json.loads(backed_up.stdout)
    assert manifest["store"] == "sqlite"
    assert manifest["files"]["ringback.db"]["bytes"] == (BACKUP / "ringback.db").stat().st_size
    assert (BACKUP / "ringback.db.key").read_bytes() == KEY_FILE.read_bytes()


def test_a_backup_whose_key_file_is_not_the_service_s_names_the_keys_that_it_lacks(
    made: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = sealing.generate_key_ring_entry(b"k" * sealing.KEY_BYTES)

    async def store_as_the_service() -> None:
        settings = load_settings(secret_keys=entry)
        async with open_shared_store(settings) as store:
            ring = load_key_ring(settings, random_bytes=os.urandom)
            await require_key_ring(store, ring, settings)
            await store.write(lambda tx: tx.webhooks.insert(WEBHOOK))

    asyncio.run(store_as_the_service())
    name = entry.partition(":")[0]

    backed_up = made("backup", str(BACKUP), "--json")
    assert (backed_up.exit_code, f"lacks '{name}'" in backed_up.stderr) == (0, True)
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", entry)
    assert "lacks" not in made("backup", "backups/tuesday").stderr


def test_a_backup_without_the_key_file_is_refused_with_what_to_do(made: Run) -> None:
    KEY_FILE.unlink()

    refused = made("backup", str(BACKUP))

    assert (refused.exit_code, BACKUP.exists()) == (2, False)
    assert "If the service has RINGBACK_SECRET_KEYS, set it here" in refused.stderr


def test_a_restored_backup_is_the_database_of_that_time_and_the_other_one_is_kept(made: Run) -> None:
    with serving():
        made("backup", str(BACKUP))
        create_key(made, "after")

    refused = made("restore", str(BACKUP))
    assert (refused.exit_code, principals(made)) == (2, {"before", "after"})
    assert f"ringback restore {BACKUP} --replace --database " in refused.stderr

    restored = made("restore", str(BACKUP), "--replace")
    assert restored.exit_code == 0, restored.stderr
    assert principals(made) == {"before"}
    with serving():
        assert principals(made) == {"before"}

    (kept,) = [name for name in list_files(Path()) if "before-restore" in name and name.endswith("Z")]
    assert kept in restored.stderr
    shutil.copy(f"{kept}.key", "kept.db.key")
    shutil.copy(kept, "kept.db")
    assert '"after"' in made("keys", "list", "--json", "--database", "sqlite:///kept.db").stdout


def test_a_backup_is_restored_elsewhere_by_one_command(
    made: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving():
        made("backup", str(BACKUP))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert made("restore", str(tmp_path / BACKUP)).exit_code == 0
    with serving():
        assert principals(made) == {"before"}
    assert [mode(file) for file in (DATABASE, KEY_FILE)] == [0o600, 0o600]


def test_a_restore_into_a_folder_that_does_not_exist_names_the_folder(made: Run, tmp_path: Path) -> None:
    assert made("backup", str(BACKUP)).exit_code == 0
    missing = tmp_path / "missing"

    restored = made("restore", str(BACKUP), "--database", f"sqlite:///{missing}/ringback.db")

    assert restored.exit_code == 2
    assert f"There is no folder '{missing}'" in restored.stderr
    assert not missing.exists()


def test_a_restored_database_belongs_to_the_owner_of_its_folder_also_if_root_restores(
    made: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving():
        made("backup", str(BACKUP))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, SERVICE_USER, SERVICE_USER)
    monkeypatch.chdir(folder)

    assert made("restore", str(tmp_path / BACKUP)).exit_code == 0
    assert made("restore", str(tmp_path / BACKUP), "--replace").exit_code == 0

    assert {file.name: file.stat().st_uid for file in folder.iterdir()} == dict.fromkeys(
        list_files(folder), folder.stat().st_uid
    )


def test_nothing_is_restored_while_a_service_runs(made: Run) -> None:
    made("backup", str(BACKUP))
    with serving():
        before = DATABASE.stat().st_ino
        refused = made("restore", str(BACKUP), "--replace")

        assert (refused.exit_code, DATABASE.stat().st_ino) == (75, before)
    assert "already serves this database" in refused.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("backup.json", None),
        ("ringback.db.key", None),
        ("ringback.db", "SQLite format 3"),
        ("ringback.db.key", "k1:AAAA"),
        ("backup.json", '{"format": 1'),
        ("backup.json", '{"format": 2}'),
        ("backup.json", '{"format": 1, "files": {"../../etc/passwd": {"bytes": 1, "sha256": ""}}}'),
    ],
)
def test_a_backup_that_is_not_whole_changes_nothing(made: Run, name: str, text: str | None) -> None:
    made("backup", str(BACKUP))
    if text is None:
        (BACKUP / name).unlink()
    else:
        (BACKUP / name).write_text(text)
    files = list_files(Path())

    refused = made("restore", str(BACKUP), "--replace")

    assert refused.exit_code == 2
    assert str(BACKUP) in refused.stderr
    assert (list_files(Path()), principals(made)) == (files, {"before"})


def test_a_backup_of_a_newer_version_changes_nothing(made: Run) -> None:
    with closing(sqlite3.connect(DATABASE)) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (999, '', 0, 999)")
        connection.commit()
    BACKUP.mkdir(parents=True)
    shutil.copy(DATABASE, BACKUP)
    newer = Manifest(
        created_at="", ringback="9", store="sqlite", migration=999,
        files={"ringback.db": digest_file(BACKUP / DATABASE)},
    )  # fmt: skip
    write_manifest(BACKUP, newer)
    inode = DATABASE.stat().st_ino

    refused = made("restore", str(BACKUP), "--replace")

    assert (refused.exit_code, DATABASE.stat().st_ino) == (2, inode)
    assert "changed by a newer version (migration 999)" in refused.stderr


def test_a_backup_of_a_newer_version_is_not_restored_into_postgresql(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read_empty(_url: str) -> SchemaState:
        return SchemaState(applied=0, known=6, missing=[], required_code=0)

    def refuse(_url: str, _file: Path) -> None:
        pytest.fail("the database was changed")

    monkeypatch.setattr(restoring, "read_schema_state", read_empty)
    monkeypatch.setattr(restoring, "restore_database", refuse)
    BACKUP.mkdir(parents=True)
    (BACKUP / "ringback.dump").write_bytes(b"of a newer version")
    newer = Manifest(
        created_at="", ringback="9", store="postgresql", migration=9, required_code=8,
        files={"ringback.dump": digest_file(BACKUP / "ringback.dump")},
    )  # fmt: skip
    write_manifest(BACKUP, newer)

    refused = run("restore", str(BACKUP), "--database", "postgresql://db.example/empty")

    assert refused.exit_code == 2
    assert "changed by a newer version (migration 9). This version knows 6." in refused.stderr


def test_a_manifest_says_which_code_may_run_on_the_backup(made: Run) -> None:
    made("backup", str(BACKUP))

    written = json.loads((BACKUP / "backup.json").read_text())
    assert 0 < written["required_code"] <= written["migration"]


def test_a_backup_has_a_folder_of_its_own(made: Run) -> None:
    BACKUP.mkdir(parents=True)
    (BACKUP / "notes.txt").write_text("mine")

    refused = made("backup", str(BACKUP))

    assert (refused.exit_code, list_files(BACKUP)) == (2, {"notes.txt"})
    assert "not empty" in refused.stderr


def test_a_database_that_does_not_exist_is_not_backed_up_and_not_made(run: Run) -> None:
    refused = run("backup", str(BACKUP))

    assert refused.exit_code == 2
    assert "nothing to back up" in refused.stderr
    assert list_files(Path()) == set()


def test_commits_during_a_backup_are_not_in_it(made: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that writes all the time neither changes the copy nor starts it anew."""
    monkeypatch.setattr(copying, "STEP_PAGES", 4)
    steps: list[int] = []

    def write(remaining: int, _total: int) -> None:
        steps.append(remaining)
        with closing(sqlite3.connect(DATABASE)) as connection:
            connection.execute("UPDATE api_keys SET principal = ?", [f"after-{len(steps)}"])
            connection.commit()

    back_up(load_settings(), BACKUP, clock=SystemClock(), on_step=write)

    assert len(steps) > 5
    assert steps == sorted(steps, reverse=True)
    with closing(sqlite3.connect(BACKUP / DATABASE)) as copy:
        assert copy.execute("SELECT principal FROM api_keys").fetchall() == [("before",)]


@pytest.mark.parametrize("further", [(), (KEY_FILE,)])
def test_a_database_file_that_was_copied_alone_from_a_running_service_is_refused_with_words(
    made: Run, further: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commits are in the -wal file: the copy would be a service that has forgotten them, without a word."""
    (tmp_path / "copy").mkdir()
    with serving():
        create_key(made, "newest")
        for file in (DATABASE, *further):
            shutil.copy(file, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")

    with pytest.raises(StoreUnavailable, match=r"without its -wal file.*ringback backup"), serving():
        raise NotImplementedError

    assert "copied while a service used it" in made("doctor").stdout
    made("doctor", "--accept-restore")
    with serving():
        pass


def test_a_database_file_that_was_copied_after_the_service_stopped_is_complete(
    made: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copy").mkdir()
    with serving():
        create_key(made, "newest")
    for file in (DATABASE, KEY_FILE):
        shutil.copy(file, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")

    with serving():
        assert principals(made) == {"before", "newest"}


def test_a_database_file_that_was_copied_with_its_log_is_complete(
    made: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copy").mkdir()
    with serving():
        create_key(made, "newest")
        for file in (DATABASE, KEY_FILE, Path("ringback.db-wal")):
            shutil.copy(file, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")

    with serving():
        assert principals(made) == {"before", "newest"}


def test_a_killed_service_s_log_that_another_command_has_moved_into_the_file_is_complete(
    made: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "killed").mkdir()
    with serving():
        for file in ("ringback.db", "ringback.db-wal", "ringback.db.key", "ringback.db.lock"):
            shutil.copy(file, tmp_path / "killed")
    monkeypatch.chdir(tmp_path / "killed")
    assert principals(made) == {"before"}  # the last connection that closes
    assert not Path("ringback.db-wal").exists()

    with serving():
        assert principals(made) == {"before"}


def test_the_lock_is_free_after_a_restore(made: Run) -> None:
    made("backup", str(BACKUP))
    made("restore", str(BACKUP), "--replace")

    lock = lock_for_database(DATABASE)
    lock.acquire()
    lock.release()


def test_a_new_database_beside_the_keys_of_another_one_is_logged(made: Run, caplog: pytest.LogCaptureFixture) -> None:
    """The database was lost, or its name is wrong: a service may be new, and an operator must be able to see it."""
    for file in list_files(Path()) - {KEY_FILE.name}:
        Path(file).unlink()

    create_key(made, "first")

    (warned,) = [record for record in caplog.records if record.getMessage() == "database.missing_beside_keys"]
    assert vars(warned)["database"] == str(DATABASE.absolute())
