"""Follows the events of one type at an upstream, for arguments: by events/stream where it is offered, else by events/poll.

    connected ──▶ push offered ──▶ events/stream ──frames──▶ page ──▶ stored, with the cursor
                  else         ──▶ events/poll   ──result──▶ page ──▶ stored, with the cursor ──▶ pause ──▶ events/poll
    lost, ended, silent (stream_silence) or refused ──▶ pause ──▶ again from the stored cursor

The next page is read after the last one is stored, so a restart repeats events and loses none. The log recognises repeats by
their ids. An upstream that gives no cursor repeats nothing: what happens between two of its streams is lost, and the first page
of the later stream is marked as truncated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import anyio

from ringback.asyncio_tasks import end_tasks
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.log_context import leave_log_context
from ringback.protocol.errors import RequestFailed, UpstreamError
from ringback.protocol.mcp_events.names import EventNotification
from ringback.telemetry.spans import leave_span
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.events.event_frames import EventFrames, Frame
from ringback.upstreams.events.occurrences import (
    EVENTS_PER_PAGE,
    FollowedEvents,
    UpstreamEventPage,
    read_cursor,
    read_occurrence,
    read_poll_result,
    split_poll_result,
)
from ringback.upstreams.events.stream_silence import StreamSilence
from ringback.upstreams.faults import Fault, FaultCounter
from ringback.upstreams.session import UpstreamSession
from ringback.waits import wait_first

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 2.0
"""Between two attempts while the upstream is away, or after its stream ended."""
REJECTED_RETRY_SECONDS: Final = 30.0
"""Between two attempts after the upstream rejected the request or ended the subscription, or after a bug of ours."""
REQUEST_TIMEOUT_SECONDS: Final = 60.0
"""For the result of events/poll, as for other requests of ours."""

StorePage = Callable[[FollowedEvents, UpstreamEventPage], Awaitable[None]]
"""Stores events and cursor in one transaction. Raises `StoreUnavailable`."""


class FollowableConnection(Protocol):
    """What a following needs of a connection."""

    @property
    def faults(self) -> FaultCounter: ...

    @property
    def replaced(self) -> anyio.Event:
        """Set when the configuration has replaced or removed this connection."""
        ...

    async def get_shared_session(self, *, started_here: bool) -> UpstreamSession:
        """Wait for the shared session; raises `UpstreamUnreachable`, also if this connection was replaced."""
        ...


class Following:
    def __init__(
        self,
        followed: FollowedEvents,
        *,
        cursor: str | None,
        is_resumed: bool = False,
        streams: Callable[[], bool],
        connections: Mapping[str, FollowableConnection],
        store_page: StorePage,
        wait_for_turn: Callable[[int], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`is_resumed` says whether an earlier following has read up to `cursor`.

        `streams` says whether the upstream offers events/stream now; `wait_for_turn` limits its events per second.
        """
        self._followed = followed
        self._cursor = cursor
        self._has_missed_events = is_resumed and cursor is None
        """Whether the upstream may have sent events that no stream will repeat. The next page of a stream says so."""
        self._silence = StreamSilence()
        self._streams = streams
        self._connections = connections
        self._store_page = store_page
        self._wait_for_turn = wait_for_turn
        self._clock = clock

    async def run(self) -> None:
        """Follow until cancelled."""
        leave_log_context()
        leave_span()
        while True:
            pause = RETRY_SECONDS
            try:
                if (connection := self._connections.get(self._followed.upstream)) is not None:
                    await self._follow_connection(connection)
            except (_SubscriptionEnded, UpstreamError):
                pause = REJECTED_RETRY_SECONDS
            except (RequestFailed, UpstreamUnreachable, StoreUnavailable, TimeoutError):
                pass
            except Exception:  # a bug in one following must not end those of all upstreams
                log.exception("upstream.following_failed", extra={"upstream": self._followed.upstream})
                pause = REJECTED_RETRY_SECONDS
            await self._clock.sleep(pause)

    async def _follow_connection(self, connection: FollowableConnection) -> None:
        """Return when the session or the stream has ended."""
        session = await connection.get_shared_session(started_here=False)
        reading = asyncio.create_task(
            self._read_stream(session, connection.faults) if self._streams() else self._poll(session, connection.faults)
        )
        try:
            await wait_first(asyncio.shield(reading), session.closed.wait(), connection.replaced.wait())
            if reading.done():
                reading.result()
        finally:
            await end_tasks([reading])

    # -- events/poll --

    async def _poll(self, session: UpstreamSession, faults: FaultCounter) -> None:
        while self._streams() is False:
            params = self._followed.build_params(self._cursor) | {"maxEvents": EVENTS_PER_PAGE}
            with anyio.fail_after(REQUEST_TIMEOUT_SECONDS):
                result = await session.send_request("events/poll", params)
            await self._clock.sleep(await self._store_result(result, faults))

    async def _store_result(self, result: Mapping[str, Any], faults: FaultCounter) -> float:
        """Store the result part by part, each at its turn. Return the seconds until the next poll."""
        previous, has_events, pause = self._cursor, False, 0.0
        for part in split_poll_result(result, cursor=previous):
            page = read_poll_result(self._followed, part)
            await self._store(page, faults)
            has_events = has_events or bool(page.events)
            # Only an upstream whose cursor advances is asked again at once: another one would be asked for ever.
            advances = page.has_more and has_events and page.cursor != previous
            pause = 0.0 if advances else page.next_poll_seconds
        return pause

    # -- events/stream --

    async def _read_stream(self, session: UpstreamSession, faults: FaultCounter) -> None:
        opened_at, has_begun = self._cursor, False
        self._silence.begin_stream()
        async with session.stream_opener.open_event_stream(self._followed.build_params(self._cursor)) as frames:
            try:
                while received := await self._next_frames(frames):
                    has_begun = True
                    await self._store(self._read_frames(received), faults)
                    self._has_missed_events = False
                    if any(method == EventNotification.TERMINATED for method, _ in received):
                        raise _SubscriptionEnded
                _raise_failure(frames)
            finally:
                if has_begun:
                    self._note_end(frames, opened_at)

    async def _next_frames(self, frames: EventFrames) -> list[Frame]:
        try:
            with anyio.fail_after(self._silence.allowed_seconds):
                received = await frames.next_frames(limit=EVENTS_PER_PAGE)
        except TimeoutError:
            self._silence.note_death()
            raise
        self._silence.note_frames((method for method, _ in received), at=anyio.current_time())
        return received

    def _note_end(self, frames: EventFrames, opened_at: str | None) -> None:
        """Decide where the next stream begins, and whether events are missing before it."""
        if frames.has_overflowed and self._cursor == opened_at:
            self._cursor = None  # the same place would overflow again
        self._has_missed_events = self._has_missed_events or self._cursor is None

    def _read_frames(self, received: list[Frame]) -> UpstreamEventPage:
        """One page of these frames. The cursor is that of the last frame that has one."""
        cursor, is_truncated = self._cursor, self._has_missed_events
        occurrences: list[Mapping[str, Any]] = []
        for method, params in received:
            cursor = read_cursor(params) or cursor
            if method == EventNotification.ACTIVE:
                is_truncated = is_truncated or params.get("truncated") is True
            elif method == EventNotification.EVENT:
                occurrences.append(params)
        events = [read_occurrence(self._followed, each) for each in occurrences]
        return UpstreamEventPage(
            events=[each for each in events if each is not None],
            cursor=cursor,
            is_truncated=is_truncated,
            dropped=events.count(None),
        )

    async def _store(self, page: UpstreamEventPage, faults: FaultCounter) -> None:
        for _ in range(page.dropped):
            faults.increment(Fault.BAD_EVENT)
        await self._wait_for_turn(len(page.events) + page.dropped)
        await self._store_page(self._followed, page)
        self._cursor = page.cursor


class _SubscriptionEnded(Exception):
    """The upstream has ended the subscription."""


def _raise_failure(frames: EventFrames) -> None:
    if isinstance(frames.failure, RequestFailed):
        raise frames.failure
