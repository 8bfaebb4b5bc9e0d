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

from ringback.domain.call import CANCELLED, Call, Ending, Handle
from ringback.domain.clock import Clock
from ringback.runner.drivers.base import Desk, Place, Session, SessionName, StatefulSession
from ringback.runner.drivers.plain import tool_params
from ringback.runner.drivers.questions import while_answering
from ringback.runner.drivers.results import ending_of_failure, ending_of_result, progress_into
from ringback.runner.failures import Lost, NoAnswer, NotSent, Refused, RequestFailed, SessionGone
from ringback.waits import beside, first_of

STREAM: Final = "stream"
"""Names the handles made here."""
KEEP_SECONDS: Final = 1.0
"""Between two places that are kept: what came in between is told a second time, and costs a write less for each event."""
PAUSE_SECONDS_MIN: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0
"""The pause before reading on doubles between these. A server may need a moment to notice that the old stream is gone."""
READ_SECONDS_MIN: Final = 5.0
READ_SECONDS_MAX: Final = 300.0
"""A stream that was read on is left and read on again, after a time that doubles between these. An answer that comes in the
moment between a server's replay and its live events is lost on that stream (the SDK's, 2.3.0), and there on the next if that
begins at the same place: behind the answer the server may have put an id of its own."""


class StreamDriver:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock

    async def run(self, session: Session, desk: Desk) -> Ending:
        places = _Places(desk, clock=self._clock)
        return await beside(self._carry(session, desk, places), places.run())

    async def cancel(self, session: Session, call: Call) -> Ending:
        """Abandoning a request that can be found again tells nothing, so the upstream is told in words."""
        if (place := _place_of(call)) is not None:
            async with session.rejoined(place.session) as held:
                await held.tell("notifications/cancelled", {"requestId": place.request_id})
        return CANCELLED

    async def _carry(self, session: Session, desk: Desk, places: "_Places") -> Ending:
        place = places.newest or await while_answering(session.stateful, desk, self._start(session, desk, places))
        if isinstance(place, Ending):
            return place
        await places.keep()
        async with session.rejoined(place.session) as held:
            return await while_answering(held, desk, self._read_on(held, desk, place))

    async def _start(self, session: Session, desk: Desk, places: "_Places") -> Ending | Place:
        """The place to read on from, when there is one and the connection was lost."""
        try:
            result = await session.request(
                "tools/call", tool_params(desk.call), on_progress=progress_into(desk), on_place=places.take
            )
        except Lost as failure:
            return places.newest or ending_of_failure(failure)
        except RequestFailed as failure:
            return ending_of_failure(failure)
        return ending_of_result(result)

    async def _read_on(self, held: StatefulSession, desk: Desk, place: Place) -> Ending:
        """Read until the answer is there, always from the same place. If it never comes, the call's deadline decides."""
        pause, patience = PAUSE_SECONDS_MIN, READ_SECONDS_MIN
        while True:
            reading = asyncio.create_task(self._read(held, desk, place))
            await first_of(reading, self._clock.sleep(patience))
            if not reading.cancelled() and (ending := reading.result()) is not None:
                return ending
            patience = min(2 * patience, READ_SECONDS_MAX)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
            await self._clock.sleep(pause)

    async def _read(self, held: StatefulSession, desk: Desk, place: Place) -> Ending | None:
        """None when reading on may bring the answer."""
        try:
            result = await held.resume(place, on_progress=progress_into(desk))
        except NotSent:
            raise  # the connection ended, and not the call
        except (Refused, NoAnswer, SessionGone) as failure:
            return ending_of_failure(failure)
        except RequestFailed:
            return None
        return ending_of_result(result)


class _Places:
    """Where the call stands: the first place is kept at once, then the newest now and then."""

    def __init__(self, desk: Desk, *, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock
        self._moved = asyncio.Event()
        self.newest = self._kept = _place_of(desk.call)

    def take(self, place: Place) -> None:
        self.newest = place
        self._moved.set()

    async def keep(self) -> None:
        if self.newest is not None and self.newest != self._kept:
            place = self._kept = self.newest
            await self._desk.keep(Handle(driver=STREAM, data=_data(place)))

    async def run(self) -> None:
        while True:
            await self._moved.wait()
            self._moved.clear()
            await self.keep()
            await self._clock.sleep(KEEP_SECONDS)


def _data(place: Place) -> dict[str, Any]:
    return {
        "session_id": place.session.session_id,
        "protocol_version": place.session.protocol_version,
        "request_id": place.request_id,
        "event_id": place.event_id,
    }


def _place_of(call: Call) -> Place | None:
    if call.handle is None or call.handle.driver != STREAM:
        return None
    data = call.handle.data
    session = SessionName(session_id=data["session_id"], protocol_version=data["protocol_version"])
    return Place(session=session, request_id=data["request_id"], event_id=data["event_id"])
