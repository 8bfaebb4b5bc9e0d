"""`ringback doctor` finds faults of the database and of the keys that encrypt its values."""

import asyncio
import json
import os
import sqlite3
from base64 import b64encode
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from ringback.keyring import load_key_ring
from ringback.service_database import open_shared_store
from ringback.service_database.key_ring import require_key_ring
from ringback.settings import load_settings
from ringback.signing.sealing import KEY_BYTES, generate_key_ring_entry
from ringback.storage.sqlite import transaction
from ringback.storage.sqlite.file_lock import FileLock
from tests.support.builders import make_call
from tests.support.doctor import Run, findings, list_checks, list_failed_checks
from tests.support.examples import WEBHOOK


@pytest.mark.parametrize(
    ("database", "words"),
    [
        ("mysql://db.example/ringback", "sqlite:///"),
        ("sqlite:////nowhere/at/all/ringback.db", "/nowhere/at/all"),
        (f"sqlite:////tmp/{'a' * 300}.db", "name too long"),
        ("sqlite:////", "is a folder"),
    ],
)
def test_a_database_that_cannot_be_created_is_reported(run: Run, database: str, words: str) -> None:
    assert words in list_failed_checks(list_checks(run, "--database", database))["database"][1].lower()


def test_in_a_folder_that_was_removed_the_doctor_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    ended = run("doctor")

    assert (ended.exit_code, "This folder was removed" in ended.stderr) == (2, True)


def test_a_file_that_is_no_database_is_reported(run: Run, key: str, tmp_path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"ringback.db{suffix}").unlink(missing_ok=True)
    (tmp_path / "ringback.db").write_bytes(b"this is no database, and never was one" * 100)

    assert "not a database" in list_failed_checks(list_checks(run))["database"][1]


def test_a_missing_key_file_is_reported_and_none_is_created(run: Run, key: str, tmp_path: Path) -> None:
    (tmp_path / "ringback.db.key").unlink()

    assert "Restore the file" in list_failed_checks(list_checks(run))["key ring"][1]
    assert not (tmp_path / "ringback.db.key").exists()


def test_a_key_file_that_cannot_be_read_is_reported(run: Run, key: str, tmp_path: Path) -> None:
    (tmp_path / "ringback.db.key").unlink()
    (tmp_path / "ringback.db.key").mkdir()

    assert "ringback.db.key cannot be read" in list_failed_checks(list_checks(run))["key ring"][1]


def test_a_key_file_that_others_may_read_is_reported(run: Run, key: str, tmp_path: Path) -> None:
    (tmp_path / "ringback.db.key").chmod(0o644)

    assert "chmod 600" in list_failed_checks(list_checks(run))["key ring"][1]


@pytest.mark.parametrize("ring", ["short", "k1:AAAA"])
def test_an_invalid_key_ring_is_reported(run: Run, key: str, monkeypatch: pytest.MonkeyPatch, ring: str) -> None:
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", ring)

    assert "RINGBACK_SECRET_KEYS" in list_failed_checks(list_checks(run))["key ring"][1]


def test_a_database_without_a_valid_api_key_is_reported(run: Run, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_PORT", "9")  # whoever runs the tests may have a service on the usual one
    listed = json.loads(run("keys", "list", "--json").stdout)
    run("keys", "revoke", listed[0]["id"])

    assert "ringback keys create" in list_failed_checks(list_checks(run))["API keys"][1]


def test_a_database_sealed_with_other_keys_is_reported(run: Run, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def register() -> None:
        async with open_shared_store(load_settings()) as store:
            await store.write(lambda tx: tx.webhooks.insert(WEBHOOK))

    asyncio.run(register())
    assert findings(list_checks(run))["sealed data"][0]

    monkeypatch.setenv("RINGBACK_SECRET_KEYS", generate_key_ring_entry(b"k" * KEY_BYTES))
    assert "not in the key ring" in list_failed_checks(list_checks(run))["sealed data"][1]


def test_with_authentication_off_no_key_is_missed(run: Run, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_AUTH", "off")

    assert findings(list_checks(run))["API keys"][0]


def test_a_call_that_waits_long_for_a_runner_is_reported(run: Run, key: str) -> None:
    async def queue_old_call() -> None:
        async with open_shared_store(load_settings()) as store:
            await store.write(lambda tx: tx.calls.insert(make_call(created_at=tx.now() - timedelta(minutes=20))))

    asyncio.run(queue_old_call())

    text = list_failed_checks(list_checks(run))["queue"][1]
    assert "has waited for 20 minutes" in text
    assert "ringback calls --queued --all-principals" in text
    assert all(name in text for name in ("GET /v1/upstreams", "state", "intake", "queued_calls", "max_concurrent"))


def register() -> None:
    """Store a value that the key ring encrypted, as the service does."""

    async def work() -> None:
        settings = load_settings()
        async with open_shared_store(settings) as store:
            await require_key_ring(store, load_key_ring(settings, random_bytes=os.urandom), settings)
            await store.write(lambda tx: tx.webhooks.insert(WEBHOOK))

    asyncio.run(work())


def test_another_key_with_the_id_of_the_stored_one_is_reported(
    run: Run, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", f"k:{b64encode(b'a' * KEY_BYTES).decode()}")
    register()
    assert findings(list_checks(run))["sealed data"][0]

    monkeypatch.setenv("RINGBACK_SECRET_KEYS", f"k:{b64encode(b'b' * KEY_BYTES).decode()}")

    detail = list_failed_checks(list_checks(run))["sealed data"][1]
    assert "'k'" in detail
    assert "All nodes need the same keys" in detail


def test_a_disk_with_too_little_room_is_reported(run: Run, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "DISK_FREE_BYTES_MIN", 2**62)

    assert "disk of the database is full" in list_failed_checks(list_checks(run))["database"][1]


def test_a_damaged_page_is_reported_although_writes_still_succeed(run: Run, key: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "ringback.db")) as looking:
        (page,) = looking.execute("SELECT rootpage FROM sqlite_master WHERE name = 'calls'").fetchone()
        (size,) = looking.execute("PRAGMA page_size").fetchone()
    with (tmp_path / "ringback.db").open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)

    found = list_failed_checks(list_checks(run))

    assert "damaged" in found["database file"][1]
    assert "database" not in found


def test_missing_commits_are_reported_until_the_restore_is_accepted(run: Run, key: str, tmp_path: Path) -> None:
    (tmp_path / "ringback.db.lock").write_bytes(f"{os.getpid():<20}\n{9:020}\n".encode())

    assert "Its last 9 commits are missing" in list_failed_checks(list_checks(run))["database file"][1]
    accepted = list_checks(run, "--accept-restore")
    assert findings(accepted)["restore"][0]
    assert findings(accepted)["database file"] == (True, "it is undamaged")


def test_a_restore_is_not_accepted_beside_a_running_service(run: Run, key: str, tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "ringback.db.lock")
    lock.acquire()
    try:
        assert (
            "already serves this database" in list_failed_checks(list_checks(run, "--accept-restore"))["acceptance"][1]
        )
    finally:
        lock.release()


def test_a_lost_key_file_is_never_replaced_until_the_loss_is_accepted(run: Run, key: str, tmp_path: Path) -> None:
    register()
    key_file = tmp_path / "ringback.db.key"
    kept = key_file.read_text()
    key_file.unlink()

    refused = run("keys", "list")
    assert refused.exit_code != 0
    assert "--accept-lost-keys" in refused.stderr
    assert not key_file.exists()
    assert "--accept-lost-keys" in list_failed_checks(list_checks(run))["key ring"][1]

    assert kept.partition(":")[0] in findings(list_checks(run, "--accept-lost-keys"))["lost keys"][1]
    assert run("keys", "list").exit_code == 0
    load_key_ring(load_settings(), random_bytes=os.urandom)  # as the service does at its start
    assert key_file.read_text() != kept
    assert findings(list_checks(run))["sealed data"][0]


def test_a_service_does_not_start_with_a_key_ring_other_than_its_databases(
    run: Run, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register()
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", generate_key_ring_entry(b"k" * KEY_BYTES))

    refused = run("serve", "--port", "0")

    assert refused.exit_code != 0
    assert "which RINGBACK_SECRET_KEYS does not have" in refused.stderr
