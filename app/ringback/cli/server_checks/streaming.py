"""What a run observes of events/stream: each function is one observation, made once."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from ringback.cli.server_checks.cases import Untestable, Violation, expect, fail
from ringback.cli.server_checks.connection import SUBSCRIPTION_ID_KEY
from ringback.cli.server_checks.message_stream import Json, MessageStream, Reply, StreamFrame, as_object
from ringback.cli.server_checks.polling import pollable, polled_event, require_occurrence
from ringback.cli.server_checks.subject import OfferedEventType, ServerUnderTest

STREAM: Final = "events/stream"
NOTIFICATIONS: Final = "notifications/events/"
ACTIVE: Final = f"{NOTIFICATIONS}active"
EVENT: Final = f"{NOTIFICATIONS}event"
HEARTBEAT: Final = f"{NOTIFICATIONS}heartbeat"
TEXT_ID: Final = "ringback-check"
"""A request id that is a string; ids of a run are numbers otherwise."""
CONCURRENT_STREAMS: Final = 3
FRAMES_SHOWN: Final = 10
"""Of a stream without its confirmation, in the report."""


@dataclass(frozen=True, slots=True)
class StreamRound:
    """One stream that was open until a heartbeat came, or none within the time."""

    request_id: int | str
    opened_at: float
    ended_at: float
    frames: list[StreamFrame]
    active: StreamFrame
    event: StreamFrame | None
    heartbeat: StreamFrame | None
    no_event: Untestable | Violation
    """Why there is no event."""

    @property
    def longest_silence(self) -> float:
        """In seconds, between two frames, and before the first and after the last."""
        times = [self.opened_at, *(frame.at for frame in self.frames), self.ended_at]
        return max(later - earlier for earlier, later in pairwise(times))


async def streamable(server: ServerUnderTest) -> OfferedEventType:
    return await server.choose_type("push")


def build_params(event: OfferedEventType, cursor: Any = None) -> dict[str, Any]:
    return {"name": event.name, "arguments": event.arguments, "cursor": cursor}


async def opened_stream(server: ServerUnderTest) -> StreamRound:
    """The stream that most cases read."""
    event = await server.require(streamable)
    async with server.connection.open_stream(STREAM, build_params(event)) as stream:
        active = await await_active(server, stream)
        occurrence, no_event = await _await_event(server, stream, event, active)
        start = len(stream.frames)
        heartbeat = next((frame for frame in stream.frames if frame.method == HEARTBEAT), None)
        heartbeat = heartbeat or await stream.wait_for_method(HEARTBEAT, server.timeouts.heartbeat_seconds, start=start)
        ended_at = heartbeat.at if heartbeat else stream.opened_at + server.timeouts.heartbeat_seconds
        frames = list(stream.frames)
    return StreamRound(stream.request_id, stream.opened_at, ended_at, frames, active, occurrence, heartbeat, no_event)


async def await_active(server: ServerUnderTest, stream: MessageStream) -> StreamFrame:
    active = await stream.wait_for_method(ACTIVE, server.timeouts.active_seconds)
    if active is None:
        reply = await stream.wait_for_reply(0)
        seen = reply.describe() if reply else [frame.method or frame.comment for frame in stream.frames[:FRAMES_SHOWN]]
        raise Violation(
            f"no {ACTIVE} within {server.timeouts.active_seconds:.0f} s, but {seen or stream.ending or 'nothing'}"
        )
    return active


async def _await_event(
    server: ServerUnderTest, stream: MessageStream, event: OfferedEventType, active: StreamFrame
) -> tuple[StreamFrame | None, Untestable | Violation]:
    """The event that is made to happen, and what it means if there is none."""
    try:
        await server.emitter.emit()
        frame = await stream.wait_for_method(EVENT, server.timeouts.event_seconds)
        if frame is None:
            await require_occurrence(server, event, active.params.get("cursor"))
    except Untestable as missing:
        return None, missing
    return frame, Violation(f"no {EVENT} within {server.timeouts.event_seconds:.0f} s after it was to happen")


async def refused_stream(server: ServerUnderTest) -> Reply:
    """The response to a stream of a name that is not served."""
    await server.require(streamable)
    params: Json = {"name": "ringback.check.no_such_event", "arguments": {}, "cursor": None}
    async with server.connection.open_stream(STREAM, params) as stream:
        return await await_refusal(server, stream)


async def await_refusal(server: ServerUnderTest, stream: MessageStream) -> Reply:
    """The JSON-RPC response in place of a stream."""
    reply = await stream.wait_for_reply(server.timeouts.active_seconds)
    expect(not any(frame.method == ACTIVE for frame in stream.frames), "the stream was confirmed")
    return reply or fail(stream.ending or f"no response within {server.timeouts.active_seconds:.0f} s")


async def text_id_stream(server: ServerUnderTest) -> StreamFrame:
    """The confirmation of a stream whose request id is a string."""
    event = await server.require(streamable)
    async with server.connection.open_stream(STREAM, build_params(event), request_id=TEXT_ID) as stream:
        return await await_active(server, stream)


async def concurrent_streams(server: ServerUnderTest) -> int:
    """How many of several streams at once are confirmed."""
    event = await server.require(streamable)
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(server.connection.open_stream(STREAM, build_params(event)))
            for _ in range(CONCURRENT_STREAMS)
        ]
        confirmed = [await stream.wait_for_method(ACTIVE, server.timeouts.active_seconds) for stream in streams]
    return len(confirmed) - confirmed.count(None)


async def resumed_stream(server: ServerUnderTest) -> tuple[str, list[str]]:
    """The id of an event, and the ids on a stream from the cursor before it."""
    seen = await server.require(polled_event)
    event = await server.require(streamable)
    if event.name != (await server.require(pollable)).name:
        raise Untestable("no event type offers both poll and push")
    wanted = str(seen.occurrences[0].get("eventId"))
    async with server.connection.open_stream(STREAM, build_params(event, seen.before)) as stream:
        await await_active(server, stream)
        await stream.wait_for(
            lambda frame: frame.method == EVENT and frame.params.get("eventId") == wanted, server.timeouts.event_seconds
        )
        return wanted, [str(frame.params.get("eventId")) for frame in stream.frames if frame.method == EVENT]


def get_subscription_id(frame: StreamFrame) -> object:
    return as_object(frame.params.get("_meta")).get(SUBSCRIPTION_ID_KEY)
