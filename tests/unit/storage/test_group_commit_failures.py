"""Group commits whose units fail: which of them are rolled back, run again or get an error."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.storage.sqlite.group_commit import (
    LOCK_WAIT_SECONDS,
    SAVEPOINT_SECONDS,
    GroupCommit,
)
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.examples import ALICE
from tests.support.group_commits import add_end_actions, full_disk, head, reserve


async def test_a_wrong_statement_raises_to_its_caller(writer: GroupCommit) -> None:
    call = make_call()
    await writer.write(lambda tx: tx.calls.insert(call))

    with pytest.raises(sqlite3.IntegrityError):
        await writer.write(lambda tx: tx.calls.insert(call))


async def test_a_failed_commit_rolls_back_the_group_and_fails_every_transaction(
    writer: GroupCommit, notified: list[str], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await writer.write(reserve)

    with full_disk(path):
        outcomes = await asyncio.gather(*(writer.write(reserve) for _ in range(5)), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 5
    assert notified == ["grown"]
    assert await head(writer) == 1
    failures = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert failures == ["store.group_rolled_back"]
    assert await writer.write(reserve) == 2


async def test_a_full_disk_in_one_unit_rolls_back_the_group_because_sqlite_does(
    writer: GroupCommit, connection: sqlite3.Connection
) -> None:
    call = make_call()
    await writer.write(lambda tx: tx.calls.insert(call))
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")  # takes no parameters

    outcomes = await asyncio.gather(
        writer.write(reserve),
        writer.write(lambda tx: tx.call_completions.put_results({call.id: b"x" * 1_000_000})),
        return_exceptions=True,
    )

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
    assert await head(writer) == 0
    assert await writer.write(reserve) == 1


@pytest.mark.parametrize("writes_before", [False, True])
@pytest.mark.parametrize("neighbours", [0, 2])
@pytest.mark.parametrize("code", ["SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB"])
async def test_a_file_error_in_one_unit_rolls_back_its_group_at_once_whether_or_not_it_had_written(
    writer: GroupCommit, commits: list[str], code: str, neighbours: int, *, writes_before: bool
) -> None:
    neighbour = OtherUnit()

    async def meet_trouble(tx: Transaction) -> None:
        await (reserve(tx) if writes_before else tx.event_log.get_head(ALICE))
        error = sqlite3.DatabaseError("trouble")
        error.sqlite_errorcode = getattr(sqlite3, code)
        raise error

    works = [*[neighbour.work] * neighbours, meet_trouble, *[neighbour.work] * neighbours]
    outcomes = await asyncio.gather(*(writer.write(work) for work in works), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * len(works)
    assert len(set(map(str, outcomes))) == 1
    assert neighbour.runs == neighbours
    assert commits == []
    if code in {"SQLITE_CORRUPT", "SQLITE_NOTADB"}:
        assert "is damaged" in str(outcomes[0])
        with pytest.raises(StoreUnavailable, match="is damaged"):
            await writer.write(reserve)
    else:
        assert "try again" in str(outcomes[0])
        assert await writer.write(reserve) == 1


async def test_a_transaction_that_raises_restarts_its_group_and_is_rolled_back_alone(
    writer: GroupCommit, notified: list[str], commits: list[str]
) -> None:
    committed: list[bool] = []
    runs = 0

    async def reserve_and_tell(tx: Transaction) -> int:
        nonlocal runs
        runs += 1
        add_end_actions(tx, committed)
        return await reserve(tx)

    async def failing(tx: Transaction) -> None:
        await reserve(tx)
        raise LookupError

    outcomes = await asyncio.gather(
        writer.write(reserve_and_tell), writer.write(failing), writer.write(reserve_and_tell), return_exceptions=True
    )

    assert [outcomes[0], type(outcomes[1]), outcomes[2]] == [1, LookupError, 2]
    assert runs == 3
    assert committed == [False, True, True]
    assert notified == ["grown", "grown"]
    assert len(commits) == 1
    assert await head(writer) == 2


class OtherUnit:
    """A unit that counts how often it is run."""

    def __init__(self) -> None:
        self.runs = 0

    async def work(self, tx: Transaction) -> int:
        self.runs += 1
        return await reserve(tx)


async def raise_not_found(tx: Transaction) -> None:
    """As a quota or an unknown id does: read, then raise."""
    await tx.event_log.get_head(ALICE)
    tx.notify("never sent")
    raise LookupError


async def raise_disk_error(tx: Transaction) -> None:
    await reserve(tx)
    raise LookupError


async def test_a_transaction_that_raises_before_a_write_fails_alone_and_no_other_is_repeated(
    writer: GroupCommit, notified: list[str], commits: list[str]
) -> None:
    neighbour, committed = OtherUnit(), list[bool]()

    async def refuse_and_tell(tx: Transaction) -> None:
        add_end_actions(tx, committed)
        await raise_not_found(tx)

    outcomes = await asyncio.gather(
        *(
            writer.write(work)
            for work in [neighbour.work, refuse_and_tell, neighbour.work, raise_not_found, neighbour.work]
        ),
        return_exceptions=True,
    )

    assert [outcomes[0], outcomes[2], outcomes[4]] == [1, 2, 3]
    assert [type(outcomes[1]), type(outcomes[3])] == [LookupError, LookupError]
    assert neighbour.runs == 3
    assert committed == [False]
    assert notified == ["grown"] * 3
    assert len(commits) == 1


async def test_an_insert_of_an_existing_row_counts_as_no_write(writer: GroupCommit) -> None:
    call, neighbour = make_call(), OtherUnit()
    await writer.write(lambda tx: tx.calls.insert(call))

    outcomes = await asyncio.gather(
        writer.write(neighbour.work), writer.write(lambda tx: tx.calls.insert(call)), return_exceptions=True
    )

    assert [outcomes[0], type(outcomes[1])] == [1, sqlite3.IntegrityError]
    assert neighbour.runs == 1


async def test_a_function_that_raises_after_a_write_makes_other_units_run_again_only_once(
    writer: GroupCommit, clock: FakeClock
) -> None:
    neighbour = OtherUnit()

    async def groups(count: int) -> None:
        for _ in range(count):
            outcomes = await asyncio.gather(
                *(writer.write(work) for work in [neighbour.work, raise_disk_error, neighbour.work]),
                return_exceptions=True,
            )
            assert [type(outcome) for outcome in outcomes] == [int, LookupError, int]

    await groups(50)
    assert neighbour.runs == 2 * 50 + 1
    assert await head(writer) == 2 * 50

    clock.advance(SAVEPOINT_SECONDS)
    await groups(1)
    assert neighbour.runs == 2 * 51 + 2


async def test_a_transaction_that_fails_alone_is_retried_with_its_group_and_gets_the_last_error(
    writer: GroupCommit,
) -> None:
    outcomes = await asyncio.gather(
        *(writer.write(work) for work in [raise_not_found, reserve, raise_disk_error, reserve]), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [LookupError, int, LookupError, int]
    assert await head(writer) == 2


async def test_a_unit_waits_for_the_lock_of_another_process(writer: GroupCommit, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(writer.write(reserve))
        for _ in range(5):
            await asyncio.sleep(0)
        waiting = not writing.done()
        other.execute("COMMIT")

    assert waiting
    assert await writing == 1


async def test_a_lock_that_is_never_released_makes_the_store_unavailable(
    writer: GroupCommit, path: Path, clock: FakeClock
) -> None:
    began = clock.monotonic()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        outcomes = await asyncio.gather(writer.write(reserve), writer.write(reserve), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
    assert "locked" in str(outcomes[0])
    assert clock.monotonic() - began == pytest.approx(LOCK_WAIT_SECONDS, abs=0.01)
    assert await writer.write(reserve) == 1
