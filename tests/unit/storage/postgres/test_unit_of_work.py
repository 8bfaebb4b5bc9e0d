"""One unit of work on PostgreSQL: conflicts run it again, and a commit counts only if PostgreSQL says COMMIT."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from ringback.domain.errors import RowsLocked, StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.storage.postgres import store as store_module
from ringback.storage.postgres.driver import Connection, connect
from ringback.storage.postgres.store import PostgresStore
from ringback.storage.postgres.unit_of_work import RUNS_MAX
from tests.support.builders import make_api_key, make_call
from tests.support.clock import START, FakeClock
from tests.support.stores import make_sealer


def fail(error: Exception, *, times: int) -> tuple[Callable[[Transaction], Awaitable[int]], list[int]]:
    """A unit that raises the error so many times, and the numbers of its runs."""
    runs: list[int] = []

    async def work(_tx: Transaction) -> int:
        runs.append(len(runs) + 1)
        if len(runs) <= times:
            raise error
        return len(runs)

    return work, runs


class LosesTheAnswerOfCommit:
    """A connection that ends after PostgreSQL has committed, before it says so."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, query: str, *values: Any) -> str:
        status = await self._connection.execute(query, *values)
        if query.startswith("COMMIT"):
            self._connection.terminate()
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
        return status


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.DeadlockDetectedError("deadlock detected"),
        asyncpg.SerializationError("could not serialize"),
        asyncpg.InvalidCachedStatementError("cached statement plan is invalid"),
    ],
)
async def test_a_unit_that_meets_conflicts_in_every_run_may_be_tried_again_and_the_database_is_not_logged_as_unavailable(
    store: PostgresStore, clock: FakeClock, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    work, runs = fail(error, times=RUNS_MAX)

    with pytest.raises(RowsLocked, match="again and again") as raised:
        await store.write(work)
    assert raised.value.waited_seconds == (clock.now() - START).total_seconds()
    assert "store.rows_locked" in caplog.messages
    assert "store.unavailable" not in caplog.messages
    assert len(runs) == RUNS_MAX
    assert clock.now() > START  # later runs come after pauses
    assert await store.write(work) == RUNS_MAX + 1


async def test_the_run_after_the_first_conflict_comes_at_once(store: PostgresStore, clock: FakeClock) -> None:
    work, _ = fail(asyncpg.DeadlockDetectedError("deadlock detected"), times=1)

    assert await store.write(work) == 2
    assert clock.now() == START


async def test_a_unit_that_violates_a_unique_index_in_every_run_gets_that_error(store: PostgresStore) -> None:
    work, runs = fail(asyncpg.UniqueViolationError("duplicate key"), times=RUNS_MAX)

    with pytest.raises(asyncpg.UniqueViolationError):
        await store.write(work)
    assert len(runs) == RUNS_MAX


async def test_a_reader_whose_plans_a_migration_has_changed_reads_again(store: PostgresStore) -> None:
    work, _ = fail(asyncpg.InvalidCachedStatementError("cached statement plan is invalid"), times=1)
    assert await store.read(work) == 2

    work, _ = fail(asyncpg.InvalidCachedStatementError("cached statement plan is invalid"), times=1)
    assert await store.scan(None, work) == 2


async def test_a_unit_that_goes_on_after_a_failed_statement_is_not_acknowledged(store: Store) -> None:
    call, ends = make_call(), list[str]()

    async def work(tx: Transaction) -> None:
        tx.on_commit(lambda: ends.append("commit"))
        tx.on_rollback(lambda: ends.append("rollback"))
        await tx.calls.insert(call)
        with suppress(Exception):
            await tx.api_keys.insert(make_api_key(name="nul\x00"))

    with pytest.raises(RuntimeError, match="nothing of it is stored"):
        await store.write(work)
    assert ends == ["rollback"]
    assert await store.read(lambda tx: tx.calls.get(call.id)) is None


async def test_a_caller_whose_commit_gets_no_answer_learns_that_it_may_be_stored_and_waiters_look(
    url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect_badly(url: str) -> Any:
        return LosesTheAnswerOfCommit(await connect(url))

    call, ends = make_call(), list[str]()

    async def work(tx: Transaction) -> None:
        tx.on_commit(lambda: ends.append("commit"))
        tx.on_rollback(lambda: ends.append("rollback"))
        tx.notify("topic")
        await tx.calls.insert(call)

    monkeypatch.setattr(store_module, "connect_for_units", connect_badly)
    store = PostgresStore(url, clock=clock, sealer=make_sealer())
    await store.open()
    with store.signals.listen("topic") as waiter:
        with pytest.raises(StoreUnavailable, match=r"may have been stored\. Repeat it with the same Idempotency-Key"):
            await store.write(work)
        monkeypatch.setattr(store_module, "connect_for_units", connect)

        assert await waiter.wait(0)
    assert ends == ["rollback"]
    assert await store.read(lambda tx: tx.calls.get(call.id)) is not None
    await store.close()
