"""The writer: one transaction, and one commit, for the units of work that `group_queue` puts together.

    group ──▶ run unit after unit ──▶ COMMIT ──▶ every caller gets its result
                    │ a unit fails on a full or broken disk, or a damaged file: ROLLBACK, and every caller gets the error
                    │ a unit raises before it has written: it fails alone
                    │ a unit raises after it has written
                    ╰──▶ ROLLBACK, and the group again, each unit in a savepoint ──▶ COMMIT ──▶ …

Savepoints are expensive: under one, SQLite copies every page before its first change, 35 of the 510 µs of a whole delivery
(measured). It keeps the copies in a list, and walks along the list after each later statement that fires a trigger, so that a
thousand deliveries in one unit took 0.5 to 0.7 s instead of 0.2 (measured). A unit rarely raises after it has written. So only
two kinds of units get savepoints: those of a group in which one did, and those whose function did so in the last
`SAVEPOINT_SECONDS` and that are not alone in their group. A client that causes such errors again and again therefore makes the
units of others run twice once in that time, and not each time. `domain.ports` says that a unit may be run again.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from ringback.admission import leave_admission_context
from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.log_context import leave_log_context
from ringback.storage.rows.webhook_reader import CachingWebhookReader
from ringback.storage.sqlite.commit_counter import CommitCounter
from ringback.storage.sqlite.database import (
    SESSION_STATEMENTS,
    primary_result_code,
    to_caller_error,
    to_store_unavailable,
)
from ringback.storage.sqlite.group_queue import GroupQueue
from ringback.storage.sqlite.integrity import DatabaseIntegrity
from ringback.storage.sqlite.statements import statements_on
from ringback.storage.sqlite.transaction import SqliteTransaction
from ringback.storage.sqlite.unit_of_work import run_in_steps
from ringback.storage.units import UnitOfWork, complete_units

T = TypeVar("T")

log = logging.getLogger(__name__)

LOCK_WAIT_SECONDS: Final = 5.0
"""How long another process may lock the file. A command line tool locks it for milliseconds."""
LOCK_RETRY_SECONDS: Final = 0.005
_GROUP_FAILURE_CODES: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOTADB}
)
"""Result codes about the file, which all units of a group share."""
SAVEPOINT_SECONDS: Final = 600.0
"""How long units of one function get savepoints after one of them has raised and had written. There are some dozens of such
functions, and one more run of a group for each of them in ten minutes costs little."""


class GroupCommit:
    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        clock: Clock,
        sealer: Sealer,
        reader: CachingWebhookReader,
        notify: Callable[[Iterable[str]], None],
        commits: CommitCounter,
        integrity: DatabaseIntegrity,
        note_commit: Callable[[], None] | None = None,
    ) -> None:
        self._connection = connection
        self._open_statements = statements_on(connection)
        self._clock = clock
        self._sealer = sealer
        self._reader = reader
        self._notify = notify
        self._commits = commits
        self._integrity = integrity
        self._note_commit = note_commit
        self._logged_failure: str | None = None
        """Why the last group was rolled back, if the log says so and no later group has written."""
        self._waiting = GroupQueue()
        self._writer_task: asyncio.Task[None] | None = None
        self._savepoint_until: dict[str, float] = {}
        """Until when (monotonic) units get savepoints, by the name of their function."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ringback-commit")

    async def write(self, work: Callable[[Transaction], Awaitable[T]], principal: Principal | None = None) -> T:
        unit = UnitOfWork(work, asyncio.get_running_loop().create_future(), principal)
        self._waiting.add_unit(unit)
        if self._writer_task is None or self._writer_task.done():
            self._writer_task = asyncio.create_task(self._write_all(), name="sqlite-writer")
        try:
            return await unit.done
        finally:
            unit.done.cancel()  # a caller that is cancelled before its turn removes its unit

    async def close(self) -> None:
        """Finish all waiting units."""
        if self._writer_task is not None:
            await asyncio.wait([self._writer_task])
        self._thread.shutdown()

    async def _write_all(self) -> None:
        leave_log_context()
        leave_admission_context()  # the task writes for all callers, and end actions start tasks in its context
        while self._waiting:
            group = self._waiting.take_group()
            try:
                await self._run_group(group)
                wrote = await self._commit(group)
            except Exception as error:  # noqa: BLE001 - boundary: every caller gets an answer
                self._roll_back_group(group, error)
            else:
                self._note_success(wrote=wrote)
                self._complete_group(group)
                if group[0].is_admission:
                    await asyncio.sleep(0)  # its callers write their 202 now, and not after the work of the next group

    async def _commit(self, group: list[UnitOfWork]) -> bool:
        """Commit, and return whether anything was written. A group without changes waits for no disk."""
        if wrote := self._commits.prepare():
            await self._commit_in_thread(group)
        else:
            self._commits.commit_transaction(wrote=False)
        self._commits.conclude(wrote=wrote)
        return wrote

    async def _commit_in_thread(self, group: list[UnitOfWork]) -> None:
        """As `run_in_executor`, without its additional turn of the event loop, in which all other tasks would run first.

        The thread asks for the actions of the group right before the commit, which releases Python's lock. If they began
        earlier, the thread would wait for that lock.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        early = [unit for unit in group if unit.committing_actions and unit.error is None]

        def commit() -> None:
            error: Exception | None = None
            for unit in early:
                loop.call_soon_threadsafe(unit.run_committing_actions)
            try:
                self._commits.commit_transaction(wrote=True)
            except Exception as raised:  # noqa: BLE001 - it is raised to the waiting coroutine
                error = raised
            loop.call_soon_threadsafe(_resolve, done, error)

        self._thread.submit(commit)
        for unit in group:
            unit.end_admission()
        await done

    async def _begin_transaction(self) -> None:
        """Wait for another process's lock here: a wait inside SQLite would block the event loop."""
        give_up_at = self._clock.monotonic() + LOCK_WAIT_SECONDS
        while True:
            try:
                self._execute("begin_writing")
                return self._commits.begin()
            except sqlite3.OperationalError as error:
                if primary_result_code(error) != sqlite3.SQLITE_BUSY or self._clock.monotonic() >= give_up_at:
                    raise
            await self._clock.sleep(LOCK_RETRY_SECONDS)

    async def _run_group(self, group: list[UnitOfWork]) -> None:
        self._integrity.require_intact()
        await self._begin_transaction()
        if len(group) == 1:
            await self._run_alone(group[0])
        elif not await self._run_without_savepoints(group):
            await self._begin_transaction()
            await self._run_with_savepoints(group)

    async def _run_alone(self, unit: UnitOfWork) -> None:
        """Run the only unit of a group: if it raises, the whole transaction is rolled back, and no other unit with it."""
        changes = self._connection.total_changes
        try:
            await self._run_unit(unit)
        except Exception as error:  # boundary: the error is its caller's
            if _fails_whole_group(error) or not self._connection.in_transaction:
                raise
            unit.error = error
            if self._connection.total_changes != changes:
                self._set_savepoint_period(unit)
                self._connection.rollback()
                await self._begin_transaction()

    async def _run_without_savepoints(self, group: list[UnitOfWork]) -> bool:
        """Run the units one after the other. False if one raised after it had written; then all are rolled back."""
        for unit in group:
            if self._needs_savepoint(unit):
                await self._run_with_savepoints([unit])
                continue
            changes = self._connection.total_changes
            try:
                await self._run_unit(unit)
            except Exception as error:  # boundary: the second run, in savepoints, finds out whose error it is
                if _fails_whole_group(error):
                    raise
                if self._connection.in_transaction and self._connection.total_changes == changes:
                    unit.error = error  # it has written nothing, so it fails alone
                    continue
                self._connection.rollback()
                for each in group:
                    each.reset_after_rollback()
                return False
        return True

    async def _run_with_savepoints(self, group: list[UnitOfWork]) -> None:
        """Run each unit in a savepoint, so that one that raises is rolled back alone."""
        for unit in group:
            self._execute("savepoint")
            changes = self._connection.total_changes
            try:
                await self._run_unit(unit)
            except Exception as error:  # boundary: the error is its caller's
                if _fails_whole_group(error) or not self._connection.in_transaction:
                    raise  # the whole group fails, or SQLite itself has rolled it back
                unit.error = error
                if self._connection.total_changes != changes:
                    self._set_savepoint_period(unit)
                self._execute("rollback_to_savepoint")
            self._execute("release_savepoint")

    def _set_savepoint_period(self, unit: UnitOfWork) -> None:
        self._savepoint_until[unit.work_name] = self._clock.monotonic() + SAVEPOINT_SECONDS

    def _needs_savepoint(self, unit: UnitOfWork) -> bool:
        return bool(self._savepoint_until) and self._savepoint_until.get(unit.work_name, 0.0) > self._clock.monotonic()

    async def _run_unit(self, unit: UnitOfWork) -> None:
        if unit.done.cancelled():
            return
        transaction = SqliteTransaction(
            self._connection,
            self._open_statements,
            sealer=self._sealer,
            webhook_reader=self._reader,
            now=self._clock.now(),
            confirmed_now=self._clock.confirmed_now(),
        )
        unit.begin_run(transaction)
        unit.value = await run_in_steps(unit.work(transaction))

    def _complete_group(self, group: list[UnitOfWork]) -> None:
        for unit in group:
            unit.error = None if unit.error is None else to_caller_error(unit.error)
        complete_units(group)
        self._notify(topic for unit in group if unit.error is None for topic in unit.topics)

    def _roll_back_group(self, group: list[UnitOfWork], error: Exception) -> None:
        self._integrity.record_error(error)
        self._log_rollback(group, error)
        with suppress(sqlite3.Error):  # SQLite may have rolled back already, or fail again
            self._connection.rollback()
        for unit in group:
            unit.error = self._integrity.failure or to_store_unavailable(error)
        complete_units(group)

    def _log_rollback(self, group: list[UnitOfWork], error: Exception) -> None:
        """Log a problem once, however many groups it affects: a disk may be full for a weekend."""
        reason = (self._integrity.failure or to_store_unavailable(error)).detail
        if reason != self._logged_failure:
            self._logged_failure = reason
            bug = None if isinstance(error, sqlite3.Error | StoreUnavailable) else error
            log.error("store.group_rolled_back", extra={"units": len(group), "reason": reason}, exc_info=bug)

    def _note_success(self, *, wrote: bool) -> None:
        if not wrote:
            return
        if self._note_commit is not None:
            self._note_commit()
        if self._logged_failure is not None:
            self._logged_failure = None
            log.info("store.written_again")

    def _execute(self, name: str) -> None:
        self._connection.execute(SESSION_STATEMENTS[name])


def _resolve(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _fails_whole_group(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error) and primary_result_code(error) in _GROUP_FAILURE_CODES
