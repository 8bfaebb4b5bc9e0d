"""The store: a file, its writer, its reader of single rows, its readers of lists, and their notifications."""

import sqlite3
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.storage.migrations import require_upgraded
from ringback.storage.rows.statements import Statements
from ringback.storage.rows.webhook_reader import CachingWebhookReader
from ringback.storage.signals import LocalSignals
from ringback.storage.sqlite import database
from ringback.storage.sqlite.checkpointer import Checkpointer
from ringback.storage.sqlite.commit_counter import CommitCounter, require_no_missing_commits
from ringback.storage.sqlite.file_lock import LOCK_FILE_SUFFIX, FileLock
from ringback.storage.sqlite.group_commit import GroupCommit
from ringback.storage.sqlite.integrity import DatabaseIntegrity
from ringback.storage.sqlite.migrator import apply_migrations, load_migrations, read_schema_state
from ringback.storage.sqlite.read_pool import READER_COUNT, ReadPool
from ringback.storage.sqlite.statements import statements_on
from ringback.storage.sqlite.transaction import SqliteTransaction
from ringback.storage.sqlite.unit_of_work import run_to_completion
from ringback.storage.sqlite.use_mark import (
    mark_complete,
    mark_in_use,
    require_not_moved,
    require_whole,
    require_whole_if_unused,
)

T = TypeVar("T")

OPEN_LOCK_WAIT_SECONDS: Final = 5.0
"""How long opening waits for another process that writes. Nothing else runs yet, so waiting delays nothing."""


@dataclass(frozen=True, slots=True)
class _OpenDatabase:
    group_commit: GroupCommit
    writer: sqlite3.Connection
    reader: sqlite3.Connection
    open_reader_statements: Callable[[str], Statements]
    pool: ReadPool
    checkpointer: Checkpointer | None
    """None beside a service, which copies the log itself."""
    resources: ExitStack


class SqliteStore:
    """Implements `domain.ports.Store`. Open it, and close it, on the event loop that uses it."""

    def __init__(self, path: Path, *, clock: Clock, sealer: Sealer) -> None:
        self._path = path
        self._clock = clock
        self._sealer = sealer
        self._webhook_reader = CachingWebhookReader(sealer)
        self._signals = LocalSignals()
        self._integrity = DatabaseIntegrity(path)
        self._open_database: _OpenDatabase | None = None
        self._is_exclusive = False

    @property
    def signals(self) -> LocalSignals:
        return self._signals

    @property
    def is_exclusive(self) -> bool:
        """Whether this process has the lock of the file. If so, every process that leased anything before is dead."""
        return self._is_exclusive

    async def open(self, *, exclusive: bool, accept_missing_commits: bool = False) -> None:
        """Create or migrate the file. With `exclusive`, take its lock, which one serving process can have.

        Raises `StoreUnavailable`, also if the file was moved to another database or commits of an earlier serving process are
        missing, unless that is accepted, and without `exclusive` if a process of an earlier version serves the file.
        """
        self._integrity = DatabaseIntegrity(self._path)
        with ExitStack() as stack:
            database.create_database_file(self._path)
            lock = stack.enter_context(self._hold_lock()) if exclusive else None
            try:
                if lock is None:
                    require_whole_if_unused(self._path)
                elif not accept_missing_commits:
                    require_not_moved(self._path)
                    require_whole(self._path, commit_count=lock.read_commit_count())
                reader = stack.enter_context(
                    closing(database.connect(self._path, lock_wait_seconds=OPEN_LOCK_WAIT_SECONDS))
                )
                database.enable_wal(reader)
                self._migrate(reader, beside_service=lock is None and lock_for_database(self._path).is_held())
                if lock is not None:
                    require_no_missing_commits(reader, lock, accept_missing=accept_missing_commits)
                    mark_in_use(reader)
                reader.execute(database.SESSION_STATEMENTS["forbid_writing"])
                reader.execute(database.SESSION_STATEMENTS["never_wait"])
                writer = stack.enter_context(closing(database.connect(self._path, lock_wait_seconds=0)))
                readers = [stack.enter_context(closing(self._open_reader())) for _ in range(READER_COUNT)]
                checkpointer = self._open_checkpointer(stack) if exclusive else None
                if checkpointer is None:
                    writer.execute(database.SESSION_STATEMENTS["checkpoint_never"])
                commits = CommitCounter(writer, trust=self._integrity, lock=lock)
                self._integrity.record_files()
            except sqlite3.Error as error:
                self._integrity.record_error(error)
                raise (self._integrity.failure or database.explain_opening(error, self._path)) from error
            group_commit = self._build_group_commit(writer, commits, checkpointer)
            pool = ReadPool(readers, sealer=self._sealer)
            self._open_database = _OpenDatabase(
                group_commit, writer, reader, statements_on(reader), pool, checkpointer, stack.pop_all()
            )
            self._is_exclusive = exclusive

    def _migrate(self, connection: sqlite3.Connection, *, beside_service: bool) -> None:
        migrations = load_migrations()
        if beside_service:
            require_upgraded(read_schema_state(connection, migrations))
        apply_migrations(connection, migrations, now=self._clock.now())

    def _build_group_commit(
        self, writer: sqlite3.Connection, commits: CommitCounter, checkpointer: Checkpointer | None
    ) -> GroupCommit:
        return GroupCommit(
            writer,
            clock=self._clock,
            sealer=self._sealer,
            reader=self._webhook_reader,
            notify=self._signals.notify,
            commits=commits,
            integrity=self._integrity,
            note_commit=None if checkpointer is None else checkpointer.note_commit,
        )

    def _open_checkpointer(self, stack: ExitStack) -> Checkpointer:
        return Checkpointer(*(stack.enter_context(closing(self._open_reader())) for _ in range(2)))

    @contextmanager
    def _hold_lock(self) -> Generator[FileLock]:
        lock = lock_for_database(self._path)
        lock.acquire()
        try:
            yield lock
        finally:
            lock.release()

    async def close(self) -> None:
        """Finish the writes that wait, and close the file. Later units of work get `StoreUnavailable`."""
        if self._open_database is not None:
            opened, self._open_database = self._open_database, None
            with opened.resources:
                await opened.pool.close()
                await opened.group_commit.close()
                if opened.checkpointer is not None:
                    await opened.checkpointer.close()
                if self._is_exclusive and self._integrity.failure is None:
                    mark_complete(opened.writer)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._require_open().group_commit.write(work)

    async def write_for(self, principal: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """As `write`, in the turn of this principal: there is one writer, and no unit waits for another one's row."""
        return await self._require_open().group_commit.write(work, principal)

    async def write_heartbeat(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self.write(work)

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run `work` on one snapshot. Its notifications are dropped."""
        opened = self._require_open()
        reader = opened.reader
        try:
            reader.execute(database.SESSION_STATEMENTS["begin_reading"])
            transaction = SqliteTransaction(
                reader,
                opened.open_reader_statements,
                sealer=self._sealer,
                webhook_reader=self._webhook_reader,
                now=self._clock.now(),
            )
            return run_to_completion(work(transaction))
        except sqlite3.Error as error:
            raise self._explain(error) from error
        finally:
            reader.rollback()

    async def scan(self, principal: Principal | None, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run `work` on one snapshot, in a thread of the pool."""
        pool = self._require_open().pool
        try:
            return await pool.run_scan(principal, work, now=self._clock.now())
        except Exception as error:
            cause = error if isinstance(error, sqlite3.Error) else error.__cause__
            if isinstance(cause, sqlite3.Error):
                raise self._explain(cause) from cause
            raise

    def _explain(self, error: sqlite3.Error) -> Exception:
        """The error for the caller. It reports damage at once, because trying again cannot help."""
        self._integrity.record_error(error)
        return self._integrity.failure or database.to_caller_error(error)

    def _open_reader(self) -> sqlite3.Connection:
        """A connection to the file that is there now. The thread that first uses it lets it read the tables."""
        return database.open_connection(self._path, lock_wait_seconds=0)

    def _require_open(self) -> _OpenDatabase:
        if self._open_database is None:
            raise StoreUnavailable("The database is not open.")
        self._integrity.require_intact()
        return self._open_database


def lock_for_database(path: Path) -> FileLock:
    """The lock of the database file at this path, not acquired."""
    return FileLock(path.with_name(f"{path.name}{LOCK_FILE_SUFFIX}"))
