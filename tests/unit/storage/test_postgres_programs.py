"""PostgreSQL's programs get the password where no other user of the machine sees it, and their errors are passed on."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.storage.postgres_programs import dump_database, restore_database

URL = "postgresql://ringback:open%2Fsesame@db.example:5433/calls?sslmode=require"
PROGRAM = """#!{python}
import json, os, sys
given = {{name: value for name, value in os.environ.items() if name.startswith("PG")}}
open("{folder}/given.json", "w").write(json.dumps([sys.argv[1:], given]))
print({error!r}, file=sys.stderr)
sys.exit({exit_code})
"""


def install(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, *, exit_code: int = 0, error: str = "no such database"
) -> None:
    """A program of this name, first on the PATH, that writes down how it was called."""
    for variable in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(variable)
    program = folder / name
    program.write_text(PROGRAM.format(python=sys.executable, folder=folder, exit_code=exit_code, error=error))
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def read_call(folder: Path) -> tuple[list[str], dict[str, Any]]:
    arguments, environment = json.loads((folder / "given.json").read_text())
    return arguments, environment


def test_the_password_is_in_the_environment_and_not_in_the_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "pg_dump", monkeypatch)

    dump_database(URL, tmp_path / "dump")

    arguments, environment = read_call(tmp_path)
    assert "--dbname=postgresql://ringback@db.example:5433/calls?sslmode=require" in arguments
    assert environment == {"PGPASSWORD": "open/sesame"}
    assert (tmp_path / "dump").stat().st_mode & 0o777 == 0o600


def test_settings_of_the_server_do_not_reach_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "pg_dump", monkeypatch)

    dump_database("postgresql://db.example/calls?jit=off&sslmode=require", tmp_path / "dump")

    assert "--dbname=postgresql://db.example/calls?sslmode=require" in read_call(tmp_path)[0]


def test_a_space_in_a_parameter_reaches_the_programs_as_a_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "pg_dump", monkeypatch)

    dump_database("postgresql://db.example/calls?options=-c%20search_path%3Da", tmp_path / "dump")

    assert "--dbname=postgresql://db.example/calls?options=-c%20search_path%3Da" in read_call(tmp_path)[0]


def test_other_schemas_are_left_out_of_a_dump_by_their_exact_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "pg_dump", monkeypatch)

    dump_database(URL, tmp_path / "dump", without_schemas=["b", 'A"*'])

    assert {'--exclude-schema="b"', '--exclude-schema="A""*"'} <= set(read_call(tmp_path)[0])


def test_a_password_file_of_the_url_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "pg_restore", monkeypatch)

    restore_database("postgresql://db.example/calls?passfile=/etc/pgpass", tmp_path / "dump")

    arguments, environment = read_call(tmp_path)
    assert "--dbname=postgresql://db.example/calls" in arguments
    assert environment == {"PGPASSFILE": "/etc/pgpass"}


def test_a_failure_is_passed_on_in_the_program_s_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "pg_dump", monkeypatch, exit_code=1)

    with pytest.raises(StoreUnavailable, match="pg_dump failed: no such database") as failed:
        dump_database(URL, tmp_path / "dump")
    assert "sesame" not in str(failed.value)


def test_a_program_that_is_older_than_the_server_is_answered_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = "pg_dump: error: aborting because of server version mismatch"
    install(tmp_path, "pg_dump", monkeypatch, exit_code=1, error=error)

    with pytest.raises(StoreUnavailable, match=r"version mismatch\nPut PostgreSQL's client programs of the server's"):
        dump_database(URL, tmp_path / "dump")


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(StoreUnavailable, match=r"pg_dump is not on the PATH\. Install PostgreSQL's client programs"):
        dump_database(URL, tmp_path / "dump")
