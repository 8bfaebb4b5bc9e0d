"""Runs PostgreSQL's own programs for backups. They read the password from the environment, where no other user sees it."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from ringback.domain.errors import StoreUnavailable
from ringback.storage.url_parameters import to_libpq_url
from ringback.storage.urls import describe_database

_SAID_CHARACTERS_MAX: Final = 500
"""Of a program's error: its first lines say what is wrong."""


def dump_database(url: str, file: Path, *, without_schemas: Sequence[str] = ()) -> None:
    """Write one consistent state of the database, with the nodes running. Raises `StoreUnavailable`."""
    file.touch(mode=0o600, exist_ok=False)
    left_out = [f"--exclude-schema={_quote_pattern(name)}" for name in without_schemas]
    _run(
        "pg_dump",
        "--format=custom",
        *left_out,
        f"--file={file}",
        f"--dbname={describe_database(to_libpq_url(url))}",
        url=url,
    )
    with file.open("rb") as written:
        os.fsync(written.fileno())


def restore_database(url: str, file: Path) -> None:
    """Fill an empty database: all of it, or nothing. Raises `StoreUnavailable`."""
    options = ("--no-owner", "--single-transaction", "--exit-on-error")
    _run("pg_restore", *options, f"--dbname={describe_database(to_libpq_url(url))}", str(file), url=url)


def _quote_pattern(name: str) -> str:
    """A pattern that means this schema only."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _run(program: str, *arguments: str, url: str) -> None:
    if shutil.which(program) is None:
        raise StoreUnavailable(
            f"{program} is not on the PATH. Install PostgreSQL's client programs, of the server's version or a later one.",
            needs_operator=True,
        )
    ended = subprocess.run(  # noqa: S603 - a fixed program, and no shell reads its arguments
        [program, *arguments],
        env={**os.environ, **_password_variables(url)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if ended.returncode:
        text = ended.stderr.decode(errors="replace").strip()[:_SAID_CHARACTERS_MAX]
        raise StoreUnavailable(f"{program} failed: {text}{_advise(text)}", needs_operator=True)


def _advise(text: str) -> str:
    if "server version mismatch" in text or "unsupported version" in text:
        return "\nPut PostgreSQL's client programs of the server's version, or of a later one, first on the PATH."
    return ""


def _password_variables(url: str) -> Mapping[str, str]:
    """The parts of the URL that `describe_database` leaves out, as libpq's environment variables."""
    parts = urlsplit(url)
    account = parts.netloc.rpartition("@")[0]
    _, separator, password = account.partition(":")
    found = {"PGPASSWORD": unquote(password)} if separator else {}
    names = {"password": "PGPASSWORD", "passfile": "PGPASSFILE"}
    return found | {names[name]: value for name, value in parse_qsl(parts.query) if name in names}
