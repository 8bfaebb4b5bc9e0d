"""`ringback doctor` finds every fault, says how to repair it, and passes a healthy service."""

import asyncio
import json
import os
import sqlite3
import sys
from base64 import b64encode
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Final

import httpx
import pytest
import respx
from typer.testing import Result

from ringback.keyring import load_key_ring
from ringback.service_database import open_shared_store
from ringback.service_database.key_ring import require_key_ring
from ringback.settings import load_settings
from ringback.signing.sealing import KEY_BYTES, generate_key_ring_entry
from ringback.storage.sqlite import write_probe
from ringback.storage.sqlite.file_lock import FileLock
from tests.support.builders import make_call
from tests.support.examples import WEBHOOK
from tests.support.upstreams import STDIO_SERVER

Run = Callable[..., Result]
Found = dict[str, tuple[bool, str]]

UPSTREAM: Final = ("--upstream", f"odd={sys.executable} {STDIO_SERVER}")


@pytest.fixture
def service() -> Generator[respx.MockRouter]:
    """A mocked healthy service."""
    with respx.mock(base_url="http://127.0.0.1:8090", assert_all_called=False) as router:
        router.get("/readyz").mock(side_effect=healthy)
        router.get("/healthz").respond(404)
        yield router


def healthy(_request: httpx.Request) -> httpx.Response:
    return make_ready_response()


def make_ready_response(*, seconds_off: float = 0, degraded: Sequence[str] = ()) -> httpx.Response:
    now = datetime.now(UTC) + timedelta(seconds=seconds_off)  # noqa: TID251 - the doctor compares with the machine's clock
    body = {"status": "ready", "degraded": list(degraded)}
    return httpx.Response(200, json=body, headers={"date": format_datetime(now, usegmt=True)})


def findings(ran: Result) -> Found:
    return {found["about"]: (found["ok"], found["detail"]) for found in json.loads(ran.stdout)}


def list_failed_checks(ran: Result) -> Found:
    assert ran.exit_code == 1
    return {about: (ok, detail) for about, (ok, detail) in findings(ran).items() if not ok}


def list_checks(run: Run, *more: str) -> Result:
    return run("doctor", "--json", *more)


@pytest.fixture
def key(run: Run) -> str:
    """An API key; creates the database and its key file."""
    return run("keys", "create", "alice", "--create").stdout.strip()


def test_a_healthy_service_is_reported_as_such(run: Run, service: respx.MockRouter, key: str) -> None:
    ran = run("doctor", *UPSTREAM)

    assert ran.exit_code == 0, ran.stdout
    assert {line.split()[0] for line in ran.stdout.splitlines()} == {"ok"}
    for about in (
        "settings",
        "database",
        "key ring",
        "sealed data",
        "queue",
        "API keys",
        "upstream odd",
        "service",
        "clock",
    ):
        assert f" {about} " in ran.stdout


def test_before_the_first_start_the_doctor_accepts_a_missing_database(run: Run, tmp_path: Path) -> None:
    ran = list_checks(run)

    assert set(list_failed_checks(ran)) == {"upstreams", "service"}
    assert "ringback serve" in findings(ran)["database"][1]
    assert list(tmp_path.iterdir()) == []


def test_a_running_service_may_have_a_configuration_that_this_environment_does_not_name(
    run: Run, service: respx.MockRouter, key: str
) -> None:
    service.get("/healthz").respond(json={"status": "ok"})

    ok, detail = findings(list_checks(run))["upstreams"]

    assert ok
    assert detail.startswith("not known")
    assert "--config" in detail


def test_settings_that_do_not_hold_together_are_all_there_is_to_say(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_PORT", "many")

    assert "RINGBACK_PORT" in list_failed_checks(list_checks(run))["settings"][1]


def test_postgresql_without_a_key_is_reported_with_the_command_that_makes_one(run: Run) -> None:
    failed = list_failed_checks(list_checks(run, "--database", "postgresql://ann:hidden@db.example/ringback"))

    assert "ringback keys ring" in failed["key ring"][1]
    assert "hidden" not in str(failed)


def test_roles_that_leave_work_undone_are_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_ROLES", "api,janitor")

    assert "runner, dispatcher" in list_failed_checks(list_checks(run))["roles"][1]


def test_a_node_without_the_api_needs_the_url_of_the_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_ROLES", "runner,dispatcher")
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", "broken")  # the database is not asked
    checks = list_checks(run, "--database", "postgresql://db.invalid/ringback")

    assert "RINGBACK_PUBLIC_URL is required on a node without the role api" in list_failed_checks(checks)["roles"][1]
    assert "With several nodes, set RINGBACK_PUBLIC_URL" in findings(checks)["public URL"][1]


@pytest.mark.parametrize(
    ("database", "words"),
    [
        ("mysql://db.example/ringback", "sqlite:///"),
        ("sqlite:////nowhere/at/all/ringback.db", "/nowhere/at/all"),
    ],
)
def test_a_database_that_cannot_be_created_is_reported(run: Run, database: str, words: str) -> None:
    assert words in list_failed_checks(list_checks(run, "--database", database))["database"][1]


def test_a_file_that_is_no_database_is_reported(run: Run, key: str, tmp_path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"ringback.db{suffix}").unlink(missing_ok=True)
    (tmp_path / "ringback.db").write_bytes(b"this is no database, and never was one" * 100)

    assert "not a database" in list_failed_checks(list_checks(run))["database"][1]


def test_a_missing_key_file_is_reported_and_none_is_created(run: Run, key: str, tmp_path: Path) -> None:
    (tmp_path / "ringback.db.key").unlink()

    assert "Restore the file" in list_failed_checks(list_checks(run))["key ring"][1]
    assert not (tmp_path / "ringback.db.key").exists()


def test_a_key_file_that_others_may_read_is_reported(run: Run, key: str, tmp_path: Path) -> None:
    (tmp_path / "ringback.db.key").chmod(0o644)

    assert "chmod 600" in list_failed_checks(list_checks(run))["key ring"][1]


@pytest.mark.parametrize("ring", ["short", "k1:AAAA"])
def test_an_invalid_key_ring_is_reported(run: Run, key: str, monkeypatch: pytest.MonkeyPatch, ring: str) -> None:
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", ring)

    assert "RINGBACK_SECRET_KEYS" in list_failed_checks(list_checks(run))["key ring"][1]


def test_a_database_without_a_valid_api_key_is_reported(run: Run, key: str) -> None:
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


def test_an_unreachable_upstream_is_reported(run: Run, service: respx.MockRouter) -> None:
    ran = list_checks(run, *UPSTREAM, "--upstream", "gone=/nowhere/at/all")

    assert set(list_failed_checks(ran)) == {"upstream gone"}
    assert "Check 'command' and 'cwd'" in list_failed_checks(ran)["upstream gone"][1]
    assert findings(ran)["upstream odd"][0]


def test_skipped_entries_are_named_with_their_advice_and_without_secrets(
    run: Run, service: respx.MockRouter, tmp_path: Path
) -> None:
    servers = {
        "My Server": {"url": "https://user:pa55word@a.example/mcp", "headers": {"X-Token": "${ABSENT_TOKEN}"}},
        "old": {"url": "https://a.example/sse"},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    ran = list_checks(run, *UPSTREAM, "--config", "mcp.json")

    failed = list_failed_checks(ran)
    assert set(failed) == {"upstream My Server", "upstream old"}
    assert failed["upstream My Server"][1].startswith("It is skipped: 'headers.X-Token' needs the environment variable")
    assert "ABSENT_TOKEN" in failed["upstream My Server"][1]
    assert "streamable HTTP" in failed["upstream old"][1]
    assert findings(ran)["upstream odd"][0], "the others are checked"
    assert "pa55word" not in ran.output


def test_a_missing_configuration_is_reported(run: Run) -> None:
    assert "missing.json" in list_failed_checks(list_checks(run, "--config", "missing.json"))["upstreams"][1]


def test_a_service_that_accepts_no_work_says_why(run: Run, service: respx.MockRouter) -> None:
    service.get("/readyz").respond(503, json={"detail": "Not ready: the runner failed."}, headers={"date": "now"})

    found = list_failed_checks(list_checks(run))

    assert "the runner failed" in found["service"][1]
    assert "no Date header" in found["clock"][1]


def test_failed_mcp_endpoints_of_a_ready_service_are_named(run: Run, service: respx.MockRouter) -> None:
    service.get("/readyz").mock(side_effect=[make_ready_response(degraded=["/mcp/paint"])])

    assert "/mcp/paint" in list_failed_checks(list_checks(run))["service"][1]


def test_a_clock_that_is_not_confirmed_yet_is_explained_and_no_fault(run: Run, service: respx.MockRouter) -> None:
    service.get("/readyz").mock(side_effect=[make_ready_response(degraded=["clock"])])

    found = list_checks(run)

    assert "service" not in list_failed_checks(found)
    assert "more than a day ahead" in found.stdout


def test_another_service_at_the_url_is_reported(run: Run, service: respx.MockRouter) -> None:
    service.get("/readyz").respond(404, html="<h1>Not Found</h1>")

    assert "Is this a Ringback?" in list_failed_checks(list_checks(run))["service"][1]


@pytest.mark.parametrize("seconds", [90, -90])
def test_clocks_that_differ_are_reported(run: Run, service: respx.MockRouter, seconds: float) -> None:
    service.get("/readyz").mock(side_effect=[make_ready_response(seconds_off=seconds)])

    assert "NTP" in list_failed_checks(list_checks(run))["clock"][1]


OWN_KEY = httpx.Response(200, json={"status": "ok"})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (OWN_KEY, ""),
        (httpx.Response(502, html="<h1>Bad Gateway</h1>"), "502"),
        (httpx.Response(200, html="<h1>Welcome</h1>"), "not as Ringback"),
        (httpx.ConnectError("refused"), "ConnectError"),
    ],
    ids=["ours", "a proxy's", "a page", "no response"],
)
def test_a_public_url_has_to_lead_here(
    run: Run,
    service: respx.MockRouter,
    monkeypatch: pytest.MonkeyPatch,
    answer: httpx.Response | Exception,
    words: str,
) -> None:
    monkeypatch.setenv("RINGBACK_PUBLIC_URL", "https://ringback.example")
    service.get("/healthz").mock(side_effect=[OWN_KEY])
    with respx.mock(base_url="https://ringback.example", assert_all_called=False) as public:
        public.get("/healthz").mock(side_effect=[answer])
        public.route().mock(side_effect=httpx.ConnectError("refused"))
        ok, detail = findings(list_checks(run, "--url", "http://127.0.0.1:8090"))["public URL"]

    assert ok is (answer is OWN_KEY)
    assert words in detail


def test_callbacks_cannot_be_checked_without_a_key(run: Run, service: respx.MockRouter) -> None:
    problem = {"content-type": "application/problem+json"}
    service.get("/v1/webhooks").respond(401, json={"detail": "Send your API key."}, headers=problem)

    assert "Send your API key" in list_failed_checks(list_checks(run, "--callbacks"))["callbacks"][1]


# -- faults of the database ------------------------------------------------------------------------------------------------


def test_a_call_that_waits_long_for_a_runner_is_reported(run: Run, key: str) -> None:
    async def queue_old_call() -> None:
        async with open_shared_store(load_settings()) as store:
            await store.write(lambda tx: tx.calls.insert(make_call(created_at=tx.now() - timedelta(minutes=20))))

    asyncio.run(queue_old_call())

    assert "has waited for 20 minutes" in list_failed_checks(list_checks(run))["queue"][1]


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
    monkeypatch.setattr(write_probe, "DISK_FREE_BYTES_MIN", 2**62)

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
