"""One writer, and one commit for all who came during the last one.

    group ──▶ run unit after unit ──▶ COMMIT ──▶ every caller is told
                    │ one meets a disk that is full or broken, or a damaged file: ROLLBACK, and every caller is told that
                    │ one raises before it has written: it fails alone
                    │ one raises after it has written
                    ╰──▶ ROLLBACK, and the group again, each unit in a savepoint ──▶ COMMIT ──▶ …

Savepoints cost: under one, SQLite copies every page before its first change, 35 of the 510 µs that the whole of a delivery
takes (measured). It keeps the copies in a list, and walks along that after each later statement that fires a trigger, so that a
thousand deliveries in one unit took 0.5 to 0.7 s instead of 0.2 (measured). Hardly ever does a unit raise after it has written.
So savepoints are set only for a group in which one did, and for units of a kind that did so lately and are not alone: what a
client can bring about again and again makes the units of others run twice once in `SUSPECT_SECONDS`, and not each time. That a
unit may be run again is part of what `domain.ports` says of it.
"""

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ringback.admission import is_in_admission, leave_admission_context
from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.storage.sqlite.commit_counter import CommitCounter
from ringback.storage.sqlite.database import (
    SESSION_STATEMENTS,
    primary_result_code,
    to_caller_error,
    to_store_unavailable,
)
from ringback.storage.sqlite.integrity import DatabaseIntegrity
from ringback.storage.sqlite.transaction import SqliteTransaction
from ringback.storage.sqlite.unit_of_work import run_in_steps
from ringback.storage.sqlite.webhooks import CachingWebhookReader

T = TypeVar("T")

log = logging.getLogger(__name__)

UNITS_IN_GROUP_MAX: Final = 128
"""Where larger groups stop paying (100 rows a commit reach 36,000 rows/s, 41,000 is what there is to reach: measured), while a
full group still keeps the event loop for some ten milliseconds only."""
BACKGROUND_UNITS_MIN: Final = 4
"""Other units in a group that starts calls: they go on, and the start is soon on disk."""
BACKGROUND_SHARE_DIVISOR: Final = 4
"""If that is more: of the others that wait, one in so many. Leases are prolonged by such units, so a flood of starts must not
make their queue longer and longer."""
LOCK_WAIT_SECONDS: Final = 5.0
"""How long another process may hold the file. A command line tool holds it for milliseconds."""
LOCK_RETRY_SECONDS: Final = 0.005
_GROUP_FAILURE_CODES: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOTADB}
)
"""Result codes that tell of the file that all units of a group share, whichever of them meets it."""
SAVEPOINT_SECONDS: Final = 600.0
"""How long units of a kind get savepoints after one of them has raised and had written. A kind is a function of our code, so
there are some dozens of them; one more run of a group for each of them in ten minutes is nothing."""


@dataclass(slots=True, eq=False)
class _UnitOfWork:
    work: Callable[[Transaction], Awaitable[Any]]
    done: asyncio.Future[Any]
    value: Any = None
    error: Exception | None = None
    topics: list[str] = field(default_factory=list[str])
    commit_actions: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    rollback_actions: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    @property
    def work_name(self) -> str:
        """The function that the work is, by its name in the code."""
        work: Any = self.work
        work = getattr(work, "func", work)  # of a `partial`
        return getattr(work, "__qualname__", type(work).__qualname__)

    def reset_after_rollback(self) -> None:
        """It was rolled back, and will be run again."""
        self._run_actions(self.rollback_actions)
        self.topics, self.commit_actions, self.rollback_actions, self.error = [], [], [], None

    def tell(self) -> None:
        """Let the caller go on in the next turn of the event loop, unless it has gone."""
        if self.done.done():
            return
        if self.error is None:
            self.done.set_result(self.value)
        else:
            self.done.set_exception(to_caller_error(self.error))

    def end(self) -> None:
        """Do what was left for the end."""
        self._run_actions(self.commit_actions if self.error is None else self.rollback_actions)

    def _run_actions(self, actions: list[Callable[[], None]]) -> None:
        for action in actions:
            try:
                action()
            except Exception:  # the boundary between a bug of one and everybody who waits for the same commit
                log.exception("store.ending_failed")


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
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._sealer = sealer
        self._reader = reader
        self._notify = notify
        self._commit_executor = commits
        self._integrity = integrity
        self._logged_failure: str | None = None
        """Why the last group that had something to write was undone, once that is in the log."""
        self._waiting: deque[_UnitOfWork] = deque()
        self._admissions: deque[_UnitOfWork] = deque()
        """Units that start calls: written before those that wait, of which some are taken along (`ringback.admission`)."""
        self._writer_task: asyncio.Task[None] | None = None
        self._savepoint_until: dict[str, float] = {}
        """Kinds of units that have raised after they had written, and until when (monotonic) they get savepoints."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ringback-commit")

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        unit = _UnitOfWork(work, asyncio.get_running_loop().create_future())
        (self._admissions if is_in_admission() else self._waiting).append(unit)
        if self._writer_task is None or self._writer_task.done():
            self._writer_task = asyncio.create_task(self._write_all(), name="sqlite-writer")
        try:
            return await unit.done
        finally:
            unit.done.cancel()  # a caller that goes before its turn takes its unit along

    async def close(self) -> None:
        """Finish what was handed in."""
        if self._writer_task is not None:
            await asyncio.wait([self._writer_task])
        self._thread.shutdown()

    async def _write_all(self) -> None:
        leave_admission_context()  # it writes for everybody, and what begins at the end of a unit is begun in its context
        while self._waiting or self._admissions:
            group = self._take_group()
            try:
                await self._run_group(group)
                wrote = await self._commit()
            except Exception as error:  # noqa: BLE001 - boundary: whatever broke, nobody may be left waiting
                self._roll_back_group(group, error)
            else:
                self._note_success(wrote=wrote)
                self._complete_group(group)

    async def _commit(self) -> bool:
        """Whether anything was written. What was not written is not waited for."""
        if wrote := self._commit_executor.prepare():
            await self._commit_in_thread()
        else:
            self._commit_executor.commit_transaction(wrote=False)
        self._commit_executor.conclude(wrote=wrote)
        return wrote

    async def _commit_in_thread(self) -> None:
        """As `run_in_executor`, which takes one more turn of the event loop to tell: in it, everything else goes first."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def commit() -> None:
            error: Exception | None = None
            try:
                self._commit_executor.commit_transaction(wrote=True)
            except Exception as raised:  # noqa: BLE001 - it is raised where the commit is waited for
                error = raised
            loop.call_soon_threadsafe(_tell, done, error)

        self._thread.submit(commit)
        await done

    def _take_group(self) -> list[_UnitOfWork]:
        group = [self._admissions.popleft() for _ in range(min(len(self._admissions), UNITS_IN_GROUP_MAX))]
        waiting = len(self._waiting)
        room = max(BACKGROUND_UNITS_MIN, waiting // BACKGROUND_SHARE_DIVISOR) if group else UNITS_IN_GROUP_MAX
        return group + [self._waiting.popleft() for _ in range(min(waiting, room, UNITS_IN_GROUP_MAX))]

    async def _begin_transaction(self) -> None:
        """Wait for another process's lock here and not inside SQLite, which would hold the event loop still."""
        give_up_at = self._clock.monotonic() + LOCK_WAIT_SECONDS
        while True:
            try:
                return self._execute("begin_writing")
            except sqlite3.OperationalError as error:
                if primary_result_code(error) != sqlite3.SQLITE_BUSY or self._clock.monotonic() >= give_up_at:
                    raise
            await self._clock.sleep(LOCK_RETRY_SECONDS)

    async def _run_group(self, group: list[_UnitOfWork]) -> None:
        self._integrity.require_intact()
        await self._begin_transaction()
        if len(group) == 1:
            await self._perform_alone(group[0])
        elif not await self._run_without_savepoints(group):
            await self._begin_transaction()
            await self._run_with_savepoints(group)

    async def _perform_alone(self, unit: _UnitOfWork) -> None:
        """Run a unit without neighbours: when it raises, the whole transaction is undone, and nobody else's rows with it."""
        changes = self._connection.total_changes
        try:
            await self._run_unit(unit)
        except Exception as error:  # boundary: it is its caller's
            if _fails_whole_group(error) or not self._connection.in_transaction:
                raise
            unit.error = error
            if self._connection.total_changes != changes:
                self._suspect(unit)
                self._connection.rollback()
                await self._begin_transaction()

    async def _run_without_savepoints(self, group: list[_UnitOfWork]) -> bool:
        """Run the units one after the other; False if one raised after it had written: then all of them are undone."""
        for unit in group:
            if self._needs_savepoint(unit):
                await self._run_with_savepoints([unit])
                continue
            changes = self._connection.total_changes
            try:
                await self._run_unit(unit)
            except Exception as error:  # boundary: whose error it is, and whether it stays, shows when it is run apart
                if _fails_whole_group(error):
                    raise
                if self._connection.in_transaction and self._connection.total_changes == changes:
                    unit.error = error  # nothing is to be undone: it fails alone
                    continue
                self._connection.rollback()
                for each in group:
                    each.reset_after_rollback()
                return False
        return True

    async def _run_with_savepoints(self, group: list[_UnitOfWork]) -> None:
        """Run the units so that one that raises is undone alone."""
        for unit in group:
            self._execute("savepoint")
            changes = self._connection.total_changes
            try:
                await self._run_unit(unit)
            except Exception as error:  # boundary: it is its caller's, and no business of its neighbours
                if _fails_whole_group(error) or not self._connection.in_transaction:
                    raise  # it is everybody's, or SQLite itself has undone the whole group
                unit.error = error
                if self._connection.total_changes != changes:
                    self._suspect(unit)
                self._execute("rollback_to_savepoint")
            self._execute("release_savepoint")

    def _suspect(self, unit: _UnitOfWork) -> None:
        self._savepoint_until[unit.work_name] = self._clock.monotonic() + SAVEPOINT_SECONDS

    def _needs_savepoint(self, unit: _UnitOfWork) -> bool:
        return bool(self._savepoint_until) and self._savepoint_until.get(unit.work_name, 0.0) > self._clock.monotonic()

    async def _run_unit(self, unit: _UnitOfWork) -> None:
        if unit.done.cancelled():
            return
        transaction = SqliteTransaction(
            self._connection, sealer=self._sealer, webhook_reader=self._reader, now=self._clock.now()
        )
        unit.topics = transaction.topics
        unit.commit_actions, unit.rollback_actions = transaction.commit_actions, transaction.rollback_actions
        unit.value = await run_in_steps(unit.work(transaction))

    def _complete_group(self, group: list[_UnitOfWork]) -> None:
        _end_all(group)
        self._notify(topic for unit in group if unit.error is None for topic in unit.topics)

    def _roll_back_group(self, group: list[_UnitOfWork], error: Exception) -> None:
        self._integrity.record_error(error)
        self._log_rollback(group, error)
        with suppress(sqlite3.Error):  # what failed may have rolled back already, or fail again
            self._connection.rollback()
        for unit in group:
            unit.error = self._integrity.failure or to_store_unavailable(error)
        _end_all(group)

    def _log_rollback(self, group: list[_UnitOfWork], error: Exception) -> None:
        """One line for a trouble, however many groups meet it: a disk may be full for a weekend."""
        reason = (self._integrity.failure or to_store_unavailable(error)).detail
        if reason != self._logged_failure:
            self._logged_failure = reason
            bug = None if isinstance(error, sqlite3.Error | StoreUnavailable) else error
            log.error("store.group_undone", extra={"units": len(group), "reason": reason}, exc_info=bug)

    def _note_success(self, *, wrote: bool) -> None:
        if wrote and self._logged_failure is not None:
            self._logged_failure = None
            log.info("store.written_again")

    def _execute(self, name: str) -> None:
        self._connection.execute(SESSION_STATEMENTS[name])


def _end_all(group: Sequence[_UnitOfWork]) -> None:
    """Callers first: they go on before what begins at the ends of units, and an admission's caller writes the 202."""
    for unit in group:
        unit.tell()
    for unit in group:
        unit.end()


def _tell(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _fails_whole_group(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error) and primary_result_code(error) in _GROUP_FAILURE_CODES
