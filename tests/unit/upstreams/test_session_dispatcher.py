"""The dispatcher of a session: streams of notifications that the upstream ends."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from ringback.upstreams.session_dispatcher import NotificationStream, SessionDispatcher
from tests.support.limits import WAIT_SECONDS


async def ignore(*_arguments: Any) -> Any:
    return {}


def make_cancellation(params: Mapping[str, Any]) -> SessionMessage:
    notification = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=dict(params))
    return SessionMessage(notification)


@pytest.mark.parametrize("other", [{"requestId": "ringback-listen-2"}, {"requestId": 1}, {}])
async def test_the_notification_that_ends_a_listen_stream_on_a_pipe_ends_only_that_stream(
    other: Mapping[str, Any],
) -> None:
    """On a pipe the upstream cannot close a stream: it names the listen request in `notifications/cancelled`."""
    to_session, from_upstream = anyio.create_memory_object_stream[SessionMessage](8)
    to_upstream, from_session = anyio.create_memory_object_stream[SessionMessage](8)
    dispatcher = SessionDispatcher(from_upstream, to_upstream)
    stream = dispatcher.streams["ringback-listen-1"] = NotificationStream()
    async with to_session, from_session, anyio.create_task_group() as group:
        await group.start(partial(dispatcher.run, ignore, ignore))
        ended = asyncio.create_task(stream.next_notification())
        await to_session.send(make_cancellation(other))
        await to_session.send(make_cancellation({"requestId": "ringback-listen-1"}))
        assert await asyncio.wait_for(ended, WAIT_SECONDS) is None
        assert await stream.wait_acknowledged() is None
        group.cancel_scope.cancel()
