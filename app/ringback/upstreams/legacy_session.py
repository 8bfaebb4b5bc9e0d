"""A legacy session: state at the upstream with an id, to which a connection can return.

All connections that use a session share its request ids. So resumable requests and requests in a rejoined session have an id
with a prefix that is unique for the connection.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from typing import Any, Final, Protocol

import anyio
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

from ringback.protocol.errors import InvalidUpstreamResponse, UpstreamError
from ringback.protocol.legacy_session_transport import LegacySessionTransport
from ringback.protocol.resumable_requests import ResumableRequest, resume_options
from ringback.protocol.sessions import LegacySessionId, OnStreamPosition, StreamPosition
from ringback.upstreams.elicitation_router import receive_elicitations
from ringback.upstreams.session_dispatcher import SessionDispatcher
from ringback.upstreams.session_ports import OnElicitation
from ringback.upstreams.transports.guarded_http import NOTIFICATION_TIMEOUT_SECONDS

FLUSH_SECONDS: Final = 30.0
"""For the response to a ping. A server that goes on with a synchronous tool after an answer sends it much later, or never; the
call must store the next question meanwhile."""


class SendRequest(Protocol):
    async def __call__(self, method: str, params: dict[str, Any], options: CallOptions, /) -> dict[str, Any]: ...


class LegacySession:
    """Implements `session_ports.LegacySessionPort`. `UpstreamSession` also sends its resumable requests through it."""

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
        """`is_dedicated`: the session serves one call. `request_id_prefix` is unique for each session object."""
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

    @property
    def retry_seconds(self) -> float:
        return 0.0 if self._transport is None else self._transport.retry_seconds

    @contextmanager
    def keep_alive(self, *, is_needed: Callable[[], bool] = lambda: True) -> Generator[None]:
        """`is_needed` says after an exception whether a driver can go on in the session."""
        if self._transport is None:
            yield
            return
        self._transport.resumable_calls += 1
        is_kept = False
        try:
            yield
        except (UpstreamError, InvalidUpstreamResponse):
            raise  # a response arrived, so no driver will resume the request
        except BaseException:
            is_kept = is_needed()
            raise
        finally:
            self._transport.resumable_calls -= not is_kept

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
        """Send a request whose response can be read later. With these options, the SDK sends no cancellation."""
        request_id = next(self._request_ids)
        request = ResumableRequest(session_id, request_id, on_position)
        with self.keep_alive(is_needed=lambda: request.position is not None):
            try:
                return await self._send(method, params, {**options, **request.options})
            except asyncio.CancelledError:
                if request.position is None:
                    await self._send_cancelled(request_id)
                raise

    async def resume_stream(
        self, position: StreamPosition, *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        options: CallOptions = {**self._call_options, **resume_options(position)}
        if on_progress is not None:
            options["on_progress"] = on_progress
        return await self._send("tools/call", {}, options)

    async def send_notification(self, method: str, params: Mapping[str, Any]) -> None:
        await self._dispatcher.notify(method, params, self._call_options)
        await self._flush_with_ping()

    def handle_elicitations(self, on_elicitation: OnElicitation) -> AbstractContextManager[None]:
        return receive_elicitations(on_elicitation)

    async def answer_elicitation(self, request_id: str, answer: Mapping[str, Any]) -> None:
        await self._dispatcher.answer_elicitation(request_id, answer, is_rejoined=self._is_dedicated)
        await self._flush_with_ping()

    async def _flush_with_ping(self) -> None:
        """Wait for a ping: messages are sent in order, so all earlier ones have arrived before its response.

        Without a response in time, they count as arrived: the end of the connection would be an error.
        """
        with suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self.send_request("ping", {})

    async def _send_cancelled(self, request_id: str) -> None:
        with anyio.move_on_after(NOTIFICATION_TIMEOUT_SECONDS, shield=True):
            await self._dispatcher.notify("notifications/cancelled", {"requestId": request_id}, self._call_options)

    @property
    def _call_options(self) -> CallOptions:
        return {"headers": {MCP_PROTOCOL_VERSION_HEADER: self._protocol_version}}
