"""Group commits: which units share one, and which fail together."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ringback.admission import AdmissionGate, find_admission
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.storage.sqlite.commit_counter import CommitCounter
from ringback.storage.sqlite.group_commit import GroupCommit
from ringback.storage.sqlite.group_queue import UNITS_IN_GROUP_MAX
from tests.support.group_commits import add_end_actions, full_disk, head, reserve
from tests.support.limits import WAIT_SECONDS


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
        tx.on_commit(lambda: begun.set_result(find_admission()))

    with AdmissionGate().admit_call():
        await writer.write(begin)

    assert await begun is None


async def test_background_work_begins_while_an_admission_waits_for_the_disk(
    writer: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit ends only after the background work has begun."""
    gate, has_begun = AdmissionGate(interval_seconds=1e9), threading.Event()
    commit = CommitCounter.commit_transaction

    def commit_later(commits: CommitCounter, *, wrote: bool) -> None:
        assert not wrote or has_begun.wait(WAIT_SECONDS)
        commit(commits, wrote=wrote)

    monkeypatch.setattr(CommitCounter, "commit_transaction", commit_later)

    async def begin_work() -> None:
        await gate.wait_for_background_turn(Principal("alice"))
        has_begun.set()

    async def admit() -> None:
        with gate.admit_call():
            background = asyncio.create_task(begin_work())
            await asyncio.sleep(0)
            assert not has_begun.is_set()
            await writer.write(reserve)
            await background

    await admit()
    assert gate.is_quiet


async def test_admissions_are_committed_before_the_other_units_and_without_them(
    writer: GroupCommit, commits: list[str]
) -> None:
    gate, ended = AdmissionGate(), list[tuple[str, int]]()

    async def admit() -> None:
        with gate.admit_call():
            await writer.write(reserve)
        ended.append(("admission", len(commits)))

    async def go_on() -> None:
        await writer.write(reserve)
        ended.append(("background", len(commits)))

    await asyncio.gather(go_on(), go_on(), admit(), admit())

    assert ended == [("admission", 1), ("admission", 1), ("background", 2), ("background", 2)]


async def test_callers_of_admissions_continue_before_the_work_of_the_next_group(writer: GroupCommit) -> None:
    gate, steps = AdmissionGate(), list[str]()

    async def admit() -> None:
        with gate.admit_call():
            await writer.write(reserve)
        steps.append("answered")

    async def go_on(tx: Transaction) -> None:
        steps.append("next group")

    await asyncio.gather(admit(), writer.write(go_on))

    assert steps == ["answered", "next group"]


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
