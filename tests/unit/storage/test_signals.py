"""Rings within one process."""

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
    with signals.listen("calls") as bell:
        signals.notify(["calls", "calls"])

        assert await bell.wait(5)
        assert not await bell.wait(0)


async def test_a_wait_without_a_notification_ends_in_time() -> None:
    signals = LocalSignals()
    with signals.listen("calls") as bell:
        assert not await bell.wait(0.001)


async def test_a_notification_after_a_timed_out_wait_is_received_by_the_next() -> None:
    signals = LocalSignals()
    with signals.listen("calls") as bell:
        assert not await bell.wait(0)
        signals.notify(["calls"])

        assert await bell.wait(0)


def test_nothing_is_kept_of_those_who_left() -> None:
    signals = LocalSignals()
    with signals.listen("calls", "calls") as bell:
        left = weakref.ref(bell)
        with signals.listen("calls"):
            signals.notify(["calls"])

    del bell
    signals.notify(["calls", "nobody"])

    assert left() is None


async def test_ten_thousand_waiters_get_only_their_own_notifications() -> None:
    signals = LocalSignals()

    async def listener(number: int) -> bool:
        with signals.listen(f"call:{number}", "all") as bell:
            ready.release()
            return await bell.wait(30)

    ready = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(listener(number)) for number in range(10_000)]
    for _ in tasks:
        await ready.acquire()

    signals.notify(["call:7"])
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert done == {tasks[7]}

    signals.notify(["all"])
    assert all(await asyncio.gather(*tasks))
