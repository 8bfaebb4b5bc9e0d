"""Notifications by topic, within one process."""

import asyncio
import weakref

from ringback.storage.signals import LocalSignals


async def test_a_notification_wakes_only_waiters_of_its_topic() -> None:
    signals = LocalSignals()
    with signals.listen("calls", "deliveries") as both, signals.listen("calls") as calls:
        waiting = asyncio.create_task(both.wait(5))
        await asyncio.sleep(0)

        signals.notify(["deliveries"])

        assert await waiting
        assert not await calls.wait(0)


async def test_a_notification_before_the_wait_is_received_exactly_once() -> None:
    signals = LocalSignals()
    with signals.listen("calls") as waiter:
        signals.notify(["calls", "calls"])

        assert await waiter.wait(5)
        assert not await waiter.wait(0)


async def test_a_wait_without_a_notification_ends_in_time() -> None:
    signals = LocalSignals()
    with signals.listen("calls") as waiter:
        assert not await waiter.wait(0.001)


async def test_a_notification_after_a_timed_out_wait_is_received_by_the_next() -> None:
    signals = LocalSignals()
    with signals.listen("calls") as waiter:
        assert not await waiter.wait(0)
        signals.notify(["calls"])

        assert await waiter.wait(0)


def test_a_topic_keeps_no_reference_to_an_ended_waiter() -> None:
    signals = LocalSignals()
    with signals.listen("calls", "calls") as waiter:
        left = weakref.ref(waiter)
        with signals.listen("calls"):
            signals.notify(["calls"])

    del waiter
    signals.notify(["calls", "topic without waiters"])

    assert left() is None


def test_a_callback_that_does_what_the_notification_says_runs_at_none_that_may_be_lost() -> None:
    signals, ran = LocalSignals(), list[str]()
    with (
        signals.subscribe(lambda: ran.append("reads"), "topic"),
        signals.subscribe(lambda: ran.append("acts"), "topic", also_after_losses=False),
    ):
        signals.notify_all()
        assert ran == ["reads"]
        signals.notify(["topic"])

    assert sorted(ran) == ["acts", "reads", "reads"]


async def test_ten_thousand_waiters_get_only_their_own_notifications() -> None:
    signals = LocalSignals()

    async def listener(number: int) -> bool:
        with signals.listen(f"call:{number}", "all") as waiter:
            ready.release()
            return await waiter.wait(30)

    ready = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(listener(number)) for number in range(10_000)]
    for _ in tasks:
        await ready.acquire()

    signals.notify(["call:7"])
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert done == {tasks[7]}

    signals.notify(["all"])
    assert all(await asyncio.gather(*tasks))
