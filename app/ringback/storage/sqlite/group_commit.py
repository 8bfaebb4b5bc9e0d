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

from ringback.admission import begin_background, is_admission
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.domain.sealed import Sealer
from ringback.storage.sqlite.commits import Commits
from ringback.storage.sqlite.database import SESSION, caller_sees, result_code, unavailable
from ringback.storage.sqlite.transaction import SqliteTransaction, drive_in_turns
from ringback.storage.sqlite.trust import Trust
from ringback.storage.sqlite.webhooks import WebhookReader

T = TypeVar("T")

log = logging.getLogger(__name__)

UNITS_IN_GROUP_MAX: Final = 128
"""Where larger groups stop paying (100 rows a commit reach 36,000 rows/s, 41,000 is what there is to reach: measured), while a
full group still keeps the event loop for some ten milliseconds only."""
UNITS_BESIDE_ADMISSIONS: Final = 4
"""Other units in a group that starts calls: they go on, and the start is soon on disk."""
SHARE_BESIDE_ADMISSIONS: Final = 4
"""If that is more: of the others that wait, one in so many. Leases are prolonged by such units, so a flood of starts must not
make their queue longer and longer."""
LOCK_WAIT_SECONDS: Final = 5.0
"""How long another process may hold the file. A command line tool holds it for milliseconds."""
LOCK_PAUSE_SECONDS: Final = 0.005
_OF_THE_FILE: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOTADB}
)
"""Result codes that tell of the file that all units of a group share, whichever of them meets it."""
SUSPECT_SECONDS: Final = 600.0
"""How long units of a kind get savepoints after one of them has raised and had written. A kind is a function of our code, so
there are some dozens of them; one more run of a group for each of them in ten minutes is nothing."""


@dataclass(slots=True, eq=False)
class _Unit:
    work: Callable[[Transaction], Awaitable[Any]]
    done: asyncio.Future[Any]
    value: Any = None
    error: Exception | None = None
    rung: list[str] = field(default_factory=list[str])
    endings: list[Callable[[bool], None]] = field(default_factory=list[Callable[[bool], None]])

    @property
    def kind(self) -> str:
        """The function that the work is, by its name in the code."""
        work: Any = self.work
        work = getattr(work, "func", work)  # of a `partial`
        return getattr(work, "__qualname__", type(work).__qualname__)

    def undone(self) -> None:
        """It was rolled back, and will be run again."""
        self._end(committed=False)
        self.rung, self.endings, self.error = [], [], None

    def tell(self) -> None:
        """Let the caller go on in the next turn of the event loop, unless it has gone."""
        if self.done.done():
            return
        if self.error is None:
            self.done.set_result(self.value)
        else:
            self.done.set_exception(caller_sees(self.error))

    def end(self) -> None:
        """Do what was left for the end."""
        self._end(committed=self.error is None)

    def _end(self, *, committed: bool) -> None:
        for ending in self.endings:
            try:
                ending(committed)
            except Exception:  # the boundary between a bug of one and everybody who waits for the same commit
                log.exception("store.ending_failed")


class GroupCommit:
    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        clock: Clock,
        sealer: Sealer,
        reader: WebhookReader,
        ring: Callable[[Iterable[str]], None],
        commits: Commits,
        trust: Trust,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._sealer = sealer
        self._reader = reader
        self._ring = ring
        self._commits = commits
        self._trust = trust
        self._failing: str | None = None
        """Why the last group that had something to write was undone, once that is in the log."""
        self._waiting: deque[_Unit] = deque()
        self._admissions: deque[_Unit] = deque()
        """Units that start calls: written before those that wait, of which some are taken along (`ringback.admission`)."""
        self._writing: asyncio.Task[None] | None = None
        self._suspect_until: dict[str, float] = {}
        """Kinds of units that have raised after they had written, and until when (monotonic) they get savepoints."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ringback-commit")

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        unit = _Unit(work, asyncio.get_running_loop().create_future())
        (self._admissions if is_admission() else self._waiting).append(unit)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="sqlite-writer")
        try:
            return await unit.done
        finally:
            unit.done.cancel()  # a caller that goes before its turn takes its unit along

    async def close(self) -> None:
        """Finish what was handed in."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._thread.shutdown()

    async def _write_all(self) -> None:
        begin_background()  # it writes for everybody, and what begins at the end of a unit is begun in its context
        while self._waiting or self._admissions:
            group = self._next_group()
            try:
                await self._perform_all(group)
                wrote = await self._commit()
            except Exception as error:  # noqa: BLE001 - boundary: whatever broke, nobody may be left waiting
                self._undo(group, error)
            else:
                self._note_success(wrote=wrote)
                self._settle(group)

    async def _commit(self) -> bool:
        """Whether anything was written. What was not written is not waited for."""
        if wrote := self._commits.prepare():
            await self._commit_in_thread()
        else:
            self._commits.commit(wrote=False)
        self._commits.conclude(wrote=wrote)
        return wrote

    async def _commit_in_thread(self) -> None:
        """As `run_in_executor`, which takes one more turn of the event loop to tell: in it, everything else goes first."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def commit() -> None:
            error: Exception | None = None
            try:
                self._commits.commit(wrote=True)
            except Exception as raised:  # noqa: BLE001 - it is raised where the commit is waited for
                error = raised
            loop.call_soon_threadsafe(_tell, done, error)

        self._thread.submit(commit)
        await done

    def _next_group(self) -> list[_Unit]:
        group = [self._admissions.popleft() for _ in range(min(len(self._admissions), UNITS_IN_GROUP_MAX))]
        waiting = len(self._waiting)
        room = max(UNITS_BESIDE_ADMISSIONS, waiting // SHARE_BESIDE_ADMISSIONS) if group else UNITS_IN_GROUP_MAX
        return group + [self._waiting.popleft() for _ in range(min(waiting, room, UNITS_IN_GROUP_MAX))]

    async def _begin(self) -> None:
        """Wait for another process's lock here and not inside SQLite, which would hold the event loop still."""
        give_up_at = self._clock.monotonic() + LOCK_WAIT_SECONDS
        while True:
            try:
                return self._execute("begin_writing")
            except sqlite3.OperationalError as error:
                if result_code(error) != sqlite3.SQLITE_BUSY or self._clock.monotonic() >= give_up_at:
                    raise
            await self._clock.sleep(LOCK_PAUSE_SECONDS)

    async def _perform_all(self, group: list[_Unit]) -> None:
        self._trust.require()
        await self._begin()
        if len(group) == 1:
            await self._perform_alone(group[0])
        elif not await self._perform_together(group):
            await self._begin()
            await self._perform_apart(group)

    async def _perform_alone(self, unit: _Unit) -> None:
        """Run a unit without neighbours: when it raises, the whole transaction is undone, and nobody else's rows with it."""
        changes = self._connection.total_changes
        try:
            await self._perform(unit)
        except Exception as error:  # boundary: it is its caller's
            if _is_of_the_file(error) or not self._connection.in_transaction:
                raise
            unit.error = error
            if self._connection.total_changes != changes:
                self._suspect(unit)
                self._connection.rollback()
                await self._begin()

    async def _perform_together(self, group: list[_Unit]) -> bool:
        """Run the units one after the other; False if one raised after it had written: then all of them are undone."""
        for unit in group:
            if self._is_suspect(unit):
                await self._perform_apart([unit])
                continue
            changes = self._connection.total_changes
            try:
                await self._perform(unit)
            except Exception as error:  # boundary: whose error it is, and whether it stays, shows when it is run apart
                if _is_of_the_file(error):
                    raise
                if self._connection.in_transaction and self._connection.total_changes == changes:
                    unit.error = error  # nothing is to be undone: it fails alone
                    continue
                self._connection.rollback()
                for each in group:
                    each.undone()
                return False
        return True

    async def _perform_apart(self, group: list[_Unit]) -> None:
        """Run the units so that one that raises is undone alone."""
        for unit in group:
            self._execute("start_unit")
            changes = self._connection.total_changes
            try:
                await self._perform(unit)
            except Exception as error:  # boundary: it is its caller's, and no business of its neighbours
                if _is_of_the_file(error) or not self._connection.in_transaction:
                    raise  # it is everybody's, or SQLite itself has undone the whole group
                unit.error = error
                if self._connection.total_changes != changes:
                    self._suspect(unit)
                self._execute("undo_unit")
            self._execute("end_unit")

    def _suspect(self, unit: _Unit) -> None:
        self._suspect_until[unit.kind] = self._clock.monotonic() + SUSPECT_SECONDS

    def _is_suspect(self, unit: _Unit) -> bool:
        return bool(self._suspect_until) and self._suspect_until.get(unit.kind, 0.0) > self._clock.monotonic()

    async def _perform(self, unit: _Unit) -> None:
        if unit.done.cancelled():
            return
        transaction = SqliteTransaction(
            self._connection, sealer=self._sealer, reader=self._reader, now=self._clock.now()
        )
        unit.rung, unit.endings = transaction.rung, transaction.endings
        unit.value = await drive_in_turns(unit.work(transaction))

    def _settle(self, group: list[_Unit]) -> None:
        _end_all(group)
        self._ring(topic for unit in group if unit.error is None for topic in unit.rung)

    def _undo(self, group: list[_Unit], error: Exception) -> None:
        self._trust.note(error)
        self._log_undone(group, error)
        with suppress(sqlite3.Error):  # what failed may have rolled back already, or fail again
            self._connection.rollback()
        for unit in group:
            unit.error = self._trust.problem or unavailable(error)
        _end_all(group)

    def _log_undone(self, group: list[_Unit], error: Exception) -> None:
        """One line for a trouble, however many groups meet it: a disk may be full for a weekend."""
        reason = (self._trust.problem or unavailable(error)).detail
        if reason != self._failing:
            self._failing = reason
            bug = None if isinstance(error, sqlite3.Error | StoreUnavailable) else error
            log.error("store.group_undone", extra={"units": len(group), "reason": reason}, exc_info=bug)

    def _note_success(self, *, wrote: bool) -> None:
        if wrote and self._failing is not None:
            self._failing = None
            log.info("store.written_again")

    def _execute(self, name: str) -> None:
        self._connection.execute(SESSION[name])


def _end_all(group: Sequence[_Unit]) -> None:
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


def _is_of_the_file(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error) and result_code(error) in _OF_THE_FILE
