"""A session has one own stream at a time, which begins with what no stream has carried."""

import asyncio
from typing import Any, cast

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.streamable_http import GET_STREAM_KEY, EventMessage
from mcp_types import JSONRPCNotification

from ringback.domain.clock import SystemClock
from ringback.domain.errors import Conflict
from ringback.mcp_server.event_ids import EventIds
from ringback.mcp_server.own_stream import SessionOwnStream
from ringback.mcp_server.session_events import SessionEventStore
from tests.support.mcp_wire import LEGACY
from tests.support.stores import make_sealer


async def test_a_second_stream_is_refused_before_the_first_one_has_begun() -> None:
    """The SDK opened both: the first one got no notification and had no end, and its end cut the second one off."""
    own_stream = SessionOwnStream(cast("SessionEventStore", None), SystemClock())
    begins = asyncio.Event()

    async def respond() -> None:
        begins.set()
        await asyncio.Event().wait()

    async def respond_too() -> None:
        raise AssertionError("The second stream was opened.")

    first = asyncio.create_task(own_stream.serve(respond, LEGACY))
    await begins.wait()
    with pytest.raises(Conflict, match="open already"):
        await own_stream.serve(respond_too, LEGACY)
    first.cancel()
    await asyncio.wait([first])


async def test_a_waiting_notification_that_is_replaced_while_the_stream_is_full_is_not_sent() -> None:
    """It was sent after the newer one, with a newer id: a task that has completed was reported as working."""
    events = SessionEventStore(EventIds(make_sealer(), "s1"), log_id="0" * 32, is_own_stream_open=lambda: is_open)
    is_open = False
    for task_id in ("first", "second", "third"):
        await events.store_event(GET_STREAM_KEY, make_task_status(task_id, "working"))
    own_stream = SessionOwnStream(events, SystemClock())
    send, receive = anyio.create_memory_object_stream[EventMessage](0)
    with send, receive:
        is_open = True
        own_stream.streams[GET_STREAM_KEY] = send, receive  # the first notification waits to be received
        await anyio.wait_all_tasks_blocked()
        await events.store_event(GET_STREAM_KEY, make_task_status("second", "completed"))  # the SDK sends it
        received = [await receive_params(receive) for _ in range(2)]
    assert [(params["taskId"], params["status"]) for params in received] == [("first", "working"), ("third", "working")]


def make_task_status(task_id: str, status: str) -> JSONRPCNotification:
    params = {"taskId": task_id, "status": status}
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/tasks/status", params=params)


async def receive_params(receive: MemoryObjectReceiveStream[EventMessage]) -> dict[str, Any]:
    message = (await receive.receive()).message
    assert isinstance(message, JSONRPCNotification)
    return message.params or {}
