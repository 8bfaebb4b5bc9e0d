"""Units of work: all or nothing, alone or in a group; their notifications are sent once they are durable."""

import asyncio
from datetime import datetime
from functools import partial

import pytest

from ringback.domain.call import Call
from ringback.domain.ports import Store, Transaction
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.examples import ALICE
from tests.support.limits import WAIT_SECONDS


async def call_exists(store: Store, call: Call) -> bool:
    return await store.read(lambda tx: tx.calls.get(call.id)) is not None


async def test_a_unit_gives_its_value_after_everything_in_it_is_kept(store: Store) -> None:
    one, two = make_call(), make_call()

    async def work(tx: Transaction) -> str:
        await tx.calls.insert(one)
        await tx.calls.insert(two)
        return "both"

    assert await store.write(work) == "both"
    assert await call_exists(store, one)
    assert await call_exists(store, two)


async def test_a_unit_that_fails_is_undone_alone_and_its_caller_gets_its_error(store: Store) -> None:
    calls = [make_call() for _ in range(20)]

    async def work(tx: Transaction, number: int) -> int:
        await tx.calls.insert(calls[number])
        if number % 3 == 0:
            raise LookupError(number)
        return number

    outcomes = await asyncio.gather(
        *(store.write(lambda tx, number=number: work(tx, number)) for number in range(20)), return_exceptions=True
    )

    for number, outcome in enumerate(outcomes):
        if number % 3 == 0:
            assert isinstance(outcome, LookupError)
            assert outcome.args == (number,)
        else:
            assert outcome == number
        assert await call_exists(store, calls[number]) == (number % 3 != 0)


async def test_a_unit_sees_what_was_written_before_it_began(store: Store) -> None:
    call = make_call()

    await store.write(lambda tx: tx.calls.insert(call))

    assert await store.write(lambda tx: tx.calls.get(call.id)) == call
    assert await store.read(lambda tx: tx.calls.get(call.id)) == call
    assert await store.scan(ALICE, lambda tx: tx.calls.get(call.id)) == call


async def test_time_stands_still_within_a_unit(store: Store, clock: FakeClock) -> None:
    async def work(tx: Transaction) -> tuple[datetime, datetime]:
        before = tx.now()
        clock.advance(1)
        return before, tx.now()

    for before, after in (await store.write(work), await store.read(work)):
        assert before == after


async def test_a_notification_arrives_after_its_transaction_commits(store: Store) -> None:
    call = make_call()

    async def work(tx: Transaction) -> None:
        await tx.calls.insert(call)
        tx.notify("one", "two")

    with store.signals.listen("two", "three") as waiter:
        writing = asyncio.create_task(store.write(work))
        notified = await waiter.wait(5)
        seen = await call_exists(store, call)
        await writing

    assert notified
    assert seen


async def test_a_notification_of_a_rolled_back_transaction_is_not_sent(store: Store) -> None:
    async def failing(tx: Transaction) -> None:
        tx.notify("failed")
        raise LookupError

    async def fine(tx: Transaction) -> None:
        tx.notify("fine")

    with store.signals.listen("failed") as failed, store.signals.listen("fine") as notified:
        with pytest.raises(LookupError):
            await store.write(failing)
        await store.write(fine)

        assert await notified.wait(0)
        assert not await failed.wait(0)


async def test_a_caller_that_gives_up_leaves_the_others_alone(store: Store) -> None:
    calls = [make_call() for _ in range(5)]
    tasks = [asyncio.create_task(store.write(lambda tx, call=call: tx.calls.insert(call))) for call in calls]
    await asyncio.sleep(0)

    tasks[2].cancel()
    await asyncio.wait(tasks)

    assert tasks[2].cancelled()
    for number in (0, 1, 3, 4):
        assert tasks[number].result() is None
        assert await call_exists(store, calls[number])


async def test_a_read_sees_one_snapshot_of_what_was_kept(store: Store) -> None:
    async def work(tx: Transaction) -> int:
        return await tx.events.reserve_seqs(ALICE, 1)

    writing = [asyncio.create_task(store.write(work)) for _ in range(10)]
    heads: list[int] = []
    while not all(task.done() for task in writing):
        heads.append(await store.read(lambda tx: tx.event_log.get_head(ALICE)))
        await asyncio.sleep(0)

    assert heads == sorted(heads)
    assert await store.read(lambda tx: tx.event_log.get_head(ALICE)) == 10


async def test_a_transaction_runs_its_actions_in_order_after_its_commit_or_rollback(store: Store) -> None:
    actions_run: list[str] = []

    def add_actions(tx: Transaction, name: str) -> None:
        tx.on_commit(partial(actions_run.append, f"{name} committed"))
        tx.on_rollback(partial(actions_run.append, f"{name} rolled back"))

    async def succeed(tx: Transaction) -> None:
        add_actions(tx, "first")
        add_actions(tx, "second")
        assert actions_run == []

    async def fail(tx: Transaction) -> None:
        add_actions(tx, "failing")
        raise LookupError

    await store.write(succeed)
    assert actions_run == ["first committed", "second committed"]
    with pytest.raises(LookupError):
        await store.write(fail)
    assert actions_run[2:] == ["failing rolled back"]


async def test_a_commit_action_runs_also_when_its_caller_was_cancelled(store: Store) -> None:
    begun, committed = asyncio.Event(), asyncio.Event()

    async def work(tx: Transaction) -> None:
        tx.on_commit(committed.set)
        begun.set()

    writing = asyncio.create_task(store.write(work))
    await begun.wait()
    writing.cancel()
    await asyncio.wait([writing])

    await asyncio.wait_for(committed.wait(), WAIT_SECONDS)
