"""Reads the event log for callbacks that did not arrive: after a gap, and at the start.

The receiver keeps a place in the log of its own. A callback's `cursor` says what its own webhook has delivered; a receiver may
have several webhooks. So the place is set by the first callback, and moves only by reading.
"""

import json
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Final, Protocol, cast

from ringback.receiver.deduplicator import FETCHED
from ringback.receiver.envelopes import CALL_FINISHED, CALL_INPUT_REQUIRED, Callback, parse
from ringback.receiver.handling import MessageHandling, NotReady, ReceivedMessage

FETCHED_EVENT_NAMES: Final = frozenset({CALL_FINISHED, CALL_INPUT_REQUIRED})
"""What a webhook delivers unless it asks for other events."""
SAVE_EVERY_EVENTS: Final = 100
"""The service's default page of events."""
RETRY_SECONDS_MAX: Final = 60.0
_DOUBLINGS_MAX: Final = 6

log = logging.getLogger(__name__)


class LogEvent(Protocol):
    """An event of the log. `ringback.client.Event` is one."""

    @property
    def event_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def timestamp(self) -> datetime: ...
    @property
    def cursor(self) -> str | None: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


FetchSince = Callable[[str], AsyncIterable[LogEvent]]
"""The events after a cursor, oldest first, to the end of the log: `lambda cursor: ringback.events(cursor=cursor)`."""


class MissedEvents:
    def __init__(
        self,
        fetch_since: FetchSince,
        handling: MessageHandling,
        *,
        names: Collection[str] = FETCHED_EVENT_NAMES,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._fetch_since = fetch_since
        self._handling = handling
        self._names = names
        self._sleep = sleep

    async def fetch_from_start(self, cursor: str) -> None:
        """Hand over what the log holds since the saved place. Repeats until the service has answered."""
        failures = 0
        while True:
            try:
                await self._fetch(cursor, save=True)
            except Exception as error:  # noqa: BLE001 - the boundary to the owner's function; it may raise anything its client raises
                pause = min(RETRY_SECONDS_MAX, 2.0 ** min(failures, _DOUBLINGS_MAX))
                failures += 1
                log.warning("Missed events could not be fetched (%r); trying again in %g s", error, pause)
                await self._sleep(pause)
            else:
                return

    async def fetch_after_gap(self, cursor: str) -> None:
        """Hand over what the log holds since the gap's cursor. Raises what `fetch_since` raises; the gap then comes again."""
        await self._fetch(cursor, save=False)

    async def _fetch(self, cursor: str, *, save: bool) -> None:
        count, last = 0, None
        async for event in self._fetch_since(cursor):
            if event.name in self._names:
                await self._accept_when_ready(event)
            count, last = count + 1, event.cursor
            if save and last is not None and count % SAVE_EVERY_EVENTS == 0:
                await self._handling.save_cursor(last)
        if save and last is not None:
            await self._handling.save_cursor(last)

    async def _accept_when_ready(self, event: LogEvent) -> None:
        """Hand the event over, and wait while its handler is not ready or the inbox is full."""
        message = _to_message(event)
        while True:
            try:
                await self._handling.accept(message)
            except NotReady as error:
                await self._sleep(error.retry_after_seconds)
            else:
                return


def _to_message(event: LogEvent) -> ReceivedMessage:
    """The event as if it had been delivered, without the members that only a delivery has, such as a resume token."""
    body = json.dumps(
        {
            "eventId": event.event_id,
            "name": event.name,
            "timestamp": event.timestamp.isoformat(),
            "cursor": event.cursor,
            "data": dict(event.data),
        }
    ).encode()
    callback = cast("Callback", parse(body))  # without a `type`, it is no control envelope
    return ReceivedMessage(message_id=event.event_id, subscription_id=FETCHED, envelope=callback, body=body)
