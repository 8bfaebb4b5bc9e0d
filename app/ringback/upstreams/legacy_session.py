"""A session of before 2026-07-28 as what it is: something at the upstream that has a name, and that one comes back to.

A session that was rejoined shares its request ids with whoever opened it, and with every other call that rejoined it. So what
is asked here for the sake of a place, or in a rejoined session, has an id that nobody else makes.
"""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import count
from typing import Any, Final, Protocol

import anyio
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

from ringback.upstreams.errors import InvalidUpstreamResponse, UpstreamError
from ringback.upstreams.session_dispatcher import SessionDispatcher
from ringback.upstreams.session_ports import LegacySessionId, OnElicitation, OnStreamPosition, StreamPosition
from ringback.upstreams.transports.guarded_http import NOTIFICATION_TIMEOUT_SECONDS
from ringback.upstreams.transports.legacy_session_transport import LegacySessionTransport

EVENT_ID_LENGTH_MAX: Final = 1024
"""An event id is a number, or a UUID and its stream's; a longer one is not kept, and the last short one finds the rest."""


class SendRequest(Protocol):
    async def __call__(self, method: str, params: dict[str, Any], options: CallOptions, /) -> dict[str, Any]: ...


class LegacySession:
    """Implements `drivers.StatefulSession`; a link has one, and its own requests with a place go through it too."""

    def __init__(
        self,
        dispatcher: SessionDispatcher,
        *,
        send: SendRequest,
        protocol_version: str,
        transport: LegacySessionTransport | None,
        is_dedicated: bool,
        request_id_prefix: str,
    ) -> None:
        """`own` says that the session belongs to one call; `mark` is a text that no other link has."""
        self._dispatcher = dispatcher
        self._send = send
        self._protocol_version = protocol_version
        self._transport = transport
        self._is_dedicated = is_dedicated
        self._request_ids = (f"{request_id_prefix}-{number}" for number in count(1))

    @property
    def session_id(self) -> LegacySessionId | None:
        if self._transport is None or self._transport.session_id is None:
            return None
        return LegacySessionId(session_id=self._transport.session_id, protocol_version=self._protocol_version)

    @contextmanager
    def keep_alive(self) -> Generator[None]:
        if self._transport is None:
            yield
            return
        self._transport.resumable_calls += 1
        try:
            yield
        except (UpstreamError, InvalidUpstreamResponse):
            self._transport.resumable_calls -= 1  # an answer, of a kind: nobody comes back for another
            raise
        self._transport.resumable_calls -= 1

    async def send_request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        options: CallOptions = {"request_id": next(self._request_ids), "cancel_on_abandon": False}
        return await self._send(method, dict(params), {**self._call_options, **options})

    async def send_resumable_request(
        self,
        session_id: LegacySessionId,
        method: str,
        params: dict[str, Any],
        options: CallOptions,
        on_position: OnStreamPosition,
    ) -> dict[str, Any]:
        """A request whose answer may be read later. With hints for that, the SDK tells the upstream of no cancellation."""
        request_id = next(self._request_ids)
        position: StreamPosition | None = None

        async def on_event_id(event_id: str) -> None:
            nonlocal position
            if len(event_id) <= EVENT_ID_LENGTH_MAX:
                position = StreamPosition(session=session_id, request_id=request_id, event_id=event_id)
                on_position(position)

        hints: CallOptions = {"request_id": request_id, "on_resumption_token": on_event_id}
        with self.keep_alive():
            try:
                return await self._send(method, params, {**options, **hints})
            except asyncio.CancelledError:
                if position is None:
                    await self._send_cancelled(request_id)
                raise

    async def resume_stream(
        self, position: StreamPosition, *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        # Newer places are not asked for. The id of a stream that was read on may stand behind an answer that the server kept
        # and did not send: the SDK's gives one after its replay, and what comes in between is on no stream.
        options: CallOptions = {
            **self._call_options,
            "request_id": position.request_id,
            "resumption_token": position.event_id,
        }
        if on_progress is not None:
            options["on_progress"] = on_progress
        return await self._send("tools/call", {}, options)

    async def send_notification(self, method: str, params: Mapping[str, Any]) -> None:
        await self._dispatcher.notify(method, params, self._call_options)
        await self._flush_with_ping()

    def handle_elicitations(self, on_elicitation: OnElicitation) -> AbstractContextManager[None]:
        return self._dispatcher.handle_elicitations(on_elicitation) if self._is_dedicated else nullcontext()

    async def answer_elicitation(self, request_id: str, answer: Mapping[str, Any]) -> None:
        await self._dispatcher.answer_elicitation(request_id, answer)
        await self._flush_with_ping()

    async def _flush_with_ping(self) -> None:
        """Messages go out one after the other, so once a ping is answered, what was written before it has arrived."""
        with suppress(UpstreamError):
            await self.send_request("ping", {})

    async def _send_cancelled(self, request_id: str) -> None:
        with anyio.move_on_after(NOTIFICATION_TIMEOUT_SECONDS, shield=True):
            await self._dispatcher.notify("notifications/cancelled", {"requestId": request_id}, self._call_options)

    @property
    def _call_options(self) -> CallOptions:
        return {"headers": {MCP_PROTOCOL_VERSION_HEADER: self._protocol_version}}
