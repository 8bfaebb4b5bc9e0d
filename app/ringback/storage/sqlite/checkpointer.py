"""Copies the pages of the -wal file into the database file, in a thread of its own, a second after they were written.

SQLite copies them within a commit once the log has 64 MB (`checkpoint_rarely`), and while a reader keeps an older state it
tries again in each commit. All writers wait meanwhile: for 0.5 to 1.9 s beside the hostile clients of `scripts/soak`, and with
this thread for 0.3 s at most in one run and 0.8 s in another (measured). Such a commit copies only the last second's pages. It
is still needed, because the log begins anew only if a commit finds no newer pages and no readers.

SQLite before 3.51.3 loses pages if a commit begins the log anew in the moment in which another connection starts to copy it
(sqlite.org/wal.html#walresetbug): the copy counts pages as copied that only the new log has. A reader prevents it. If there are
pages to copy as it begins, no commit begins the log anew before it ends; if there are none, nothing is copied meanwhile.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from ringback.storage.sqlite.database import SESSION_STATEMENTS

INTERVAL_SECONDS: Final = 1.0
"""From a commit to the copy of its pages. Pages that change with every commit are copied once in this time."""

THREAD_NAME: Final = "ringback-checkpoint"
"""How the name of its thread begins."""

log = logging.getLogger(__name__)


class Checkpointer:
    """Used on the event loop. After the first commit, only its thread uses the connections."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        reader: sqlite3.Connection,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._interval_seconds = interval_seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=THREAD_NAME)
        self._planned: asyncio.TimerHandle | None = None
        self._is_failing = False
        """Whether the last copy failed."""

    def note_commit(self) -> None:
        """Plan a copy, unless one is planned or running. Pages that come during a copy are left to the next one."""
        if self._planned is None:
            loop = asyncio.get_running_loop()
            self._planned = loop.call_later(self._interval_seconds, self._begin_copy, loop)

    async def close(self) -> None:
        """Wait for the copy that runs, so that the connection can be closed. Call it after the last commit."""
        if self._planned is not None:
            self._planned.cancel()
        await asyncio.to_thread(self._thread.shutdown)

    def _begin_copy(self, loop: asyncio.AbstractEventLoop) -> None:
        def copy() -> None:
            self._copy_pages()
            loop.call_soon_threadsafe(self._end_copy)

        self._thread.submit(copy)

    def _end_copy(self) -> None:
        self._planned = None

    def _copy_pages(self) -> None:
        """Copy what no reader's older state forbids. After a failure, such as a full disk, the pages are still in the log."""
        try:
            self._connection.execute(SESSION_STATEMENTS["sync_every_commit"])
            with self._keep_log():
                self._connection.execute(SESSION_STATEMENTS["move_log_into_file"]).fetchall()
        except sqlite3.Error as error:
            if not self._is_failing:  # a full disk fails each second, and the log grows meanwhile
                log.warning("store.log_not_copied", extra={"reason": str(error)})
            self._is_failing = True
        else:
            self._is_failing = False

    @contextmanager
    def _keep_log(self) -> Generator[None]:
        """Read meanwhile, so that no commit begins a log anew of which pages are being copied."""
        try:
            self._reader.execute(SESSION_STATEMENTS["begin_reading"])
            self._reader.execute(SESSION_STATEMENTS["keep_state"]).fetchall()
            yield
        finally:
            self._reader.rollback()
