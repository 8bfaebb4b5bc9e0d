"""Streams that open, break and close in great numbers: bounded for each principal, and nothing is left of them."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest

from tests.interaction.gateway_events_hostile.conftest import (
    FINISHED,
    RESOURCE_EXHAUSTED,
    EventsGate,
    running_events_gate,
)
from tests.support.engine import wait_until
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, JsonRpcMessages

pytestmark = pytest.mark.requirement("R25")

STREAMS_MAX: Final = 20
BROKEN: Final = 60
BROKEN_DEEP: Final = 3_000
OPENED: Final = 150
OPENED_DEEP: Final = 3_000
AT_ONCE: Final = 15
STEPS_MAX: Final = 120
"""Turns of the event loop before a stream breaks: from before its request until after its first frame."""
SEED: Final = 20261122
WORKER_TASKS: Final = 16
"""Workers of the service wait in one or two tasks each, which begin anew now and then; a leak has a task for each stream."""
INTEREST: Final[Json] = {"name": FINISHED, "arguments": {}, "cursor": None}


@pytest.fixture(scope="module")
async def gate(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[EventsGate]:
    async with running_events_gate(module_path_factory.mktemp("gate"), quota_streams=STREAMS_MAX) as gate:
        yield gate


@asynccontextmanager
async def open_event_stream(gate: EventsGate, principal: str) -> AsyncGenerator[JsonRpcMessages]:
    client = await gate.make_client(principal)
    async with client.open_request("events/stream", INTEREST) as frames:
        await frames.read_message("notifications/events/active")
        yield frames


async def wait_until_settled(gate: EventsGate, tasks: int | None = None) -> int:
    """Wait until no stream is left, and hardly more tasks than these. Returns their number."""

    async def is_settled() -> bool:
        return await gate.count_streams() == 0 and (tasks is None or len(asyncio.all_tasks()) <= tasks + WORKER_TASKS)

    await wait_until(is_settled)
    return len(asyncio.all_tasks())


async def test_streams_beyond_the_quota_get_an_error_and_no_stream_and_others_are_served(gate: EventsGate) -> None:
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(open_event_stream(gate, "greedy")) for _ in range(STREAMS_MAX)]
        client = await gate.make_client("greedy")
        with pytest.raises(JsonRpcErrorResponse, match="ResourceExhausted") as refused:
            await client.request("events/stream", INTEREST)
        modest = await stack.enter_async_context(open_event_stream(gate, "modest"))
        calls = [await gate.end_call("greedy"), await gate.end_call("modest")]
        events = [await frames.read_message("notifications/events/event") for frames in (*streams, modest)]

    assert refused.value.code == RESOURCE_EXHAUSTED
    assert refused.value.data["max"] == STREAMS_MAX
    assert [event["params"]["data"]["call_id"] for event in events] == [calls[0]] * STREAMS_MAX + [calls[1]]
    await wait_until_settled(gate)


async def test_streams_that_break_at_any_time_leave_nothing_behind(gate: EventsGate, *, deep: bool) -> None:
    async with open_event_stream(gate, "hasty"):
        pass
    tasks, chance = await wait_until_settled(gate), random.Random(SEED)

    async def request_stream() -> None:
        async with open_event_stream(gate, "hasty"):
            await asyncio.Event().wait()

    for _ in range(BROKEN_DEEP if deep else BROKEN):
        requesting = asyncio.create_task(request_stream())
        for _ in range(chance.randrange(STEPS_MAX)):
            await asyncio.sleep(0)
        requesting.cancel()
        await asyncio.gather(requesting, return_exceptions=True)

    await wait_until_settled(gate, tasks)


async def test_many_streams_at_once_open_and_close_while_events_happen(gate: EventsGate, *, deep: bool) -> None:
    async with open_event_stream(gate, "busy"):
        pass
    tasks = await wait_until_settled(gate)
    left = iter(range(OPENED_DEEP if deep else OPENED))

    async def open_and_read() -> None:
        for _ in left:
            async with open_event_stream(gate, "busy") as frames:
                await frames.read_message("notifications/events/event")

    async def end_calls() -> None:
        while True:
            await gate.end_call("busy")

    async with asyncio.TaskGroup() as group:
        ending = group.create_task(end_calls())
        await asyncio.gather(*(open_and_read() for _ in range(AT_ONCE)))
        ending.cancel()

    await wait_until_settled(gate, tasks)
