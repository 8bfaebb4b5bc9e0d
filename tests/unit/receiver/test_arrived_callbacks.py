"""A callback reaches its waiter, whichever of the two comes first."""

import asyncio
from dataclasses import replace

import pytest

from ringback.receiver import Callback, parse
from ringback.receiver.callback_inbox import CallbackInbox
from tests.support.limits import WAIT_SECONDS


def callback(event_id: str, correlation_id: str | None = "c1") -> Callback:
    parsed = parse(b'{"eventId":"evt","name":"call.finished","timestamp":"2026-11-20T17:00:00Z","data":{}}')
    assert isinstance(parsed, Callback)
    return replace(parsed, event_id=event_id, correlation_id=correlation_id)


async def test_kept_callbacks_are_taken_in_the_order_of_their_arrival() -> None:
    mailbox = CallbackInbox(capacity=10)
    for number in range(3):
        mailbox.put_callback(callback(f"evt_{number}"))
        mailbox.put_callback(callback(f"other_{number}", "c2"))

    taken = [await mailbox.wait_for_callback("c1", timeout_seconds=0) for _ in range(3)]

    assert [each.event_id for each in taken] == ["evt_0", "evt_1", "evt_2"]


async def test_two_waiters_for_one_id_get_one_callback_each() -> None:
    mailbox = CallbackInbox(capacity=10)
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(mailbox.wait_for_callback("c1", timeout_seconds=WAIT_SECONDS)) for _ in range(2)]
        await asyncio.wait(waiting, timeout=0)
        mailbox.put_callback(callback("evt_1"))
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        mailbox.put_callback(callback("evt_2"))

    assert sorted(task.result().event_id for task in waiting) == ["evt_1", "evt_2"]


async def test_a_cancelled_waiter_removes_no_callback() -> None:
    mailbox = CallbackInbox(capacity=10)
    waiting = asyncio.create_task(mailbox.wait_for_callback("c1", timeout_seconds=WAIT_SECONDS))
    await asyncio.wait([waiting], timeout=0)

    mailbox.put_callback(callback("evt_1"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert (await mailbox.wait_for_callback("c1", timeout_seconds=0)).event_id == "evt_1"


async def test_the_oldest_callback_is_evicted_when_too_many_are_stored() -> None:
    mailbox = CallbackInbox(capacity=2)
    for number in range(3):
        mailbox.put_callback(callback(f"evt_{number}"))

    taken = [await mailbox.wait_for_callback("c1", timeout_seconds=0) for _ in range(2)]

    assert [each.event_id for each in taken] == ["evt_1", "evt_2"]
    with pytest.raises(TimeoutError):
        await mailbox.wait_for_callback("c1", timeout_seconds=0)


async def test_callbacks_without_a_correlation_id_take_no_room() -> None:
    mailbox = CallbackInbox(capacity=1)
    mailbox.put_callback(callback("evt_1"))
    mailbox.put_callback(callback("evt_2", None))

    assert (await mailbox.wait_for_callback("c1", timeout_seconds=0)).event_id == "evt_1"
