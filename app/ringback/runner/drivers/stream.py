"""The driver for legacy sessions over HTTP whose event streams can be resumed after a lost connection.

    tools/call ──▶ event 1 ──▶ handle saved ──▶ event 2 … ──▶ result
                      ✕ connection or process lost
                   GET, Last-Event-ID ──▶ the events since, and the result

A server that stores events gives its first event an id. Without event ids this driver sends an ordinary tools/call. It uses the
session that all calls of this process share: session id and event id find the response, so a call needs no session of its own.
Ringback does not end a session that a handle names; the upstream lets it expire. A call that is handed back, because this
process stops or its upstream is reconfigured, resumes from its handle.
"""

import asyncio
from functools import partial
from typing import Any, Final

from ringback.backoff import Backoff
from ringback.domain.call import Call, Handle
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion
from ringback.domain.clock import Clock
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
    RESUME_SECONDS_MAX,
    SESSION_GONE_SECONDS,
)
from ringback.protocol.sessions import LegacySessionId, StreamPosition
from ringback.runner.drivers.completions import failure_to_completion, make_progress_callback, result_to_completion
from ringback.runner.drivers.driver import CallContext
from ringback.runner.drivers.legacy_elicitation import run_with_elicitations, withdraw_login_request
from ringback.runner.drivers.plain import make_tool_call_params
from ringback.runner.throttled_writer import ThrottledWriter
from ringback.upstreams.session_ports import CallSessionPort, LegacySessionPort
from ringback.waits import run_with_helper, wait_first

STREAM_DRIVER: Final = "stream"
"""The driver name in its handles."""
POSITION_SAVE_SECONDS: Final = 1.0
"""The interval between two saved positions. After a loss, the upstream repeats the events in between; one write an event would
cost more."""
RESUME_BACKOFF: Final = Backoff(first_seconds=RESUME_SECONDS_FIRST, longest_seconds=RESUME_SECONDS_MAX)
READ_TIMEOUT: Final = Backoff(first_seconds=READ_SECONDS_FIRST, longest_seconds=READ_SECONDS_MAX)

_Positions = ThrottledWriter[StreamPosition]


class StreamDriver:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock

    async def run_call(self, session: CallSessionPort, context: CallContext) -> CallCompletion:
        positions = ThrottledWriter(
            partial(_save_position, context),
            interval_seconds=POSITION_SAVE_SECONDS,
            clock=self._clock,
            initial=_get_position(context.call),
        )
        return await run_with_helper(self._start_or_resume(session, context, positions), positions.run())

    async def cancel_call(self, session: CallSessionPort, call: Call) -> CallCompletion:
        """Send `notifications/cancelled`: abandoning a resumable request does not notify the upstream."""
        if (position := _get_position(call)) is not None:
            async with session.rejoin_session(position.session) as legacy_session:
                await legacy_session.send_notification("notifications/cancelled", {"requestId": position.request_id})
        return CANCELLED_COMPLETION

    async def _start_or_resume(
        self, session: CallSessionPort, context: CallContext, positions: _Positions
    ) -> CallCompletion:
        position = positions.latest or await self._start_with_elicitations(session, context, positions)
        if isinstance(position, CallCompletion):
            return position
        await positions.flush()
        async with session.rejoin_session(position.session) as legacy_session:
            return await run_with_elicitations(
                lambda: legacy_session, context, self._resume_until_result(legacy_session, context, position)
            )

    async def _start_with_elicitations(
        self, session: CallSessionPort, context: CallContext, positions: _Positions
    ) -> CallCompletion | StreamPosition:
        try:
            return await run_with_elicitations(
                lambda: session.legacy_session, context, self._start_call(session, context, positions)
            )
        except ResponseLost as failure:  # an answer, not the response to the call
            return positions.latest or failure_to_completion(failure)

    async def _start_call(
        self, session: CallSessionPort, context: CallContext, positions: _Positions
    ) -> CallCompletion | StreamPosition:
        """The completion, or the position to resume from if the connection was lost."""
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
        """Resume from the same position until the response arrives. The call's deadline is the limit.

        A server that asks for longer pauses than ours gets them (2025-11-25).
        """
        attempts = 0
        gone_since: float | None = None
        while True:
            attempts += 1
            resuming = asyncio.create_task(self._resume_once(legacy_session, context, position))
            await wait_first(resuming, self._clock.sleep(READ_TIMEOUT.pause_seconds(attempts)))
            ended = None if resuming.cancelled() else resuming.result()
            if isinstance(ended, CallCompletion):
                return ended
            if ended is None:
                gone_since = None
            elif gone_since is None:
                gone_since = self._clock.monotonic()
            elif self._clock.monotonic() - gone_since >= SESSION_GONE_SECONDS:
                return failure_to_completion(ended)
            await self._clock.sleep(max(RESUME_BACKOFF.pause_seconds(attempts), legacy_session.retry_seconds))

    async def _resume_once(
        self, legacy_session: LegacySessionPort, context: CallContext, position: StreamPosition
    ) -> CallCompletion | SessionGone | None:
        """None when another resume may bring the response."""
        try:
            result = await legacy_session.resume_stream(position, on_progress=make_progress_callback(context))
        except RequestNotSent:
            raise  # this session has ended; the execution resumes in the next one
        except (UpstreamError, InvalidUpstreamResponse) as failure:
            return failure_to_completion(failure)
        except SessionGone as failure:
            return failure
        except RequestFailed:
            return None
        return result_to_completion(result)


async def _save_position(context: CallContext, position: StreamPosition) -> None:
    data: dict[str, Any] = {
        "session_id": position.session.session_id,
        "protocol_version": position.session.protocol_version,
        "request_id": position.request_id,
        "event_id": position.event_id,
    }
    await context.save_handle(Handle(driver=STREAM_DRIVER, data=data))
    await withdraw_login_request(context)


def _get_position(call: Call) -> StreamPosition | None:
    if call.handle is None or call.handle.driver != STREAM_DRIVER:
        return None
    data = call.handle.data
    session = LegacySessionId(session_id=data["session_id"], protocol_version=data["protocol_version"])
    return StreamPosition(session=session, request_id=data["request_id"], event_id=data["event_id"])
