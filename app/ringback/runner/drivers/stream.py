"""The driver for sessions of before 2026-07-28 over HTTP, whose streams of events may be read on after they were lost.

    tools/call ──▶ event 1 ──▶ handle kept ──▶ event 2 … ──▶ result
                      ✕ connection or process lost
                   GET, Last-Event-ID ──▶ what came after, and the result

A server says with its first event whether it keeps events: it gives it an id. Without ids this is a tools/call like any other.
The session is the one that all calls of this process share: an answer is found by session and event, so a call needs no session
of its own. It lives on until somebody ends it, and nobody ends one that a handle names; the upstream forgets it in time. A call
that is handed back, because this process stops or an upstream is configured anew, goes on where its handle says.
"""

import asyncio
from typing import Any, Final

from ringback.domain.backoff import Backoff
from ringback.domain.call import CANCELLED_COMPLETION, Call, CallCompletion, Handle
from ringback.domain.clock import Clock
from ringback.runner.drivers.completions import failure_to_completion, make_progress_callback, result_to_completion
from ringback.runner.drivers.driver import CallContext
from ringback.runner.drivers.legacy_elicitation import run_with_elicitations
from ringback.runner.drivers.plain import make_tool_call_params
from ringback.upstreams.errors import (
    InvalidUpstreamResponse,
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    SessionGone,
    UpstreamError,
)
from ringback.upstreams.session_ports import CallSessionPort, LegacySessionId, LegacySessionPort, StreamPosition
from ringback.waits import run_with_helper, wait_first

STREAM_DRIVER: Final = "stream"
"""Names the handles made here."""
POSITION_SAVE_SECONDS: Final = 1.0
"""Between two places that are kept: what came in between is told a second time, and costs a write less for each event."""
RESUME_BACKOFF: Final = Backoff(first_seconds=2.0, longest_seconds=60.0)
"""The pause before reading on doubles between these. A server may need a moment to notice that the old stream is gone."""
READ_TIMEOUT: Final = Backoff(first_seconds=5.0, longest_seconds=300.0)
"""A stream that was read on is left and read on again, after a time that doubles between these. An answer that comes in the
moment between a server's replay and its live events is lost on that stream (the SDK's, 2.3.0), and there on the next if that
begins at the same place: behind the answer the server may have put an id of its own."""


class StreamDriver:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock

    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion:
        positions = _PositionTracker(context, clock=self._clock)
        return await run_with_helper(self._start_or_resume(session, context, positions), positions.save_periodically())

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion:
        """Abandoning a request that can be found again tells nothing, so the upstream is told in words."""
        if (position := _get_position(call)) is not None:
            async with session.rejoin_session(position.session) as legacy_session:
                await legacy_session.send_notification("notifications/cancelled", {"requestId": position.request_id})
        return CANCELLED_COMPLETION

    async def _start_or_resume(
        self, session: CallSessionPort, context: CallContext, positions: "_PositionTracker"
    ) -> CallCompletion:
        position = positions.latest or await run_with_elicitations(
            session.legacy_session, context, self._start_call(session, context, positions)
        )
        if isinstance(position, CallCompletion):
            return position
        await positions.save_latest()
        async with session.rejoin_session(position.session) as legacy_session:
            return await run_with_elicitations(
                legacy_session, context, self._resume_until_result(legacy_session, context, position)
            )

    async def _start_call(
        self, session: CallSessionPort, context: CallContext, positions: "_PositionTracker"
    ) -> CallCompletion | StreamPosition:
        """The place to read on from, when there is one and the connection was lost."""
        try:
            result = await session.send_request(
                "tools/call",
                make_tool_call_params(context.call),
                on_progress=make_progress_callback(context),
                on_position=positions.update,
            )
        except ResponseLost as failure:
            return positions.latest or failure_to_completion(failure)
        except RequestFailed as failure:
            return failure_to_completion(failure)
        return result_to_completion(result)

    async def _resume_until_result(
        self, legacy_session: LegacySessionPort, context: CallContext, position: StreamPosition
    ) -> CallCompletion:
        """Read until the answer is there, always from the same place. If it never comes, the call's deadline decides."""
        attempts = 0
        while True:
            attempts += 1
            reading = asyncio.create_task(self._resume_once(legacy_session, context, position))
            await wait_first(reading, self._clock.sleep(READ_TIMEOUT.pause_seconds(attempts)))
            if not reading.cancelled() and (completion := reading.result()) is not None:
                return completion
            await self._clock.sleep(RESUME_BACKOFF.pause_seconds(attempts))

    async def _resume_once(
        self, legacy_session: LegacySessionPort, context: CallContext, position: StreamPosition
    ) -> CallCompletion | None:
        """None when reading on may bring the answer."""
        try:
            result = await legacy_session.resume_stream(position, on_progress=make_progress_callback(context))
        except RequestNotSent:
            raise  # the connection ended, and not the call
        except (UpstreamError, InvalidUpstreamResponse, SessionGone) as failure:
            return failure_to_completion(failure)
        except RequestFailed:
            return None
        return result_to_completion(result)


class _PositionTracker:
    """Where the call stands: the first place is kept at once, then the newest now and then."""

    def __init__(self, context: CallContext, *, clock: Clock) -> None:
        self._context = context
        self._clock = clock
        self._advanced = asyncio.Event()
        self.latest = self._saved = _get_position(context.call)

    def update(self, position: StreamPosition) -> None:
        self.latest = position
        self._advanced.set()

    async def save_latest(self) -> None:
        if self.latest is not None and self.latest != self._saved:
            position = self._saved = self.latest
            await self._context.save_handle(Handle(driver=STREAM_DRIVER, data=_position_to_handle_data(position)))

    async def save_periodically(self) -> None:
        while True:
            await self._advanced.wait()
            self._advanced.clear()
            await self.save_latest()
            await self._clock.sleep(POSITION_SAVE_SECONDS)


def _position_to_handle_data(position: StreamPosition) -> dict[str, Any]:
    return {
        "session_id": position.session.session_id,
        "protocol_version": position.session.protocol_version,
        "request_id": position.request_id,
        "event_id": position.event_id,
    }


def _get_position(call: Call) -> StreamPosition | None:
    if call.handle is None or call.handle.driver != STREAM_DRIVER:
        return None
    data = call.handle.data
    session = LegacySessionId(session_id=data["session_id"], protocol_version=data["protocol_version"])
    return StreamPosition(session=session, request_id=data["request_id"], event_id=data["event_id"])
