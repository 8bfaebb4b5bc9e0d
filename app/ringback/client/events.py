"""The client's methods that poll, follow and stream the event log."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final

from ringback.client.event_stream import EventStream
from ringback.client.http_transport import parse_text
from ringback.client.models import Event, EventPage
from ringback.client.problems import ConnectionFailed, QuotaExceeded, Unavailable
from ringback.client.resource_client import LONG_POLL_SPACING_SECONDS, WAIT_SECONDS_MAX, ResourceClient, without_none

STREAM_IDLE_TIMEOUT_SECONDS: Final = 45.0
"""Three heartbeats of the service. A stream that is silent for longer is dead, even if TCP reports no error."""
RECONNECT_SECONDS_MAX: Final = 30.0
"""The longest pause between two attempts to reconnect."""
TRUNCATED_EVENT: Final = "truncated"
"""The name of the only frame that is not an event."""


def _ignore_truncation() -> None: ...


class EventMethods(ResourceClient):
    async def poll_events(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        name: str | None = None,
        call_id: str | None = None,
        client_session_id: str | None = None,
        correlation_id: str | None = None,
        wait_seconds: float | None = None,
    ) -> EventPage:
        """One page of events after the cursor, oldest first. Without a cursor, from the oldest kept event."""
        params = {
            "cursor": cursor,
            "limit": limit,
            "name": name,
            "call_id": call_id,
            "client_session_id": client_session_id,
            "correlation_id": correlation_id,
            "wait_seconds": wait_seconds,
        }
        return await self._transport.fetch_model(
            EventPage, "GET", "/v1/events", params=without_none(params), wait_seconds=wait_seconds
        )

    async def events(
        self,
        *,
        cursor: str | None = None,
        name: str | None = None,
        call_id: str | None = None,
        client_session_id: str | None = None,
        correlation_id: str | None = None,
        follow: bool = False,
    ) -> AsyncIterator[Event]:
        """Events after the cursor, page by page. With `follow`, continue with new events without end."""
        while True:
            began = self._clock.monotonic()
            page = await self.poll_events(
                cursor=cursor,
                name=name,
                call_id=call_id,
                client_session_id=client_session_id,
                correlation_id=correlation_id,
                wait_seconds=WAIT_SECONDS_MAX if follow else None,
            )
            for event in page.events:
                yield event
            cursor = page.cursor
            if not (follow or page.has_more):
                return
            if not (page.events or page.has_more):
                await self._sleep_until(began + LONG_POLL_SPACING_SECONDS)

    async def stream_events(
        self,
        *,
        cursor: str | None = None,
        name: str | None = None,
        call_id: str | None = None,
        client_session_id: str | None = None,
        correlation_id: str | None = None,
        on_truncated: Callable[[], None] = _ignore_truncation,
    ) -> AsyncGenerator[Event]:
        """Events after the cursor and then new events without end, over one connection.

        A broken or ended stream is reconnected after the last event, without a limit on attempts. Another process can continue
        from the last event's cursor. `on_truncated` is called if events after the cursor are no longer kept. The errors of the
        first connection are raised; later ones only if a reconnect cannot repair them.
        """
        filters = {
            "name": name,
            "call_id": call_id,
            "client_session_id": client_session_id,
            "correlation_id": correlation_id,
        }
        connected, failures = False, 0
        while True:
            try:
                async with self._transport.open_stream(
                    "/v1/events/stream",
                    params=without_none(filters),
                    headers=without_none({"last-event-id": cursor}),
                    silence_seconds=STREAM_IDLE_TIMEOUT_SECONDS,
                ) as response:
                    connected, failures = True, 0
                    stream = EventStream(response)
                    async for sent in stream.iterate_events():
                        if sent.name == TRUNCATED_EVENT:
                            on_truncated()
                            continue
                        event = parse_text(Event, sent.data)
                        cursor = event.cursor
                        yield event
                pause = stream.retry_seconds
            except (ConnectionFailed, Unavailable, QuotaExceeded) as error:
                if not connected:
                    raise
                failures += 1
                pause = _reconnect_delay(error, failures)
            await self._clock.sleep(pause)


def _reconnect_delay(error: Exception, failures: int) -> float:
    retry_after = error.retry_after_seconds if isinstance(error, Unavailable | QuotaExceeded) else None
    return min(RECONNECT_SECONDS_MAX, max(retry_after or 0.0, 2.0**failures))
