"""Group commits: which units share one, and which fail together."""

import asyncio
import resource
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ringback.admission import AdmissionGate, is_in_admission
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.storage.sqlite.commit_counter import CommitCounter
from ringback.storage.sqlite.database import connect, enable_wal
from ringback.storage.sqlite.group_commit import (
    BACKGROUND_SHARE_DIVISOR,
    LOCK_WAIT_SECONDS,
    SAVEPOINT_SECONDS,
    UNITS_IN_GROUP_MAX,
    GroupCommit,
)
from ringback.storage.sqlite.integrity import DatabaseIntegrity
from ringback.storage.sqlite.migrator import apply_migrations, load_migrations
from ringback.storage.sqlite.webhooks import CachingWebhookReader
from tests.support.builders import make_call
from tests.support.clock import START, FakeClock
from tests.support.examples import ALICE
from tests.support.stores import make_sealer


@pytest.fixture
def connection(path: Path) -> Generator[sqlite3.Connection]:
    with closing(connect(path, lock_wait_seconds=0)) as connection:
        enable_wal(connection)
        apply_migrations(connection, load_migrations(), now=START)
        yield connection


@pytest.fixture
def commits(connection: sqlite3.Connection) -> list[str]:
    """One entry for every COMMIT that reaches SQLite."""
    seen: list[str] = []
    connection.set_trace_callback(lambda sql: seen.append(sql) if sql.startswith("COMMIT") else None)
    return seen


@pytest.fixture
def notified() -> list[str]:
    return []


@pytest.fixture
async def writer(
    connection: sqlite3.Connection, path: Path, clock: FakeClock, notified: list[str]
) -> AsyncGenerator[GroupCommit]:
    trust = DatabaseIntegrity(path)
    writer = GroupCommit(
        connection,
        clock=clock,
        sealer=make_sealer(),
        reader=CachingWebhookReader(make_sealer()),
        notify=notified.extend,
        commits=CommitCounter(connection, trust=trust),
        integrity=trust,
    )
    yield writer
    await writer.close()


async def reserve(tx: Transaction) -> int:
    tx.notify("grown")
    return await tx.events.reserve_seqs(ALICE, 1)


def add_end_actions(tx: Transaction, committed: list[bool]) -> None:
    """Append True once the transaction is committed, False once it is rolled back."""
    tx.on_commit(lambda: committed.append(True))
    tx.on_rollback(lambda: committed.append(False))


async def head(writer: GroupCommit) -> int:
    return await writer.write(lambda tx: tx.event_log.get_head(ALICE))


@contextmanager
def full_disk(path: Path) -> Generator[None]:
    """The operating system refuses to let the write-ahead log grow."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name(f"{path.name}-wal").stat().st_size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_units_that_arrive_together_share_one_commit(writer: GroupCommit, commits: list[str]) -> None:
    await asyncio.gather(*(writer.write(reserve) for _ in range(50)))

    assert len(commits) == 1
    assert await head(writer) == 50


async def test_units_that_arrive_during_a_commit_form_the_next_group(writer: GroupCommit, commits: list[str]) -> None:
    async def ten_in_a_row() -> None:
        for _ in range(10):
            await writer.write(reserve)

    await asyncio.gather(*(ten_in_a_row() for _ in range(20)))

    assert len(commits) < 40
    assert await head(writer) == 200


async def test_a_group_is_bounded(writer: GroupCommit, commits: list[str]) -> None:
    await asyncio.gather(*(writer.write(reserve) for _ in range(2 * UNITS_IN_GROUP_MAX + 1)))

    assert len(commits) == 3


async def test_the_event_loop_runs_during_a_commit(writer: GroupCommit) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while not writing.done():
            turns += 1
            await asyncio.sleep(0)

    writing = asyncio.create_task(writer.write(reserve))
    await other()

    assert await writing == 1
    assert turns > 2


WAITING_CASES: dict[str, Callable[[GroupCommit], Awaitable[object]]] = {
    "a turn of the loop": lambda _: asyncio.sleep(0),
    "another unit": lambda writer: writer.write(reserve),
    "a future": lambda _: asyncio.get_running_loop().create_future(),
}


@pytest.mark.parametrize("wait", WAITING_CASES.values(), ids=WAITING_CASES)
async def test_a_transaction_that_awaits_anything_else_is_rolled_back_with_an_error(
    writer: GroupCommit, wait: Callable[[GroupCommit], Awaitable[object]]
) -> None:
    async def waiting(tx: Transaction) -> None:
        await reserve(tx)
        await wait(writer)

    outcomes = await asyncio.gather(writer.write(waiting), writer.write(reserve), return_exceptions=True)

    assert isinstance(outcomes[0], RuntimeError)
    assert "never inside" in str(outcomes[0])
    assert outcomes[1] == 1
    await writer.write(reserve)
    assert await head(writer) == 2


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
    assert [record.message for record in caplog.records] == ["store.group_undone"]
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
        writer.write(lambda tx: tx.calls.put_results({call.id: b"x" * 1_000_000})),
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
    tx.notify("never heard")
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


async def test_a_transaction_whose_caller_was_cancelled_is_not_run(writer: GroupCommit) -> None:
    writing = asyncio.create_task(writer.write(reserve))
    cancelled = asyncio.create_task(writer.write(reserve))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])

    assert await writing == 1
    assert await head(writer) == 1


async def test_callers_continue_before_end_actions_start_tasks(writer: GroupCommit) -> None:
    loop, order = asyncio.get_running_loop(), list[str]()

    async def reserve_and_begin(tx: Transaction) -> int:
        tx.on_commit(lambda: loop.call_soon(order.append, "begun") and None)
        return await reserve(tx)

    async def call() -> None:
        await writer.write(reserve_and_begin)
        order.append("caller")

    await asyncio.gather(call(), call())
    await asyncio.sleep(0)

    assert order == ["caller", "caller", "begun", "begun"]


async def test_an_end_action_that_raises_does_not_affect_other_units_of_the_commit(
    writer: GroupCommit, notified: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    committed: list[bool] = []

    def broken() -> None:
        raise ZeroDivisionError

    async def reserve_and_break(tx: Transaction) -> int:
        tx.on_commit(broken)
        add_end_actions(tx, committed)
        return await reserve(tx)

    assert await asyncio.gather(writer.write(reserve_and_break), writer.write(reserve)) == [1, 2]
    assert committed == [True]
    assert notified == ["grown", "grown"]
    assert [record.message for record in caplog.records] == ["store.ending_failed"]
    assert await writer.write(reserve) == 3


async def test_every_unit_of_a_rolled_back_group_runs_its_rollback_actions(writer: GroupCommit, path: Path) -> None:
    committed: list[bool] = []

    async def reserve_and_tell(tx: Transaction) -> None:
        await reserve(tx)
        add_end_actions(tx, committed)

    await writer.write(reserve_and_tell)
    with full_disk(path):
        await asyncio.gather(*(writer.write(reserve_and_tell) for _ in range(3)), return_exceptions=True)

    assert committed == [True, False, False, False]


async def test_work_started_at_the_end_of_an_admission_is_background_work(writer: GroupCommit) -> None:
    begun = asyncio.get_running_loop().create_future()

    async def begin(tx: Transaction) -> None:
        tx.on_commit(lambda: begun.set_result(is_in_admission()))

    with AdmissionGate().admit_call():
        await writer.write(begin)

    assert await begun is False


async def test_many_admissions_leave_each_group_a_share_of_the_other_waiting_units(
    writer: GroupCommit,
) -> None:
    gate, ended = AdmissionGate(), list[str]()

    async def admit() -> None:
        with gate.admit_call():
            await writer.write(reserve)
        ended.append("admission")

    async def go_on() -> None:
        await writer.write(reserve)
        ended.append("background")

    await asyncio.gather(*(go_on() for _ in range(80)), *(admit() for _ in range(2 * UNITS_IN_GROUP_MAX)))

    before_the_second_group = ended[: ended.index("admission", UNITS_IN_GROUP_MAX)]
    assert before_the_second_group.count("background") == 80 // BACKGROUND_SHARE_DIVISOR


async def test_a_lone_transaction_is_written_without_a_savepoint_and_rolled_back_as_a_whole(
    writer: GroupCommit, connection: sqlite3.Connection
) -> None:
    """Under a savepoint each statement with a trigger takes longer, the more pages the unit has changed."""
    said: list[str] = []
    connection.set_trace_callback(said.append)

    async def reserve_and_fail(tx: Transaction) -> None:
        await reserve(tx)
        raise ZeroDivisionError

    assert await writer.write(reserve) == 1
    with pytest.raises(ZeroDivisionError):
        await writer.write(reserve_and_fail)
    assert await writer.write(reserve) == 2

    assert [statement for statement in said if statement.startswith("SAVEPOINT")] == []


async def test_the_event_loop_runs_at_each_pause_and_no_other_transaction_interleaves(writer: GroupCommit) -> None:
    order: list[str] = []

    async def in_steps(tx: Transaction) -> None:
        for step in range(3):
            order.append(f"step {step}")
            await tx.pause()

    async def other(_: Transaction) -> None:
        order.append("other")

    async def turn() -> None:
        while len(order) < 4:
            order.append("turn")
            await asyncio.sleep(0)

    writing = asyncio.gather(writer.write(in_steps), writer.write(other))
    await asyncio.gather(writing, turn())

    assert [each for each in order if each != "turn"] == ["step 0", "step 1", "step 2", "other"]
    assert "turn" in order[order.index("step 0") : order.index("step 1")]
