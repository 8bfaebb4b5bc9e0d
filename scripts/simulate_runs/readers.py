"""Readers of the log: they poll for published events, or follow a stream, and go on from their cursor at any node."""

import asyncio
from contextlib import aclosing, suppress
from functools import partial
from typing import Final

from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.errors import QuotaExceeded, RingbackError, Unavailable
from ringback.domain.event_rows import EventFilter
from ringback.domain.principal import Caller
from ringback.services.events.event_polls import EventRequest
from ringback.services.events.event_streams import FOLLOW_SECONDS_MAX, HEARTBEAT_SECONDS, StreamPage
from ringback.services.events.events import EventPage
from ringback.services.events.log_tails import REREAD_SECONDS
from scripts.simulate_runs.cluster import Connection, ConnectionLost
from scripts.simulate_runs.history import History, ObservedReads, Subject
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.node import Node
from scripts.simulate_runs.plan import PUBLISHED_EVENT, PlannedReader, ReaderKind
from scripts.simulate_runs.requester import (
    REQUEST_TIMEOUT_SECONDS,
    RETRY_SECONDS,
    Requester,
    Unreachable,
    make_caller,
)

POLL_SECONDS: Final = 20.0
PAGE_SIZE: Final = 2
"""Small, so that a log has several pages."""
IDLE_SECONDS: Final = 2.5 * HEARTBEAT_SECONDS
"""A client closes a connection without a heartbeat after this time, and opens another one."""
LAST_EVENTS_SECONDS: Final = REREAD_SECONDS + 5.0
"""How long a stream may take to send an event whose notification was lost."""


class Readers:
    def __init__(self, *, requester: Requester, history: History, loop: SimulationLoop) -> None:
        self._requester = requester
        self._history = history
        self._loop = loop

    async def follow(self, planned: PlannedReader, has_settled: asyncio.Event) -> None:
        """Read from the beginning of the log until everything has settled."""
        await asyncio.sleep(planned.at_seconds)
        reads = self._history.reads[planned] = ObservedReads()
        try:
            if planned.kind is ReaderKind.POLL:
                await self._poll(planned, reads, has_settled)
            else:
                await self._follow_streams(planned, reads, has_settled)
        except RingbackError as error:
            if not self._history.is_principal_erased(planned.principal):
                self._history.surprise(f"the log of {planned.principal} cannot be read as a {planned.kind}: {error!r}")

    # -- polls --

    async def _poll(self, planned: PlannedReader, reads: ObservedReads, has_settled: asyncio.Event) -> None:
        caller, cursor = make_caller(planned.principal), encode_log_position(LogPosition(0))
        while True:
            is_last = has_settled.is_set()
            wait_seconds = 0.0 if is_last else POLL_SECONDS
            try:
                page = await self._requester.repeat(
                    partial(_poll_page, caller=caller, cursor=cursor, wait_seconds=wait_seconds),
                    timeout_seconds=POLL_SECONDS + REQUEST_TIMEOUT_SECONDS,
                )
            except Unreachable:
                return
            self._check_page(planned, is_truncated=page.is_truncated)
            reads.seqs += [event.seq for event in page.events]
            cursor = page.cursor
            if is_last and not page.has_more:
                return

    # -- streams --

    async def _follow_streams(self, planned: PlannedReader, reads: ObservedReads, has_settled: asyncio.Event) -> None:
        """Follow one stream after the other, the last one for as long as a stream may be late."""
        stream = _StreamClient(planned, self._requester, self._loop, reads)
        following = asyncio.create_task(self._follow_for_ever(stream))
        settled = asyncio.create_task(has_settled.wait())
        await asyncio.wait((following, settled), return_when=asyncio.FIRST_COMPLETED)
        if has_settled.is_set():
            await asyncio.wait((following,), timeout=LAST_EVENTS_SECONDS)
        settled.cancel()
        following.cancel()
        stream.close()
        if stream.has_gap:
            self._check_page(planned, is_truncated=True)
        with suppress(asyncio.CancelledError):
            await following

    async def _follow_for_ever(self, stream: "_StreamClient") -> None:
        while True:
            try:
                await stream.follow_once()
            except (ConnectionLost, Unavailable, QuotaExceeded) as error:
                self._note(f"the stream of {stream.principal} ends: {type(error).__name__}")
                await asyncio.sleep(RETRY_SECONDS)

    def _check_page(self, planned: PlannedReader, *, is_truncated: bool) -> None:
        if is_truncated and not self._history.is_principal_erased(planned.principal):
            self._history.surprise(f"the log of {planned.principal} lost events, as a {planned.kind} says")

    def _note(self, text: str) -> None:
        self._history.note(Subject.CLIENT, text)


class _StreamClient:
    """A client of SSE: its cursor, and its present connection."""

    def __init__(
        self, planned: PlannedReader, requester: Requester, loop: SimulationLoop, reads: ObservedReads
    ) -> None:
        self.principal = planned.principal
        self.has_gap = False
        self._caller = make_caller(planned.principal)
        self._requester = requester
        self._loop = loop
        self._reads = reads
        self._cursor: str | None = None
        self._connection: Connection | None = None
        self._began_at: float | None = None
        """When the first page of the present stream arrived."""
        self._has_message = asyncio.Event()

    async def follow_once(self) -> None:
        """Follow one stream to its end. Raises `ConnectionLost` if it is silent, `Unavailable` and `QuotaExceeded`."""
        self.close()
        self._began_at = None
        self._connection = self._requester.open_connection(self._receive)
        request = partial(_send_stream, caller=self._caller, cursor=self._cursor, connection=self._connection)
        response = asyncio.create_task(
            self._requester.send(request, timeout_seconds=FOLLOW_SECONDS_MAX + REQUEST_TIMEOUT_SECONDS)
        )
        response.add_done_callback(lambda _: self._has_message.set())
        try:
            while not response.done():
                self._has_message.clear()
                async with asyncio.timeout(IDLE_SECONDS):
                    await self._has_message.wait()
            await response
        except TimeoutError:
            raise ConnectionLost("silent") from None
        finally:
            response.cancel()
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.is_open = False

    def _receive(self, page: StreamPage) -> None:
        self._has_message.set()
        self.has_gap |= page.is_truncated
        self._reads.seqs += [event.seq for event in page.events]
        if self._began_at is not None:
            self._reads.arrivals += [(event.seq, self._loop.time(), self._began_at) for event in page.events]
        else:
            self._began_at = self._loop.time()
        self._cursor = page.cursor


async def _poll_page(node: Node, *, caller: Caller, cursor: str, wait_seconds: float) -> EventPage:
    request = EventRequest(event_filter=EventFilter(name=PUBLISHED_EVENT), cursor=cursor)
    return await node.services.event_polls.poll_events(caller, request, limit=PAGE_SIZE, wait_seconds=wait_seconds)


async def _send_stream(node: Node, *, caller: Caller, cursor: str | None, connection: Connection) -> None:
    """In the process of the node, which notices a closed connection when it sends."""
    async with aclosing(node.services.event_streams.follow_log(caller, EventFilter(), cursor=cursor)) as pages:
        async for page in pages:
            if not connection.is_open:
                return
            connection.send(page)
