"""RingbackClient: the REST API as methods, one for each thing that can be asked."""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack
from urllib.parse import quote

import httpx

from ringback.client.models import (
    Call,
    CallPage,
    Delivery,
    DeliveryDetail,
    DeliveryPage,
    Event,
    EventPage,
    Page,
    RegisteredWebhook,
    Resumed,
    Started,
    Tool,
    ToolList,
    Upstream,
    UpstreamList,
    Webhook,
    WebhookPage,
)
from ringback.client.options import CallbackOptions, WebhookChange, WebhookOptions
from ringback.client.problems import ClientError
from ringback.client.wire import Clock, SystemClock, Wire, header_value, object_of

P = TypeVar("P", bound=Page)

TIMEOUT_SECONDS: Final = 30.0
"""For an answer that nobody asked to wait for; what was asked to wait gets its wait on top."""
WAIT_SECONDS_MAX: Final = 60.0
"""The longest that the service waits within one request."""
SPACING_SECONDS: Final = 1.0
"""At least so long between two long polls: a service that is stopping cuts its waits short."""
KEY_BYTES: Final = 16


class RingbackClient:
    """A typed client of one Ringback. Use it as an async context manager, from one event loop.

    Every method may raise `ConnectionFailed`, `UnexpectedAnswer` or a `Problem`. Reading, starting, cancelling and resuming
    are tried up to three times while the connection fails or the service says 503.

    `http` is a client of your own, which stays open; `transport` replaces the network of the client that is made otherwise.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        http: httpx.AsyncClient | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._owns_http = http is None
        self._http = http or httpx.AsyncClient(transport=transport)
        self._wire = Wire(
            base_url=base_url,
            api_key=api_key,
            http=self._http,
            timeout_seconds=timeout_seconds,
            clock=self._clock,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what was opened here; a client that was handed in stays open."""
        if self._owns_http:
            await self._http.aclose()

    # -- webhooks --

    async def register_webhook(self, url: str, **options: Unpack[WebhookOptions]) -> RegisteredWebhook:
        """Register a callback URL. Once this returns, every event that it hears will be delivered to it."""
        return await self._wire.fetch(RegisteredWebhook, "POST", "/v1/webhooks", body={"url": url, **options})

    async def webhooks(self) -> AsyncIterator[Webhook]:
        """Your webhooks, newest first."""
        async for page in self._pages(WebhookPage, "/v1/webhooks", {}):
            for webhook in page.webhooks:
                yield webhook

    async def webhook(self, webhook_id: str) -> Webhook:
        return await self._wire.fetch(Webhook, "GET", f"/v1/webhooks/{_segment(webhook_id)}")

    async def change_webhook(self, webhook_id: str, **change: Unpack[WebhookChange]) -> Webhook:
        """Change what is named, and leave the rest as it is."""
        return await self._wire.fetch(Webhook, "PATCH", f"/v1/webhooks/{_segment(webhook_id)}", body=dict(change))

    async def delete_webhook(self, webhook_id: str) -> None:
        """Remove it; what of it was not delivered yet is cancelled."""
        await self._wire.send("DELETE", f"/v1/webhooks/{_segment(webhook_id)}")

    # -- calls --

    async def start_call(
        self,
        upstream: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        client_session_id: str | None = None,
        correlation_id: str | None = None,
        idempotency_key: str | None = None,
        callback: CallbackOptions | None = None,
        wait_seconds: float | None = None,
        timeout_seconds: float | None = None,
    ) -> Started:
        """Start a call. Once this returns, it runs to its end whatever becomes of this process.

        A start is repeated when its answer is lost, and the idempotency key makes that safe: the tool runs once. Without a
        key one is made up, which covers the repeats of this method. Give one of your own, stored before the call, when a new
        process of yours must be able to repeat the start. With `wait_seconds` (at most 60) a call that ends in time is
        returned with its result.
        """
        key = idempotency_key or secrets.token_hex(KEY_BYTES)
        body = {
            "upstream": upstream,
            "tool": tool,
            "arguments": dict(arguments or {}),
            "client_session_id": client_session_id,
            "correlation_id": correlation_id,
            "callback": callback,
            "wait_seconds": wait_seconds,
            "timeout_seconds": timeout_seconds,
        }
        return await self._wire.fetch(
            Started,
            "POST",
            "/v1/calls",
            body=_given(body),
            headers={"idempotency-key": header_value(key, what="The idempotency key")},
            wait_seconds=wait_seconds,
            repeatable=True,
        )

    async def call(self, call_id: str, *, wait_seconds: float | None = None) -> Call:
        """The call; with `wait_seconds` (at most 60), as soon as its status changes or that time is over."""
        return await self._wire.fetch(
            Call,
            "GET",
            f"/v1/calls/{_segment(call_id)}",
            params=_given({"wait_seconds": wait_seconds}),
            wait_seconds=wait_seconds,
        )

    async def wait(self, call_id: str, *, timeout_seconds: float | None = None) -> Call:
        """The call at its end, or as it is when the time is over. A call that needs input is waited for, too."""
        ends_at = float("inf") if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        while True:
            began = self._clock.monotonic()
            call = await self.call(call_id, wait_seconds=max(0.0, min(WAIT_SECONDS_MAX, ends_at - began)))
            if call.final or self._clock.monotonic() >= ends_at:
                return call
            await self._sleep_until(min(began + SPACING_SECONDS, ends_at))

    async def calls(
        self,
        *,
        client_session_id: str | None = None,
        correlation_id: str | None = None,
        status: str | None = None,
        upstream: str | None = None,
        tool: str | None = None,
    ) -> AsyncIterator[Call]:
        """Your calls, newest first: how to find one again with nothing but your own ids."""
        where = {
            "client_session_id": client_session_id,
            "correlation_id": correlation_id,
            "status": status,
            "upstream": upstream,
            "tool": tool,
        }
        async for page in self._pages(CallPage, "/v1/calls", where):
            for call in page.calls:
                yield call

    async def result(self, call_id: str) -> Mapping[str, Any]:
        """The stored CallToolResult as the upstream gave it; raises `Conflict` when there is none (yet)."""
        return object_of(await self._wire.send("GET", f"/v1/calls/{_segment(call_id)}/result"))

    async def cancel(self, call_id: str) -> Call:
        """Ask for the call's end: cooperative, idempotent, and without effect on a call that has ended."""
        return await self._wire.fetch(Call, "POST", f"/v1/calls/{_segment(call_id)}/cancel", repeatable=True)

    async def resume(self, resume_token: str, *, wait_seconds: float | None = None) -> Resumed:
        """A token becomes a call, its result and the events since; with `wait_seconds` (at most 60), once it has ended."""
        body = _given({"resume_token": resume_token, "wait_seconds": wait_seconds})
        return await self._wire.fetch(
            Resumed, "POST", "/v1/resume", body=body, wait_seconds=wait_seconds, repeatable=True
        )

    # -- events and deliveries --

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
        """Events after the cursor, oldest first; without a cursor, from the oldest that is kept."""
        params = {
            "cursor": cursor,
            "limit": limit,
            "name": name,
            "call_id": call_id,
            "client_session_id": client_session_id,
            "correlation_id": correlation_id,
            "wait_seconds": wait_seconds,
        }
        return await self._wire.fetch(EventPage, "GET", "/v1/events", params=_given(params), wait_seconds=wait_seconds)

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
        """Events after the cursor, page after page; with `follow`, then new ones as they come, without end."""
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
            if not page.events:
                await self._sleep_until(began + SPACING_SECONDS)

    async def deliveries(
        self, *, state: str | None = None, webhook_id: str | None = None, call_id: str | None = None
    ) -> AsyncIterator[Delivery]:
        """What was sent to your webhooks, or will be, newest first."""
        where = {"state": state, "webhook_id": webhook_id, "call_id": call_id}
        async for page in self._pages(DeliveryPage, "/v1/deliveries", where):
            for delivery in page.deliveries:
                yield delivery

    async def delivery(self, delivery_id: str) -> DeliveryDetail:
        """A delivery with its attempts."""
        return await self._wire.fetch(DeliveryDetail, "GET", f"/v1/deliveries/{_segment(delivery_id)}")

    # -- what can be called, and how the service is doing --

    async def upstreams(self) -> Sequence[Upstream]:
        return (await self._wire.fetch(UpstreamList, "GET", "/v1/upstreams")).upstreams

    async def tools(self, upstream: str) -> Sequence[Tool]:
        return (await self._wire.fetch(ToolList, "GET", f"/v1/upstreams/{_segment(upstream)}/tools")).tools

    async def healthy(self) -> bool:
        """Whether a Ringback answers there now, asked once."""
        try:
            await self._wire.send("GET", "/healthz", repeatable=False)
        except ClientError:
            return False
        return True

    async def _sleep_until(self, instant: float) -> None:
        await self._clock.sleep(max(0.0, instant - self._clock.monotonic()))

    async def _pages(self, model: type[P], path: str, where: Mapping[str, Any]) -> AsyncIterator[P]:
        cursor: str | None = None
        while True:
            page = await self._wire.fetch(model, "GET", path, params=_given({**where, "cursor": cursor}))
            yield page
            if page.next_cursor is None:
                return
            cursor = page.next_cursor


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _segment(text: str) -> str:
    """An id or a name as one segment of a path, whatever is in it."""
    return quote(text, safe="")
