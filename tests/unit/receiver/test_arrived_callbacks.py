"""A callback reaches its waiter, whichever of the two comes first."""

import asyncio
from dataclasses import replace

import pytest

from ringback.receiver import Callback, parse
from ringback.receiver.arrived_callbacks import ArrivedCallbacks, CallbackSelector
from tests.support.limits import WAIT_SECONDS

C1 = CallbackSelector(correlation_id="c1")


def callback(event_id: str, correlation_id: str | None = "c1", session_id: str | None = None) -> Callback:
    parsed = parse(b'{"eventId":"evt","name":"call.finished","timestamp":"2026-11-20T17:00:00Z","data":{}}')
    assert isinstance(parsed, Callback)
    return replace(parsed, event_id=event_id, correlation_id=correlation_id, client_session_id=session_id)


async def test_kept_callbacks_are_taken_in_the_order_of_their_arrival() -> None:
    arrived = ArrivedCallbacks(capacity=10, bytes_max=1_000)
    for number in range(3):
        arrived.put_callback(callback(f"evt_{number}"), number=number, size_bytes=10)
        arrived.put_callback(callback(f"other_{number}", "c2"), number=100 + number, size_bytes=10)

    taken = [await arrived.wait_for_callback(C1, timeout_seconds=0) for _ in range(3)]

    assert [each.event_id for each in taken] == ["evt_0", "evt_1", "evt_2"]


async def test_two_waiters_for_one_id_get_one_callback_each() -> None:
    arrived = ArrivedCallbacks(capacity=10, bytes_max=1_000)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(arrived.wait_for_callback(C1, timeout_seconds=WAIT_SECONDS)) for _ in range(2)]
        await asyncio.wait(waiting, timeout=0)
        arrived.put_callback(callback("evt_1"), number=1, size_bytes=10)
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        arrived.put_callback(callback("evt_2"), number=2, size_bytes=10)

    assert sorted(task.result().event_id for task in waiting) == ["evt_1", "evt_2"]


async def test_a_cancelled_waiter_removes_no_callback() -> None:
    arrived = ArrivedCallbacks(capacity=10, bytes_max=1_000)
    waiting = asyncio.create_task(arrived.wait_for_callback(C1, timeout_seconds=WAIT_SECONDS))
    await asyncio.wait([waiting], timeout=0)

    arrived.put_callback(callback("evt_1"), number=1, size_bytes=10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert (await arrived.wait_for_callback(C1, timeout_seconds=0)).event_id == "evt_1"


async def test_the_oldest_callback_is_evicted_when_too_many_are_stored() -> None:
    arrived = ArrivedCallbacks(capacity=2, bytes_max=1_000)
    for number in range(3):
        arrived.put_callback(callback(f"evt_{number}"), number=number, size_bytes=10)

    taken = [await arrived.wait_for_callback(C1, timeout_seconds=0) for _ in range(2)]

    assert [each.event_id for each in taken] == ["evt_1", "evt_2"]
    with pytest.raises(TimeoutError):
        await arrived.wait_for_callback(C1, timeout_seconds=0)


async def test_the_oldest_callbacks_are_evicted_when_their_bodies_are_too_large_together() -> None:
    removed: list[int] = []
    arrived = ArrivedCallbacks(capacity=10, bytes_max=100, on_removed=removed.append)
    for number in range(4):
        arrived.put_callback(callback(f"evt_{number}"), number=number, size_bytes=30)
    arrived.put_callback(callback("evt_3"), number=3, size_bytes=30)
    arrived.put_callback(callback("evt_4"), number=4, size_bytes=60)

    assert removed == [0, 1, 2]
    assert (await arrived.wait_for_callback(C1, timeout_seconds=0)).event_id == "evt_3"
    arrived.put_callback(callback("evt_5"), number=5, size_bytes=40)
    assert removed == [0, 1, 2, 3]


async def test_callbacks_without_a_correlation_id_take_no_room() -> None:
    arrived = ArrivedCallbacks(capacity=1, bytes_max=1_000)
    arrived.put_callback(callback("evt_1"), number=1, size_bytes=10)
    arrived.put_callback(callback("evt_2", None), number=2, size_bytes=10)

    assert (await arrived.wait_for_callback(C1, timeout_seconds=0)).event_id == "evt_1"


async def test_a_waiter_for_a_session_gets_no_callback_of_another() -> None:
    arrived = ArrivedCallbacks(capacity=10, bytes_max=1_000)
    arrived.put_callback(callback("evt_1", "c1", "s1"), number=1, size_bytes=10)
    arrived.put_callback(callback("evt_2", "c1", "s2"), number=2, size_bytes=10)
    arrived.put_callback(callback("evt_3", None, "s2"), number=3, size_bytes=10)

    both = CallbackSelector(correlation_id="c1", client_session_id="s2")
    assert (await arrived.wait_for_callback(both, timeout_seconds=0)).event_id == "evt_2"
    with pytest.raises(TimeoutError):
        await arrived.wait_for_callback(both, timeout_seconds=0)
    session = CallbackSelector(client_session_id="s2")
    assert (await arrived.wait_for_callback(session, timeout_seconds=0)).event_id == "evt_3"


def test_a_waiter_without_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match="correlation_id"):
        CallbackSelector()


async def test_the_owner_is_notified_of_every_callback_that_is_kept_no_longer() -> None:
    removed: list[int] = []
    arrived = ArrivedCallbacks(capacity=1, bytes_max=1_000, on_removed=removed.append)
    for number in (1, 2):
        arrived.put_callback(callback(f"evt_{number}"), number=number, size_bytes=10)

    await arrived.wait_for_callback(C1, timeout_seconds=0)

    assert removed == [1, 2]
