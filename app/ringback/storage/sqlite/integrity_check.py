"""The checks of `ringback doctor`, also beside a running service: damage, and missing commits."""

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
"""Enough to read a database of about 1 GB. A check that takes minutes would not be run."""
_LOCK_WAIT_SECONDS: Final = 5.0
_STEPS_PER_CLOCK_CHECK: Final = 10_000
"""Steps of SQLite's virtual machine between two readings of the clock: some hundred microseconds."""
_NO_DAMAGE: Final = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrityReport:
    damage: str | None
    """The first damage found, in SQLite's words."""
    is_complete: bool
    """False when `CHECK_SECONDS_MAX` ended before everything was read."""
    missing_commits: int


def check_database_file(path: Path, *, clock: Clock) -> IntegrityReport:
    """Read the database at this path. Blocks for up to `CHECK_SECONDS_MAX`; raises sqlite3's errors if it cannot be opened."""
    # The lock file is read first: a service that commits meanwhile then raises the database's count only.
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
        (found,) = connection.execute(SESSION_STATEMENTS["check_integrity"]).fetchone()
    except sqlite3.Error as error:
        if primary_result_code(error) != sqlite3.SQLITE_INTERRUPT:
            return str(error), False
        return None, False
    finally:
        connection.set_progress_handler(None, 0)
    return (None if found == _NO_DAMAGE else str(found)), True
