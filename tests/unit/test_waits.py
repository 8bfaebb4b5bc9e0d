"""Waits leave no task behind."""

import asyncio
from contextvars import ContextVar, copy_context

import anyio
import pytest

from ringback.waits import LateHelper, LocalWaiter, notify_when_set, run_with_helper, wait_first
from tests.support.limits import WAIT_SECONDS


class FakeWaiter:
    """Waits for ever, and knows whether it was called off."""

    def __init__(self) -> None:
        self.called_off = False

    async def wait(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # cleaning up takes a turn
            self.called_off = True
            raise


async def test_the_first_result_ends_the_wait_and_the_other_tasks() -> None:
    rung, waiter = asyncio.Event(), FakeWaiter()
    rung.set()
    before = asyncio.all_tasks()

    await wait_first(waiter.wait(), rung.wait())

    assert waiter.called_off
    assert asyncio.all_tasks() == before


async def test_an_event_ends_each_wait_of_a_waiter_and_leaves_no_task_behind() -> None:
    waiter, stop, before = LocalWaiter(), asyncio.Event(), asyncio.all_tasks()

    async with notify_when_set(waiter, stop):
        assert not await waiter.wait(0.0)
        stop.set()
        assert await waiter.wait(WAIT_SECONDS)
        waiter.notify()
        assert await waiter.wait(WAIT_SECONDS)

    async with notify_when_set(LocalWaiter(), asyncio.Event()):
        pass
    assert asyncio.all_tasks() == before


async def test_a_timeout_ends_the_wait() -> None:
    waiter = FakeWaiter()

    await asyncio.wait_for(wait_first(waiter.wait(), timeout_seconds=0.001), WAIT_SECONDS)

    assert waiter.called_off


async def test_a_shielded_task_continues_after_cancellation() -> None:
    rung, done = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(done.wait())
    rung.set()

    await asyncio.wait_for(wait_first(asyncio.shield(task), rung.wait()), WAIT_SECONDS)

    assert not task.done()
    done.set()
    assert await task


async def test_a_failed_task_counts_as_ended_and_its_error_is_not_raised() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    await asyncio.wait_for(wait_first(fail(), asyncio.Event().wait()), WAIT_SECONDS)


async def test_a_cancelled_wait_cancels_every_task() -> None:
    waiter = FakeWaiter()
    waiting = asyncio.create_task(wait_first(waiter.wait()))
    for _ in range(3):
        await asyncio.sleep(0)

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiter.called_off


async def test_the_end_of_the_work_cancels_its_helper() -> None:
    helper = FakeWaiter()

    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await run_with_helper(work(), helper.wait()) == 7
    assert helper.called_off


async def test_an_error_of_the_helper_cancels_the_work() -> None:
    worker = FakeWaiter()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_with_helper(worker.wait(), fail())
    assert worker.called_off


async def test_cancelling_the_work_cancels_its_helper() -> None:
    worker, helper = FakeWaiter(), FakeWaiter()
    both = asyncio.create_task(run_with_helper(worker.wait(), helper.wait()))
    for _ in range(3):
        await asyncio.sleep(0)

    both.cancel()

    with pytest.raises(asyncio.CancelledError):
        await both
    assert (worker.called_off, helper.called_off) == (True, True)


async def test_a_cancellation_while_a_wait_ends_stays_within_its_scope() -> None:
    """Otherwise it would end the task group around it: all requests of a session, because one of them was cancelled late."""
    scope, request_ended, outlived = anyio.CancelScope(), asyncio.Event(), asyncio.Event()

    async def cancel_late() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            scope.cancel()

    async def handle_request() -> None:
        try:
            with scope:
                await run_with_helper(asyncio.sleep(0), cancel_late())
        finally:
            request_ended.set()

    async def handle_another_request() -> None:
        await request_ended.wait()
        await asyncio.sleep(0)  # the session ends in this turn, if it does
        outlived.set()

    async with anyio.create_task_group() as session:
        session.start_soon(handle_request)
        session.start_soon(handle_another_request)

    assert (scope.cancelled_caught, outlived.is_set()) == (True, True)


async def test_a_late_helper_runs_from_its_first_start_to_the_end_of_the_block() -> None:
    waiter, before = FakeWaiter(), asyncio.all_tasks()

    async with LateHelper(waiter.wait):
        assert asyncio.all_tasks() == before
    async with LateHelper(waiter.wait) as helper:
        helper.start()
        helper.start()
        assert len(asyncio.all_tasks() - before) == 1
        await asyncio.sleep(0)

    assert waiter.called_off
    assert asyncio.all_tasks() == before


async def test_a_late_helper_runs_in_the_context_of_its_block_and_not_of_its_starter() -> None:
    current, seen = ContextVar[str]("current"), list[str]()

    async def read_current() -> None:
        seen.append(current.get())

    current.set("the block")
    async with LateHelper(read_current) as helper:
        starter_context = copy_context()
        starter_context.run(current.set, "the starter")
        starter_context.run(helper.start)
        await asyncio.sleep(0)

    assert seen == ["the block"]


async def test_the_error_of_a_late_helper_is_raised_unless_the_block_raises() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def run_block(error: Exception | None) -> None:
        async with LateHelper(fail) as helper:
            helper.start()
            await asyncio.sleep(0)
            if error is not None:
                raise error

    with pytest.raises(ZeroDivisionError):
        await run_block(None)
    with pytest.raises(LookupError):
        await run_block(LookupError())


async def test_a_notification_ends_one_wait_also_if_it_came_before() -> None:
    waiter = LocalWaiter()
    waiter.notify()
    waiter.notify()

    assert [await waiter.wait(), await waiter.wait(0.0)] == [True, False]

    waiting = asyncio.create_task(waiter.wait())
    await asyncio.sleep(0)
    waiter.notify()
    waiter.notify()
    assert await waiting
    assert not await waiter.wait(0.0)


async def test_a_cancelled_wait_keeps_the_notification_for_the_next() -> None:
    waiter = LocalWaiter()
    waiting = asyncio.create_task(waiter.wait(WAIT_SECONDS))
    await asyncio.sleep(0)
    waiter.notify()
    waiting.cancel()
    await asyncio.wait([waiting])

    assert waiting.cancelled()
    assert await waiter.wait(0.0)
