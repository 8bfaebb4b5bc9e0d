"""`ringback keys`, in a real database."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import Result

from ringback.cli.commands import keys
from ringback.domain.clock import SystemClock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.principal import Scope
from ringback.domain.upstream_rows import CatalogPart
from ringback.keyring import load_key_ring
from ringback.service_database import open_shared_store
from ringback.settings import Settings, load_settings
from ringback.signing import ed25519, sealing
from ringback.signing.secrets import is_well_formed_api_key
from tests.support.examples import WEBHOOK

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def database(run: Run) -> None:
    """The database of a service in this folder."""
    run("migrate")


def test_a_key_is_printed_alone_so_that_a_script_can_take_it(run: Run, tmp_path: Path) -> None:
    created = run("keys", "create", "alice")

    assert created.exit_code == 0
    assert is_well_formed_api_key(created.stdout.removesuffix("\n"))
    assert "key_" in created.stderr
    assert f"in the database {tmp_path / 'ringback.db'}" in created.stderr
    assert "not shown again" in created.stderr


def test_the_help_says_what_each_scope_is_for(run: Run) -> None:
    shown = run("keys", "create", "--help").stdout

    assert all(f"{scope}: " in shown for scope in Scope)


def test_an_unknown_choice_names_the_choices_without_the_kind_of_the_error(run: Run) -> None:
    refused = run("keys", "create", "alice", "--scope", "everything")

    assert refused.exit_code == 2
    assert "'everything' is not one of 'calls'" in refused.stderr
    assert "Value error" not in refused.stderr


@pytest.mark.parametrize(
    "command", [("create", "alice"), ("list",), ("revoke", "key_01JD2VX0000000000000000000"), ("rotate",), ("sealed",)]
)
def test_a_command_in_the_wrong_folder_names_the_database_that_is_missing_and_makes_none(
    run: Run, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    refused = run("keys", *command)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert str(tmp_path / "elsewhere" / "ringback.db") in refused.stderr
    assert "RINGBACK_DATABASE_URL" in refused.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_database_is_made_with_the_first_key_if_that_is_asked_for(run: Run, tmp_path: Path) -> None:
    elsewhere = f"sqlite:///{tmp_path / 'new.db'}"

    created = run("keys", "create", "alice", "--create", "--database", elsewhere)

    assert is_well_formed_api_key(created.stdout.removesuffix("\n"))
    assert len(json.loads(run("keys", "list", "--json", "--database", elsewhere).stdout)) == 1


def test_a_key_has_the_scopes_and_upstreams_it_was_given(run: Run) -> None:
    run("keys", "create", "alice", "--name", "ci", "--scope", "read", "--upstream", "git", "--upstream", "time")
    run("keys", "create", "bob")

    alice, bob = sorted(json.loads(run("keys", "list", "--json").stdout), key=lambda key: key["principal"])

    assert (alice["name"], alice["scopes"], alice["upstreams"]) == ("ci", ["read"], ["git", "time"])
    assert (bob["name"], bob["scopes"], bob["upstreams"]) == ("", ["calls", "read", "webhooks"], None)


def test_a_misspelt_upstream_is_reported_and_the_key_is_made_all_the_same(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {
        "mcpServers": {"git": {"command": "uvx", "env": {"TOKEN": "${NOT_SET_HERE}"}}, "time": {"command": "uvx"}}
    }
    (tmp_path / "mcp.json").write_text(json.dumps(config))
    monkeypatch.setenv("RINGBACK_CONFIG", str(tmp_path / "mcp.json"))

    created = run("keys", "create", "alice", "--upstream", "gti", "--upstream", "time")

    assert created.exit_code == 0
    assert is_well_formed_api_key(created.stdout.removesuffix("\n"))
    (warning,) = [line for line in created.stderr.splitlines() if line.startswith("Warning:")]
    assert "no upstream is named 'gti'. Did you mean 'git'? There is git, time." in warning


def test_an_upstream_that_the_service_has_reached_is_known(run: Run) -> None:
    async def save() -> None:
        async with open_shared_store(load_settings()) as store:
            part = CatalogPart(upstream="web", part="tools", body=[], fetched_at=SystemClock().now())
            await store.write(lambda tx: tx.catalog.save_part(part))

    asyncio.run(save())

    assert "Warning" not in run("keys", "create", "alice", "--upstream", "web").stderr
    assert "There is web." in run("keys", "create", "alice", "--upstream", "wbe").stderr


def test_a_command_that_cannot_read_the_upstreams_makes_no_key_so_that_it_can_be_repeated(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Settings) -> NoReturn:
        raise StoreUnavailable("The database cannot be used now.")

    with monkeypatch.context() as away:
        away.setattr(keys, "_stored_upstreams", fail)
        refused = run("keys", "create", "alice", "--upstream", "git")

    assert (refused.exit_code, refused.stdout) == (75, "")
    assert json.loads(run("keys", "list", "--json").stdout) == []


def test_where_no_upstream_is_known_the_name_is_said_to_be_unchecked(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unchecked = run("keys", "create", "alice", "--upstream", "git", "--json")
    monkeypatch.setenv("RINGBACK_CONFIG", str(tmp_path / "missing.json"))
    unreadable = run("keys", "create", "alice", "--upstream", "git")

    assert json.loads(unchecked.stdout)["upstreams"] == ["git"]
    assert "'git' was not checked. Set RINGBACK_CONFIG" in unchecked.stderr
    assert unreadable.exit_code == 0
    assert "missing.json: cannot be read" in unreadable.stderr


def test_a_list_names_keys_and_does_not_show_them(run: Run) -> None:
    created = json.loads(run("keys", "create", "alice", "--json").stdout)

    listed = run("keys", "list")

    assert created["id"] in listed.stdout
    assert created["prefix"] in listed.stdout
    assert created["key"] not in listed.stdout


def test_a_list_without_a_key_says_how_to_create_one(run: Run) -> None:
    listed = run("keys", "list")

    assert (listed.exit_code, listed.stdout) == (0, "")
    assert "ringback keys create PRINCIPAL" in listed.stderr


def test_a_revoked_key_says_since_when(run: Run) -> None:
    created = json.loads(run("keys", "create", "alice", "--json").stdout)

    revoked = run("keys", "revoke", created["id"])

    assert revoked.exit_code == 0
    assert json.loads(run("keys", "list", "--json").stdout)[0]["revoked_at"] is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "a\nb"), "printable characters"),
        (("revoke", "key_nothing"), "ringback keys list"),
        (("list", "--database", "mysql://x"), "sqlite:///ringback.db"),
    ],
)
def test_an_invalid_argument_prints_one_message_with_the_next_step(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    refused = run("keys", *arguments)

    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert words in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [("create", "alice"), ("list",), ("revoke", "key_01JD2VX0000000000000000000")])
def test_a_database_that_is_away_ends_a_command_as_one_that_may_be_repeated(run: Run, command: tuple[str, ...]) -> None:
    away = run("keys", *command, "--database", "postgresql://ringback@127.0.0.1:1/ringback")

    assert (away.exit_code, away.stdout) == (75, "")
    assert "The database cannot be used now" in away.stderr


def test_keys_are_kept_in_the_database_that_is_named(run: Run, tmp_path: Path) -> None:
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"

    run("keys", "create", "alice", "--create", "--database", elsewhere)

    assert len(json.loads(run("keys", "list", "--json", "--database", elsewhere).stdout)) == 1
    assert json.loads(run("keys", "list", "--json").stdout) == []


def test_the_generated_text_is_a_valid_key_ring(run: Run) -> None:
    made = run("keys", "ring").stdout.strip()

    assert sealing.parse_key_ring(made).current_id


def test_the_help_says_how_several_keys_are_separated(run: Run) -> None:
    assert "Commas separate several keys" in " ".join(run("keys", "ring", "--help").stdout.split())


def test_a_signing_key_is_printed_alone_and_its_public_key_on_standard_error(run: Run) -> None:
    made = run("keys", "signing")

    assert ed25519.parse_signing_key(made.stdout.strip()).public_key in made.stderr


def test_a_rotation_puts_a_new_key_in_front_and_keeps_the_old_one(run: Run) -> None:
    load_key_ring(load_settings(), random_bytes=os.urandom)  # as the service does at its first start
    before = json.loads(run("keys", "sealed", "--json").stdout)

    rotated = run("keys", "rotate").stdout.strip()

    assert [key["role"] for key in before] == ["newest"]
    assert json.loads(run("keys", "sealed", "--json").stdout) == [
        {"key": rotated, "role": "newest", "sealed": 0},
        {"key": before[0]["key"], "role": "old", "sealed": 0},
    ]
    printed = run("keys", "sealed")
    assert rotated in printed.stdout
    assert "that is new and not yet the first" in printed.stderr


def test_a_key_that_is_missing_is_counted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def register() -> None:
        async with open_shared_store(load_settings()) as store:
            await store.write(lambda tx: tx.webhooks.insert(WEBHOOK))

    asyncio.run(register())
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", sealing.generate_key_ring_entry(b"k" * sealing.KEY_BYTES))

    newest, missing = json.loads(run("keys", "sealed", "--json").stdout)

    assert [(key["role"], key["sealed"]) for key in (newest, missing)] == [("newest", 0), ("missing", 1)]


def test_a_command_without_the_keys_of_the_service_makes_no_key_file_beside_its_database(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", sealing.generate_key_ring_entry(b"k" * sealing.KEY_BYTES))
    run("keys", "create", "alice", "--create")
    monkeypatch.delenv("RINGBACK_SECRET_KEYS")

    created = run("keys", "create", "bob")

    for command in ("sealed", "rotate"):
        refused = run("keys", command)
        assert (refused.exit_code, "set it here" in refused.stderr) == (2, True)
    assert (created.exit_code, Path("ringback.db.key").exists()) == (0, False)
    assert {key["principal"] for key in json.loads(run("keys", "list", "--json").stdout)} == {"alice", "bob"}


def test_keys_of_the_environment_are_rotated_by_hand(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGBACK_SECRET_KEYS", sealing.generate_key_ring_entry(b"k" * sealing.KEY_BYTES))

    refused = run("keys", "rotate")

    assert refused.exit_code == 2
    assert "ringback keys ring" in refused.stderr


def test_a_key_with_an_expiry_says_until_when(run: Run) -> None:
    created = run("keys", "create", "alice", "--expires", "90d")

    (key,) = json.loads(run("keys", "list", "--json").stdout)
    assert key["expires_at"] > key["created_at"]
    assert f"until {key['expires_at']}" in created.stderr


def test_a_rotated_api_key_is_printed_alone_and_the_old_one_ends_after_the_overlap(run: Run) -> None:
    old = json.loads(run("keys", "create", "alice", "--name", "ci", "--json").stdout)

    rotated = run("keys", "rotate-api-key", old["id"], "--overlap", "12h")

    ended, new = json.loads(run("keys", "list", "--json").stdout)
    assert is_well_formed_api_key(rotated.stdout.removesuffix("\n"))
    assert rotated.stdout.strip() != old["key"]
    assert f"{old['id']} is accepted until {ended['expires_at']}" in rotated.stderr
    assert (ended["replaced_by"], new["name"], new["expires_at"]) == (new["id"], "ci", None)


def test_a_rotation_refuses_an_expiry_beyond_a_hundred_years_as_the_creation_does(run: Run) -> None:
    old = json.loads(run("keys", "create", "alice", "--json").stdout)

    refused = [
        run("keys", "create", "alice", "--expires", "999999d"),
        run("keys", "rotate-api-key", old["id"], "--expires", "999999d"),
    ]

    assert ["within 100 years" in each.stderr for each in refused] == [True, True]
    assert len(json.loads(run("keys", "list", "--json").stdout)) == 1


def test_a_duration_without_a_unit_is_refused(run: Run) -> None:
    refused = run("keys", "create", "alice", "--expires", "90")

    assert refused.exit_code == 2
    assert "12h or 30d" in refused.stderr
    assert json.loads(run("keys", "list", "--json").stdout) == []
