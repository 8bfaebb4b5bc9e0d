"""The dispatcher of a session: streams of notifications that the upstream ends, and requests that get no response."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError, JSONRPCNotification

from ringback.protocol.legacy_session_transport import LegacySessionTransport
from ringback.protocol.transport_errors import TransportErrorCode, make_transport_error
from ringback.upstreams.received_streams import NotificationStream
from ringback.upstreams.session_dispatcher import SessionDispatcher
from ringback.upstreams.transports.direct_posts import DirectPosts
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


def _upstream_error(code: int, message: str) -> ErrorData:
    return ErrorData(code=code, message=message)


def _transport_error(code: TransportErrorCode) -> ErrorData:
    return ErrorData.model_validate(make_transport_error(code, "made here")["error"])


@pytest.mark.parametrize(
    ("error", "shows_it_over_http", "shows_it_on_a_pipe"),
    [
        (_upstream_error(0, "Request cancelled"), True, True),
        (_upstream_error(CONNECTION_CLOSED, "a server error with the code of the SDK"), True, True),
        (_transport_error(TransportErrorCode.INVALID_RESPONSE), False, True),
        (_upstream_error(CONNECTION_CLOSED, "SSE stream ended without a response"), False, False),
        (_transport_error(TransportErrorCode.RESPONSE_LOST), False, False),
    ],
    ids=["of the server", "with the same code", "unreadable", "of the SDK", "of the transport"],
)
@pytest.mark.parametrize("is_http", [True, False], ids=["HTTP", "pipe"])
async def test_an_error_that_no_upstream_sent_does_not_show_that_a_tool_has_ended(
    error: ErrorData,
    monkeypatch: pytest.MonkeyPatch,
    *,
    shows_it_over_http: bool,
    shows_it_on_a_pipe: bool,
    is_http: bool,
) -> None:
    """Otherwise the question of an abandoned tool would be asked of another call.

    On a pipe, what cannot be read has the id of its request; over HTTP it may be the page of a proxy.
    """
    to_session, from_upstream = anyio.create_memory_object_stream[SessionMessage](8)
    to_upstream, from_session = anyio.create_memory_object_stream[SessionMessage](8)
    direct = DirectPosts(LegacySessionTransport(httpx2.AsyncHTTPTransport()), "http://127.0.0.1:1") if is_http else None
    dispatcher = SessionDispatcher(from_upstream, to_upstream, direct=direct)
    noted, is_last_noted = list[Any](), asyncio.Event()

    def note_response(request_id: Any) -> None:
        noted.append(request_id)
        if request_id == 8:
            is_last_noted.set()

    monkeypatch.setattr(dispatcher.elicitation_router, "note_response", note_response)
    async with to_session, from_session, anyio.create_task_group() as group:
        await group.start(partial(dispatcher.run, ignore, ignore))
        await to_session.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=7, error=error)))
        await to_session.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=8, error=_upstream_error(0, "last"))))
        await asyncio.wait_for(is_last_noted.wait(), WAIT_SECONDS)
        group.cancel_scope.cancel()

    assert (7 in noted) is (shows_it_over_http if is_http else shows_it_on_a_pipe)
