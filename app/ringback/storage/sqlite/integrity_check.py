"""What `ringback doctor` looks for in the files, also beside a running service: damage, and commits that are missing."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringback.domain.clock import Clock
from ringback.storage.sqlite.commit_counter import read_commit_count
from ringback.storage.sqlite.database import SESSION_STATEMENTS, connect, primary_result_code
from ringback.storage.sqlite.file_lock import LOCK_FILE_SUFFIX, FileLock

CHECK_SECONDS_MAX: Final = 10.0
"""A database of 1 GB is read in about that time; a doctor that takes minutes is not called."""
_LOCK_WAIT_SECONDS: Final = 5.0
_STEPS_PER_CLOCK_CHECK: Final = 10_000
"""Of SQLite's machine, between two looks at the clock: some hundred microseconds."""
_NO_DAMAGE: Final = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrityReport:
    damage: str | None
    """The first damage that was found, in SQLite's words."""
    is_complete: bool
    """False when `LOOK_SECONDS` were over before everything was read."""
    missing_commits: int


def check_database_file(path: Path, *, clock: Clock) -> IntegrityReport:
    """Read the database at this path; it blocks for up to `LOOK_SECONDS`. Raises sqlite3's errors for what cannot be opened."""
    # The lock file is read first: a service that commits meanwhile makes the database's number the higher one.
    committed = FileLock(path.with_name(f"{path.name}{LOCK_FILE_SUFFIX}")).peek_commit_count()
    with closing(connect(path, lock_wait_seconds=_LOCK_WAIT_SECONDS)) as connection:
        damage, complete = _find_damage(connection, clock)
        stored = read_commit_count(connection) if damage is None else committed
    return IntegrityReport(
        damage=damage, is_complete=complete, missing_commits=max(0, (committed or 0) - (stored or 0))
    )


def _find_damage(connection: sqlite3.Connection, clock: Clock) -> tuple[str | None, bool]:
    ends_at = clock.monotonic() + CHECK_SECONDS_MAX
    connection.set_progress_handler(lambda: clock.monotonic() > ends_at, _STEPS_PER_CLOCK_CHECK)
    try:
        (found,) = connection.execute(SESSION_STATEMENTS["look_for_damage"]).fetchone()
    except sqlite3.Error as error:
        if primary_result_code(error) != sqlite3.SQLITE_INTERRUPT:
            return str(error), False
        return None, False
    finally:
        connection.set_progress_handler(None, 0)
    return (None if found == _NO_DAMAGE else str(found)), True
