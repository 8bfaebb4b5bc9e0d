"""The client's methods that poll, follow and stream the event log."""

from collections.abc import AsyncGenerator, Callable

from ringback.client.event_stream import EventStream, ignore_truncation, reconnect_delay
from ringback.client.models import Event, EventPage
from ringback.client.problems import ConnectionFailed, QuotaExceeded, Unavailable
from ringback.client.resource_client import LONG_POLL_SPACING_SECONDS, WAIT_SECONDS_MAX, ResourceClient, without_none


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
        on_truncated: Callable[[], None] = ignore_truncation,
    ) -> AsyncGenerator[Event]:
        """Events after the cursor, page by page. With `follow`, continue with new events without end, by long polling.

        `stream_events` needs fewer requests; `follow` also works behind a proxy that buffers streams. `on_truncated` is called
        if events after the cursor are no longer kept. With `follow`, errors that pass are raised only before the first page.
        """
        is_connected, failures = False, 0
        while True:
            began = self._clock.monotonic()
            try:
                page = await self.poll_events(
                    cursor=cursor,
                    name=name,
                    call_id=call_id,
                    client_session_id=client_session_id,
                    correlation_id=correlation_id,
                    wait_seconds=WAIT_SECONDS_MAX if follow else None,
                )
            except (ConnectionFailed, Unavailable, QuotaExceeded) as error:
                if not (follow and is_connected):
                    raise
                failures += 1
                await self._clock.sleep(reconnect_delay(error, failures))
                continue
            is_connected, failures = True, 0
            if page.truncated:
                on_truncated()
            for event in page.events:
                yield event
            cursor = page.cursor
            if not (follow or page.has_more):
                return
            if not (page.events or page.has_more):
                await self._sleep_until(began + LONG_POLL_SPACING_SECONDS)

    def stream_events(
        self,
        *,
        cursor: str | None = None,
        name: str | None = None,
        call_id: str | None = None,
        client_session_id: str | None = None,
        correlation_id: str | None = None,
        on_truncated: Callable[[], None] = ignore_truncation,
    ) -> EventStream:
        """Events after the cursor and then new events without end, over one connection that reconnects by cursor.

        Without a cursor, from the oldest kept event. `on_truncated` is called if events after the cursor are no longer kept.
        Nothing is sent before the first event is asked for.
        """
        params = without_none(
            {
                "name": name,
                "call_id": call_id,
                "client_session_id": client_session_id,
                "correlation_id": correlation_id,
            }
        )
        return EventStream(self._transport, self._clock, params=params, cursor=cursor, on_truncated=on_truncated)
