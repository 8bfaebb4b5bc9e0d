"""Resumable streams of legacy sessions over HTTP: session id and event id find the response."""

import asyncio
from typing import Final

from ringback.backoff import Backoff
from ringback.client.durable.direct.completions import (
    CANCELLED,
    completion_from_failure,
    completion_from_result,
    make_progress_callback,
)
from ringback.client.durable.direct.connection import DirectConnection
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import StreamedPosition
from ringback.protocol.errors import (
    InvalidUpstreamResponse,
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    SessionGone,
    UpstreamError,
)
from ringback.protocol.resumable_requests import (
    READ_SECONDS_FIRST,
    READ_SECONDS_MAX,
    RESUME_SECONDS_FIRST,
    SESSION_GONE_SECONDS,
)
from ringback.protocol.sessions import LegacySessionId, StreamPosition

RESUME_BACKOFF: Final = Backoff(first_seconds=RESUME_SECONDS_FIRST, longest_seconds=10.0)
"""The pause before the next resume. The longest is shorter than the service's, because a caller waits in a join."""
PRIMING_SINCE: Final = "2025-11-25"
"""Since this version, a server that stores events sends an event id as soon as a stream begins, without data."""
EVENT_ID_SECONDS: Final = 1.0
"""How long that may take: the event follows the headers in the same moment, and network or server may be slow."""
READ_TIMEOUT: Final = Backoff(first_seconds=READ_SECONDS_FIRST, longest_seconds=READ_SECONDS_MAX)
"""How long a resumed stream is read before it is resumed again."""


async def start_stream(connection: DirectConnection, call: LocalCall) -> None:
    """Send tools/call and save each position of its stream. Raises `RequestNotSent`.

    Without event ids this is an ordinary tools/call. If the connection is lost, the position says where to resume.
    """
    has_position = asyncio.Event()
    missing_id = asyncio.create_task(_notice_missing_event_id(connection, call, has_position))
    try:
        await _send_call(connection, call, has_position)
    finally:
        missing_id.cancel()
        await asyncio.wait([missing_id])


async def _notice_missing_event_id(connection: DirectConnection, call: LocalCall, has_position: asyncio.Event) -> None:
    """Let the request return its handle, if the server has begun its stream and sends no event id with it.

    A request that wants the call only if it can be rejoined waits on: an id may still come with a later event.
    """
    if connection.protocol.protocol_version < PRIMING_SINCE or call.requires_rejoin:
        return
    await connection.wait_until_streamed()
    await call.clock.sleep(EVENT_ID_SECONDS)
    if not has_position.is_set():  # else the handle is returned once the position is saved
        call.started.set()


async def _send_call(connection: DirectConnection, call: LocalCall, has_position: asyncio.Event) -> None:
    last: StreamPosition | None = None

    def on_position(position: StreamPosition) -> None:
        """Keep the position before this event. Its progress is reported a moment later, and would be lost with this process."""
        nonlocal last
        has_position.set()
        connection.keep_session(keep=True)
        call.keep_position(_to_streamed_position(last or position))
        last = position

    try:
        result = await connection.send_resumable_request(
            "tools/call",
            call.record.request.make_tool_call_params(),
            on_progress=make_progress_callback(call),
            on_position=on_position,
        )
    except RequestNotSent:
        raise
    except RequestFailed as failure:
        if has_position.is_set() and isinstance(failure, ResponseLost):
            await call.save()  # the last position, from which the stream is resumed
            return
        completion = completion_from_failure(failure)
    else:
        completion = completion_from_result(result)
    connection.keep_session(keep=False)
    await call.complete(completion)


def _to_streamed_position(position: StreamPosition) -> StreamedPosition:
    return StreamedPosition(
        session_id=position.session.session_id,
        protocol_version=position.session.protocol_version,
        request_id=position.request_id,
        event_id=position.event_id,
    )


def get_session_id(position: StreamedPosition) -> LegacySessionId:
    return LegacySessionId(session_id=position.session_id, protocol_version=position.protocol_version)


async def resume_stream(
    connection: DirectConnection, call: LocalCall, position: StreamedPosition, *, read_seconds: float
) -> float:
    """Read the stream once. Ends the call unless another resume may bring the response.

    Returns how long the server asks its clients to wait before they read on.
    """
    where = StreamPosition(session=get_session_id(position), request_id=position.request_id, event_id=position.event_id)
    try:
        async with asyncio.timeout(read_seconds):
            result = await connection.resume_stream(where, on_progress=make_progress_callback(call))
    except asyncio.CancelledError:  # the join is over; what it has found out is saved with the end of its run
        if connection.reads_stream_on:
            call.keep_known_session()
        raise
    except RequestNotSent:
        pass
    except (UpstreamError, InvalidUpstreamResponse) as failure:
        await call.complete(completion_from_failure(failure))
    except SessionGone as failure:
        await _end_if_lasting(call, failure)
    except (TimeoutError, ResponseLost):
        if call.record.session_gone_since is not None:
            await call.save(session_gone_since=None)
    else:
        await call.complete(completion_from_result(result))
    return connection.retry_seconds


async def _end_if_lasting(call: LocalCall, failure: SessionGone) -> None:
    """End the call once the session has been gone for a while. The record knows since when, because a join may be short."""
    now, since = call.clock.now(), call.record.session_gone_since
    if since is None:
        await call.save(session_gone_since=now)
    elif now - since >= SESSION_GONE_SECONDS:
        await call.complete(completion_from_failure(failure))


async def cancel_stream(connection: DirectConnection, call: LocalCall, position: StreamedPosition) -> None:
    """A cancelled request gets no response, so the call ends here."""
    await connection.send_notification("notifications/cancelled", {"requestId": position.request_id})
    await call.complete(CANCELLED)
