"""What `ringback doctor` looks for in the files, also beside a running service: damage, and commits that are missing."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringback.domain.clock import Clock
from ringback.storage.sqlite.commits import count_in_database
from ringback.storage.sqlite.database import SESSION, connect, result_code
from ringback.storage.sqlite.lock import LOCK_SUFFIX, FileLock

LOOK_SECONDS: Final = 10.0
"""A database of 1 GB is read in about that time; a doctor that takes minutes is not called."""
_LOCK_WAIT_SECONDS: Final = 5.0
_STEPS_BETWEEN_LOOKS: Final = 10_000
"""Of SQLite's machine, between two looks at the clock: some hundred microseconds."""
_NO_DAMAGE: Final = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    damage: str | None
    """The first damage that was found, in SQLite's words."""
    complete: bool
    """False when `LOOK_SECONDS` were over before everything was read."""
    missing_commits: int


def examine(path: Path, *, clock: Clock) -> Examined:
    """Read the database at this path; it blocks for up to `LOOK_SECONDS`. Raises sqlite3's errors for what cannot be opened."""
    # The lock file is read first: a service that commits meanwhile makes the database's number the higher one.
    made = FileLock(path.with_name(f"{path.name}{LOCK_SUFFIX}")).peek_commit_count()
    with closing(connect(path, lock_wait_seconds=_LOCK_WAIT_SECONDS)) as connection:
        damage, complete = _look_for_damage(connection, clock)
        held = count_in_database(connection) if damage is None else made
    return Examined(damage=damage, complete=complete, missing_commits=max(0, (made or 0) - (held or 0)))


def _look_for_damage(connection: sqlite3.Connection, clock: Clock) -> tuple[str | None, bool]:
    ends_at = clock.monotonic() + LOOK_SECONDS
    connection.set_progress_handler(lambda: clock.monotonic() > ends_at, _STEPS_BETWEEN_LOOKS)
    try:
        (found,) = connection.execute(SESSION["look_for_damage"]).fetchone()
    except sqlite3.Error as error:
        if result_code(error) != sqlite3.SQLITE_INTERRUPT:
            return str(error), False
        return None, False
    finally:
        connection.set_progress_handler(None, 0)
    return (None if found == _NO_DAMAGE else str(found)), True
