"""The client's methods that publish events, and poll, follow and stream the event log."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Unpack

import httpx

from ringback.client.arguments import list_mappings, quote_path_segment
from ringback.client.event_stream import EventStream, ignore_truncation, reconnect_delay
from ringback.client.models import Event, EventPage, EventType, EventTypeList, PublishedEvent, PublishedEvents
from ringback.client.options import EventOptions, NewEvent
from ringback.client.problems import ConnectionFailed, QuotaExceeded, Unavailable, UnexpectedAnswer
from ringback.client.resource_client import LONG_POLL_SPACING_SECONDS, WAIT_SECONDS_MAX, ResourceClient, without_none
from ringback.client.responses import parse_response


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
        response = await self._send_poll(
            cursor=cursor,
            limit=limit,
            name=name,
            call_id=call_id,
            client_session_id=client_session_id,
            correlation_id=correlation_id,
            wait_seconds=wait_seconds,
        )
        return parse_response(EventPage, response)

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
                response = await self._send_poll(
                    cursor=cursor,
                    name=name,
                    call_id=call_id,
                    client_session_id=client_session_id,
                    correlation_id=correlation_id,
                    wait_seconds=WAIT_SECONDS_MAX if follow else None,
                )
                page = parse_response(EventPage, response)
            except (ConnectionFailed, Unavailable, QuotaExceeded, UnexpectedAnswer) as error:
                is_of_service = isinstance(error, UnexpectedAnswer) and error.status is None  # else a proxy's page
                if not (follow and is_connected) or is_of_service:
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

    async def _send_poll(self, *, wait_seconds: float | None, **where: str | int | None) -> httpx.Response:
        params = without_none({**where, "wait_seconds": wait_seconds})
        return await self._transport.send_request("GET", "/v1/events", params=params, wait_seconds=wait_seconds)

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
            {"name": name, "call_id": call_id, "client_session_id": client_session_id, "correlation_id": correlation_id}
        )
        return EventStream(self._transport, self._clock, params=params, cursor=cursor, on_truncated=on_truncated)

    # -- events of your own --

    async def publish_event(
        self, name: str, data: Mapping[str, Any], **options: Unpack[EventOptions]
    ) -> PublishedEvent:
        """Publish an event of your own to your webhooks, polls and streams.

        With an `id`, the client repeats the request until it succeeds, and the event is published once.
        """
        body = {**options, "name": name, "data": data}
        return await self._transport.fetch_model(
            PublishedEvent, "POST", "/v1/events", body=body, repeatable=options.get("id") is not None
        )

    async def publish_events(self, events: Sequence[NewEvent]) -> Sequence[PublishedEvent]:
        """Publish up to 100 events of your own, in this order, all or none."""
        sent = list_mappings(events, "events")
        published = await self._transport.fetch_model(
            PublishedEvents,
            "POST",
            "/v1/events/batch",
            body={"events": sent},
            repeatable=all(event.get("id") is not None for event in sent),
        )
        return published.events

    async def event_types(self) -> Sequence[EventType]:
        """The types of events besides Ringback's own: those that you publish, and those of upstreams."""
        return (await self._transport.fetch_model(EventTypeList, "GET", "/v1/event-types")).event_types

    async def declare_event_type(
        self, name: str, *, description: str | None = None, payload_schema: Mapping[str, Any] | None = None
    ) -> EventType:
        """Declare a type of events that you publish, before its first event, or replace its description and schema."""
        body = without_none({"description": description, "payload_schema": payload_schema})
        return await self._transport.fetch_model(EventType, "PUT", _type_path(name), body=body, repeatable=True)

    async def remove_event_type(self, name: str) -> None:
        """Remove the declaration of a type of events that you publish. Its events stay."""
        await self._transport.send_request("DELETE", _type_path(name))


def _type_path(name: str) -> str:
    return f"/v1/event-types/{quote_path_segment(name, 'name')}"
