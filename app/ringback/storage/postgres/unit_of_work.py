"""Runs one unit of work in a transaction on one connection.

    BEGIN ─▶ the unit's statements ─▶ COMMIT ─▶ caller, end actions, notifications
                 │ a conflict with another unit: ROLLBACK, and the unit again
                 │ any other error: ROLLBACK, and the error to the caller
                 │ the connection is lost: PostgreSQL rolls back; StoreUnavailable to the caller
                 │ the server is a standby: the same, and the next unit connects anew, perhaps to the primary
                 │ a proxy has replaced the session, as some do that hide a failover: the same

Units run at READ COMMITTED and lock what they decide about (`domain.ports`). A connection that is lost during COMMIT leaves
open whether the unit was committed. Its caller gets `StoreUnavailable`, which says so, and its rollback actions run: what
memory holds for the unit is freed. Its notifications are sent, because they only make waiters read the store. Everything that
callers do afterwards is safe in both cases: it repeats with an idempotency key, or its write names the state or the lease that
it expects.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

import asyncpg

from ringback.backoff import Backoff
from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.errors import StoreUnavailable
from ringback.storage.postgres.driver import Connection
from ringback.storage.postgres.errors import is_conflict, is_connection_lost, is_session_replaced, to_caller_error
from ringback.storage.postgres.statements import UnitConnection, load_sql
from ringback.storage.postgres.transaction import PostgresTransaction
from ringback.storage.rows.unit import PAUSED
from ringback.storage.rows.webhook_reader import CachingWebhookReader
from ringback.storage.units import UnitOfWork, complete_units

T = TypeVar("T")

log = logging.getLogger(__name__)

RUNS_MAX: Final = 6
"""Runs of one unit. A second run finds the row that another unit inserted; more are needed only where many units deadlock."""
CONFLICT_BACKOFF: Final = Backoff(first_seconds=0.02, longest_seconds=0.5, jitter_fraction=0.5)
"""The pauses before the third run and later ones. A unit takes milliseconds; those that collide again part by the jitter."""

_SESSION: Final = load_sql("session")


class CommitUnanswered(StoreUnavailable):
    """The database cannot be used.

    The connection was lost during COMMIT, so PostgreSQL has committed the unit or rolled it back.
    """


class OnlyReads(StoreUnavailable):
    """The database cannot be used.

    The server is a standby, which only reads.
    """


class UnitRunner:
    """Runs units on any connection; it belongs to one store and one event loop."""

    def __init__(
        self,
        *,
        clock: Clock,
        sealer: Sealer,
        notify: Callable[[Iterable[str]], None],
        on_silence: Callable[[], None],
        random_fraction: Callable[[], float],
    ) -> None:
        """`on_silence` is called when other connections are likely to be useless, too. `random_fraction` is uniform in [0, 1).

        A unit then got no answer in time, or from a server that only reads, or its connection has another session.
        """
        self._clock = clock
        self._sealer = sealer
        self._notify = notify
        self._on_silence = on_silence
        self._random_fraction = random_fraction
        self._webhook_reader = CachingWebhookReader(sealer, is_shared=True)

    async def run_writing(self, connection: Connection, unit: UnitOfWork) -> None:
        """Run the unit to its commit or rollback, and then its end actions. Raises nothing."""
        await self._run_until_no_conflict(connection, unit, begin="begin_writing", takes_locks=True)
        complete_units([unit])
        if unit.error is None or isinstance(unit.error, CommitUnanswered):
            self._notify(unit.topics)

    async def run_reading(self, connection: Connection, unit: UnitOfWork) -> None:
        """Run the unit on one snapshot. Its notifications are dropped. Raises nothing."""
        await self._run_until_no_conflict(connection, unit, begin="begin_reading", takes_locks=False)
        unit.resolve()  # once more, if the work raised

    async def _run_until_no_conflict(
        self, connection: Connection, unit: UnitOfWork, *, begin: str, takes_locks: bool
    ) -> None:
        began_at = self._clock.monotonic()
        for run in range(1, RUNS_MAX + 1):
            await self._run(connection, unit, begin=begin, takes_locks=takes_locks)
            if unit.error is None or not is_conflict(unit.error) or connection.is_closed():
                break
            if run < RUNS_MAX:
                log.info("store.unit_repeated", extra={"work": unit.work_name, "reason": type(unit.error).__name__})
                unit.reset_after_rollback()
                await self._pause_after(run)
        if unit.error is not None:
            unit.error = to_caller_error(unit.error, ran_seconds=self._clock.monotonic() - began_at)

    async def _pause_after(self, run: int) -> None:
        """The second run comes at once: it usually finds the row that another unit inserted."""
        if run > 1:
            pause_seconds = CONFLICT_BACKOFF.pause_seconds(run - 1, random_fraction=self._random_fraction())
            await self._clock.sleep(pause_seconds)

    async def _run(self, connection: Connection, unit: UnitOfWork, *, begin: str, takes_locks: bool) -> None:
        try:
            await begin_transaction(connection, _SESSION[begin].writing)
            unit_connection = UnitConnection(connection, takes_locks=takes_locks)
            transaction = PostgresTransaction(
                unit_connection,
                sealer=self._sealer,
                webhook_reader=self._webhook_reader,
                now=self._clock.now(),
                confirmed_now=self._clock.confirmed_now(),
            )
            unit.begin_run(transaction)
            unit.value = await _Steps(unit.work(transaction), unit_connection)
            if takes_locks:
                unit.end_admission()
            else:
                unit.resolve()  # what was read is read, whatever the end of its transaction is
            unit.run_committing_actions()
            await commit_transaction(connection)
        except Exception as error:  # boundary: the error is its caller's  # noqa: BLE001
            unit.error = error
            await _roll_back(connection, error)
            cause = error.__cause__ or error
            if isinstance(error, OnlyReads) or isinstance(cause, TimeoutError) or is_session_replaced(cause):
                self._on_silence()


async def begin_transaction(connection: Connection, statement: str) -> None:
    """Raises `OnlyReads` if the server has become a standby: after a failover, a proxy may still lead to it."""
    try:
        await connection.execute(statement)
    except asyncpg.FeatureNotSupportedError as error:  # `READ WRITE`, of which nothing else is not supported
        raise OnlyReads(
            "The database cannot be used now: the server is a standby, which only reads. Try again."
        ) from error


async def commit_transaction(connection: Connection) -> None:
    """Raises `CommitUnanswered` if the connection is lost meanwhile."""
    try:
        status = await connection.execute(_SESSION["commit"].writing)
    except Exception as error:
        if is_connection_lost(error):
            raise CommitUnanswered(
                "The connection to the database was lost during the commit: what you sent may have been stored."
                " Repeat it with the same Idempotency-Key."
            ) from error
        raise
    if status != "COMMIT":  # PostgreSQL answers ROLLBACK if a statement has failed
        raise RuntimeError("A unit of work went on after a statement that failed, so nothing of it is stored.")


async def _roll_back(connection: Connection, error: Exception) -> None:
    """Leave the connection without a transaction, or closed."""
    if isinstance(error, CommitUnanswered | OnlyReads) or is_connection_lost(error) or is_session_replaced(error):
        connection.terminate()
    elif connection.is_in_transaction():
        try:
            await connection.execute(_SESSION["rollback"].writing)
        except Exception:  # noqa: BLE001 - PostgreSQL rolls back when the connection ends
            connection.terminate()


class _Steps(Generic[T]):
    """Awaits a unit of work, and refuses one that waits for anything but its connection."""

    def __init__(self, work: Awaitable[T], connection: UnitConnection) -> None:
        self._work = work
        self._connection = connection

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self._work.__await__()
        resume: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                reached = resume()
            except StopIteration as end:
                return end.value
            if reached is PAUSED:
                reached = None  # the event loop runs others, and then this task again
            elif not self._connection.is_waiting:
                with suppress(Exception):
                    steps.close()
                raise RuntimeError(
                    "A unit of work waited for something that is not its transaction. Do that before or after, never inside."
                )
            try:
                yield reached
            except BaseException as error:  # noqa: BLE001 - it is raised inside the unit
                resume = partial(steps.throw, error)
            else:
                resume = partial(next, steps)
