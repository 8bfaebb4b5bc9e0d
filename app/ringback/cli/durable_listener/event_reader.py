"""Reads the service's event stream into the inbox, as callbacks."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

from ringback.cli.durable_listener.inbox import Inbox, NewCallback, WaitingCallback
from ringback.cli.durable_listener.state_file import EventSelection
from ringback.client import (
    ConnectionFailed,
    Event,
    Forbidden,
    Gone,
    NotFound,
    QuotaExceeded,
    RingbackClient,
    Unavailable,
    UnexpectedAnswer,
)
from ringback.client.event_stream import EventStream, reconnect_delay
from ringback.client.http_transport import ClientClock
from ringback.protocol.mcp_events.occurrence import format_timestamp

BATCH_SIZE: Final = 100
"""Events of one transaction: a page of the service's stream."""
TOKEN_REQUESTS_MAX: Final = 8
"""Requests for resume tokens at once."""
PASSING_ERRORS: Final = (ConnectionFailed, Unavailable, QuotaExceeded, UnexpectedAnswer)
"""Errors of a service, or of a proxy before it, that is restarting."""
CURSOR_SAVE_SECONDS: Final = 60.0
"""How often the place of a stream without matching events is stored. The service keeps events for days, so this is often
enough that a listener does not start at a place that the service has forgotten."""
UNKNOWN_CALL_ID: Final = "call_00000000000000000000000000"
"""No call has this id, so the page of its events is empty and ends at the end of the log."""
_CALL_PREFIX: Final = "call."
"""Of the events of calls. No event of yours may have it."""

Report = Callable[[str], None]


class EventReader:
    def __init__(
        self,
        client: RingbackClient,
        inbox: Inbox,
        selection: EventSelection,
        *,
        clock: ClientClock,
        report: Report,
        add_callback: Callable[[WaitingCallback], None],
        wait_for_space: Callable[[], Awaitable[None]],
    ) -> None:
        self._client = client
        self._inbox = inbox
        self._selection = selection
        self._clock = clock
        self._report = report
        self._add_callback = add_callback
        self._wait_for_space = wait_for_space
        self._events: asyncio.Queue[Event] = asyncio.Queue(BATCH_SIZE)
        self._stream: EventStream | None = None
        self._is_storing = False
        self._token_permits = asyncio.Semaphore(TOKEN_REQUESTS_MAX)

    async def run(self) -> None:
        """Read and store events without end. Raises a `ClientError` that another attempt cannot repair."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_stream())
            group.create_task(self._store_batches())
            group.create_task(self._save_cursor_of_quiet_stream())

    async def _read_stream(self) -> None:
        cursor, failures = await self._inbox.read_setting("cursor"), 0
        while True:
            error = None
            try:
                async with aclosing(self._open_stream(cursor)) as self._stream:
                    async for event in self._stream:
                        await self._events.put(event)
                        failures = 0
            except PASSING_ERRORS as passing:
                error, failures = passing, failures + 1
                if failures == 1:
                    self._report(f"{error} The listener tries again until it reaches the service.")
            cursor = self._stream.cursor if self._stream is not None else cursor
            await self._clock.sleep(reconnect_delay(error, failures))

    def _open_stream(self, cursor: str | None) -> EventStream:
        names = self._selection.names
        return self._client.stream_events(
            cursor=cursor,
            name=names[0] if len(names) == 1 else None,
            client_session_id=self._selection.client_session_id,
            correlation_id=self._selection.correlation_id,
            on_truncated=self._report_truncation,
        )

    def _report_truncation(self) -> None:
        self._report(
            "The service no longer has some events that came after the last one read here: they were too old, or its database "
            "was replaced. Look your calls up: ringback calls"
        )

    async def _store_batches(self) -> None:
        while True:
            await self._wait_for_space()
            batch = [await self._events.get()]
            self._is_storing = True
            while len(batch) < BATCH_SIZE and not self._events.empty():
                batch.append(self._events.get_nowait())
            await self._store_batch(batch)
            self._is_storing = False

    async def _save_cursor_of_quiet_stream(self) -> None:
        """Store the place to which heartbeats have advanced the stream, if every event before it is stored."""
        saved = None
        while True:
            await self._clock.sleep(CURSOR_SAVE_SECONDS)
            if self._stream is None or self._is_storing or not self._events.empty():
                continue
            if (cursor := self._stream.cursor) != saved:
                await self._inbox.store((), cursor=cursor)
                saved = cursor

    async def _store_batch(self, batch: Sequence[Event]) -> None:
        selected = [event for event in batch if event.name in self._selection.names]
        tokens = await asyncio.gather(*(self._fetch_resume_token(event) for event in selected))
        handled_cursor = await self._inbox.read_handled_cursor()
        callbacks = [
            NewCallback(
                event_id=event.event_id,
                order_key=order_key(event),
                cursor=event.cursor,
                body=build_callback_body(
                    event, service_url=self._selection.url.rstrip("/"), resume_token=token, cursor=handled_cursor
                ),
            )
            for event, token in zip(selected, tokens, strict=True)
        ]
        for waiting in await self._inbox.store(callbacks, cursor=batch[-1].cursor):
            self._add_callback(waiting)

    async def _fetch_resume_token(self, event: Event) -> str | None:
        """A resume token for the event's call; None if there is no call, it has expired, or the API key may not."""
        call_id, failures = _get_call_id(event), 0
        if call_id is None:
            return None
        async with self._token_permits:
            while True:
                try:
                    return await self._client.fresh_resume_token(call_id)
                except (NotFound, Gone, Forbidden):
                    return None
                except PASSING_ERRORS as passing:
                    error, failures = passing, failures + 1
                await self._clock.sleep(reconnect_delay(error, failures))


async def find_first_cursor(client: RingbackClient, selection: EventSelection, *, from_start: bool) -> str | None:
    """The cursor at which a new listener begins: the end of the log, or None for the oldest event that is kept.

    Raises a `ClientError` if the service cannot be reached or rejects the API key or a name of the selection.
    """
    cursor = None
    for name in selection.names:
        page = await client.poll_events(name=name, call_id=UNKNOWN_CALL_ID, limit=1)
        cursor = cursor or page.cursor
    return None if from_start else cursor


def _get_call_id(event: Event) -> str | None:
    """The call that the event is about. The data of your own events may have a `call_id` that is anything."""
    call_id = event.data.get("call_id") if event.name.startswith(_CALL_PREFIX) else None
    return call_id if isinstance(call_id, str) else None


def order_key(event: Event) -> str:
    """Events with the same key are handled one at a time: the events of a session, of a call without one, or of neither."""
    for name in ("client_session_id", "call_id"):
        if value := event.data.get(name):
            return f"{name}:{value}"
    return ""


def build_callback_body(event: Event, *, service_url: str, resume_token: str | None, cursor: str | None) -> bytes:
    """The body of a callback for this event. The URLs are those at which this listener reaches the service.

    It has the members of a callback that the service sends, except `answered_inline`, which belongs to a delivery. As in every
    callback, everything at or before `cursor` was handled or given up when the body was made.
    """
    data = dict(event.data)
    if (call_id := _get_call_id(event)) is not None:
        data["resource_uri"] = f"ringback://calls/{call_id}"
        data["mcp_url"] = f"{service_url}/mcp"
    if resume_token is not None:
        data["resume_token"] = resume_token
        data["resume_url"] = f"{service_url}/v1/resume"
    envelope: dict[str, Any] = {
        "eventId": event.event_id,
        "name": event.name,
        "timestamp": format_timestamp(event.timestamp),
        "data": data,
    }
    if cursor is not None:
        envelope["cursor"] = cursor
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()
