"""Numbered migrations, and whether this version of the code may run on a database.

A table records each applied migration with its digest and with the oldest code that may run on it: the number of the last
migration that this code must know. Two databases of one version would differ if a migration was edited after its release, so an
edited one is refused. Older code runs on a newer database as long as every newer migration allows it:

    code that knows 8, database at 9, migration 9 says "-- oldest code: 8"   runs: a node that is not yet upgraded
    code that knows 8, database at 9, migration 9 says nothing               refuses, and says so

A migration that only adds what older code neither reads nor has to write says `-- oldest code: N` in its first line. Nodes can
then be upgraded one after the other. A command beside running nodes applies only such a one, and beside the one service of a
SQLite database none.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

from ringback.domain import jsontext
from ringback.domain.errors import StoreUnavailable

_OLDEST_CODE: Final = re.compile(r"\A-- oldest code: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    text: str

    @property
    def sha256(self) -> str:
        return jsontext.sha256(self.text.encode())

    @property
    def oldest_code(self) -> int:
        """The number of the last migration that code must know to run on a database with this one."""
        said = _OLDEST_CODE.match(self.text)
        return self.number if said is None else int(said[1])


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    sha256: str
    oldest_code: int


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The migrations of a database beside those of this code."""

    applied: int
    """The highest number that the database has; 0 for an empty one."""
    known: int
    """The highest number that this code has."""
    missing: Sequence[Migration]
    required_code: int
    """The number of the last migration that code must know to run on the database as it is; 0 for an empty one."""

    @property
    def oldest_code(self) -> int | None:
        """What nodes must know to keep running while the missing migrations are applied; None if none is missing."""
        return max((each.oldest_code for each in self.missing), default=None)


def read_migrations(package: str) -> list[Migration]:
    """The migrations of this version: `migrations/0001_….sql` of the package, and so on."""
    folder = resources.files(package) / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(int(file.name.partition("_")[0]), file.read_text(encoding="utf-8")) for file in files]


def compare_migrations(shipped: Sequence[Migration], applied: Mapping[int, AppliedMigration]) -> SchemaState:
    """What the database lacks. Raises `StoreUnavailable` if this code may not run on the database."""
    known = max((each.number for each in shipped), default=0)
    digests = {each.number: each.sha256 for each in shipped}
    for number, found in applied.items():
        if number not in digests:
            require_allowed(number, found.oldest_code, known)
        elif digests[number] != found.sha256:
            raise StoreUnavailable(
                f"Migration {number} is not the one that made this database. Run the version that made it, unchanged.",
                needs_operator=True,
            )
    missing = [each for each in shipped if each.number not in applied]
    required = max((found.oldest_code for found in applied.values()), default=0)
    return SchemaState(applied=max(applied, default=0), known=known, missing=missing, required_code=required)


def require_upgraded(state: SchemaState) -> None:
    """Raise `StoreUnavailable` if the database of the only service lacks a migration, which may occupy its writer for long."""
    if state.applied and state.missing:
        raise StoreUnavailable(
            f"The database is at migration {state.applied}, and this version needs {state.known}. If its service is starting, "
            "try again in a moment. If a service of an earlier version uses it, restart that with this version.",
            needs_operator=True,
        )


def require_known_to_running(state: SchemaState) -> None:
    """Raise `StoreUnavailable` if a missing migration would stop nodes of the version that made the database.

    A command beside running nodes asks this first: only the start of a node and `ringback migrate` decide that they stop.
    """
    if state.applied and state.oldest_code is not None and state.oldest_code > state.applied:
        raise StoreUnavailable(
            f"The database is at migration {state.applied}, and this version needs {state.known}, with which nodes of an "
            "earlier version cannot go on. Start the nodes with this version, or stop them and run: ringback migrate",
            needs_operator=True,
        )


def require_allowed(number: int, oldest_code: int, known: int) -> None:
    """Raise `StoreUnavailable` if code that knows the migrations up to `known` may not run on a database with this one."""
    if oldest_code > known:
        raise StoreUnavailable(
            f"The database was changed by a newer version (migration {number}). This version knows {known}. "
            "Run that version, or a later one.",
            needs_operator=True,
        )
