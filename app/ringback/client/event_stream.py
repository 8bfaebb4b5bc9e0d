"""The event log over one connection, reconnected by cursor."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, Self

from ringback.backoff import Backoff
from ringback.client.http_transport import ClientClock, HttpTransport
from ringback.client.models import Event
from ringback.client.problems import ConnectionFailed, QuotaExceeded, Unavailable, UnexpectedAnswer
from ringback.client.responses import parse_text
from ringback.client.server_sent_events import ServerSentEvent, ServerSentEvents

STREAM_IDLE_TIMEOUT_SECONDS: Final = 45.0
"""Three heartbeats of the service. A stream that is silent for longer is dead, even if TCP reports no error."""
RECONNECT_BACKOFF: Final = Backoff(first_seconds=2.0, longest_seconds=30.0)
"""The pause before the next attempt to reconnect, unless the service asks for a longer one, up to the longest."""
RECENT_EVENTS_MAX: Final = 10_000
"""Events whose repetition is recognised: about 2 MB. A restored backup is the only case in which the service repeats some."""
TRUNCATED_EVENT: Final = "truncated"
"""The name of the only frame that is not an event."""


def ignore_truncation() -> None: ...


class EventStream:
    """Events after a cursor and then new events without end, in the order of the log. An async iterator.

        async with ringback.stream_events(cursor=read_cursor()) as stream:
            async for event in stream:
                handle(event)
                write_cursor(stream.cursor)

    A stream that breaks or ends is reconnected after the last event, with growing pauses and without a limit on attempts. No
    event is lost, and none is repeated. It reads ahead what fits into the buffers of one connection, so a slow reader slows the
    service down instead of filling the memory.
    """

    def __init__(
        self,
        transport: HttpTransport,
        clock: ClientClock,
        *,
        params: Mapping[str, str],
        cursor: str | None,
        on_truncated: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._params = params
        self._on_truncated = on_truncated
        self._recent_ids: OrderedDict[str, None] = OrderedDict()
        self._is_connected = False
        """Whether a connection has succeeded: the errors of later ones are repaired by another."""
        self._events = self._read_events()
        self._turn = asyncio.Lock()
        """Held while the next event is awaited."""
        self._reader: asyncio.Task[Any] | None = None
        self._is_closed = False
        self.cursor = cursor
        """The place up to which all events have been returned. Another process continues from it. Without events that match the
        filters, it still advances about every 15 seconds."""
        self.is_truncated = False
        """Whether events after the given cursor were no longer kept, so that this stream did not return them."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """The next event. The errors of the first connection are raised; later ones only if a reconnect cannot repair them.

        After an error, also one of `on_truncated`, and after a wait that was cancelled, as by `asyncio.wait_for`, the next call
        connects again. No event is lost.
        """
        async with self._turn:
            if self._is_closed:
                raise StopAsyncIteration
            self._reader = asyncio.current_task()
            cancelled_before = _count_cancellations(self._reader)
            try:
                return await anext(self._events)
            except StopAsyncIteration:
                raise
            except BaseException as error:
                self._events = self._read_events()  # a generator ends with the exception that passes through it
                if isinstance(error, asyncio.CancelledError) and self._is_cancelled_by_close(cancelled_before):
                    raise StopAsyncIteration from None
                raise
            finally:
                self._reader = None

    async def aclose(self) -> None:
        """Close the connection. The iteration ends, also for a task that awaits the next event."""
        if not self._is_closed:
            self._is_closed = True
            if self._reader is not None:
                self._reader.cancel()
        async with self._turn:
            await self._events.aclose()

    def _is_cancelled_by_close(self, cancelled_before: int) -> bool:
        """Whether only `aclose` has cancelled the task that awaits the next event. Takes that cancellation back."""
        return self._is_closed and self._reader is not None and self._reader.uncancel() <= cancelled_before

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _read_events(self) -> AsyncGenerator[Event]:
        failures = 0
        while not self._is_closed:
            is_open = False
            try:
                async with self._transport.open_stream(
                    "/v1/events/stream",
                    params=self._params,
                    headers={} if self.cursor is None else {"last-event-id": self.cursor},
                    silence_seconds=STREAM_IDLE_TIMEOUT_SECONDS,
                ) as response:
                    is_open = self._is_connected = True
                    stream = ServerSentEvents(response)
                    async for sent in stream.iterate_events():
                        failures = 0
                        if (event := self._take_frame(sent)) is not None:
                            yield event
                pause = stream.retry_seconds
            except (ConnectionFailed, Unavailable, QuotaExceeded, UnexpectedAnswer) as error:
                is_of_event = is_open and isinstance(
                    error, UnexpectedAnswer
                )  # else a proxy's, while the service restarts
                if not self._is_connected or is_of_event:
                    raise
                failures += 1
                pause = reconnect_delay(error, failures)
            await self._clock.sleep(pause)

    def _take_frame(self, sent: ServerSentEvent) -> Event | None:
        """The frame's event, unless it has none or repeats one."""
        if sent.name == TRUNCATED_EVENT:
            self.is_truncated = True
            self._on_truncated()
            return None
        event = parse_text(Event, sent.data) if sent.data else None
        self.cursor = sent.id or self.cursor
        return event if event is not None and self._is_new(event.event_id) else None

    def _is_new(self, event_id: str) -> bool:
        if event_id in self._recent_ids:
            return False
        self._recent_ids[event_id] = None
        if len(self._recent_ids) > RECENT_EVENTS_MAX:
            self._recent_ids.popitem(last=False)
        return True


def _count_cancellations(task: asyncio.Task[Any] | None) -> int:
    return 0 if task is None else task.cancelling()


def reconnect_delay(error: Exception | None, failures: int) -> float:
    """The pause after `failures` errors in succession: 2, 4, 8, 16, 30 seconds, or as long as the service asks for."""
    retry_after = error.retry_after_seconds if isinstance(error, Unavailable | QuotaExceeded) else None
    return min(RECONNECT_BACKOFF.longest_seconds, max(retry_after or 0.0, RECONNECT_BACKOFF.pause_seconds(failures)))
