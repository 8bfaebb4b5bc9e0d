"""The transport of one legacy session: it repeats requests that were lost with their stream, or received in another process.

    POST                     an answer to a question of another node is stored in its call (`elicitation_ids`). Otherwise the
                             handler learns the session's id, and the id of the call that it may start
    GET, Last-Event-ID       of a request's stream: the request again, as `event_ids` describes it. tools/call finds the call
                             that the request started, and starts none; any other request is handled again
                             of its response: 405, and nothing is handled. The TypeScript SDK 1.x does not count an error
                             as a response: it resumes every 3 s until it gets a result or a 405
                             of the session's own stream: the notifications after that event, and further ones
    GET                      the notifications that no stream has carried, and further ones

The session's own stream begins with an event without data, as the streams of requests do (2025-11-25). Its id is what a client
returns with before the first notification, and its `retry` brings the client back after a restart and not during it: clients
soon give up. A stream that Ringback itself ends has a shorter `retry` in its last event, because nothing is away then.

A repeated request has an internal id within the SDK, because the first handler may still run and respond, too. Its response has
the client's id again.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    LAST_EVENT_ID_HEADER,
    MCP_SESSION_ID_HEADER,
    REQUEST_STREAM_BUFFER_SIZE,
    EventMessage,
    SSEEvent,
    StreamableHTTPServerTransport,
)
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import SessionMessage
from mcp_types import (
    DEFAULT_NEGOTIATED_VERSION,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.version import is_version_at_least
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ringback.domain import jsontext
from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.errors import Conflict, StreamEnded
from ringback.domain.ids import IdGenerator
from ringback.mcp_server.event_ids import (
    EventIds,
    EventPosition,
    OwnStream,
    StreamRequest,
    describe_request,
    unknown_event_id,
)
from ringback.mcp_server.incoming_messages import get_message, set_message, without_message
from ringback.mcp_server.message_queue import MessageQueue
from ringback.mcp_server.request_context import (
    IS_REPLAYED_KEY,
    IS_RESUMED_KEY,
    MCP_SESSION_ID_KEY,
    REQUEST_CLOSED_KEY,
    STREAM_REQUEST_KEY,
)
from ringback.mcp_server.request_events import RequestEvents
from ringback.mcp_server.response_shortcut import DeliverResponse, ResponseShortcut
from ringback.mcp_server.session_events import SessionEventStore
from ringback.services.events.event_streams import FOLLOW_SECONDS_MAX
from ringback.waits import run_with_helper

RETRY_MILLISECONDS: Final = 6_000
"""When a client reconnects. The Python SDK 1.x tries twice and then waits for ever; a restart takes 4 to 12 s."""
OWN_STREAM_RETRY_MILLISECONDS: Final = 12_000
"""The same for the session's own stream, which the Python SDK opens again only once after a loss. Its notifications wait."""
ENDED_STREAM_RETRY_MILLISECONDS: Final = 500
"""The same after a regular end of the session's own stream: Ringback is there, and notifications wait for the client."""
_POST_HEADERS: Final = ((b"accept", b"application/json, text/event-stream"), (b"content-type", b"application/json"))
_RANDOM_BYTES: Final = 16
_OPENING_METHOD: Final = "initialize"
_PRIMED_VERSION: Final = "2025-11-25"
"""From this version on, clients accept events without data."""
_PRIMING: Final = JSONRPCNotification(jsonrpc="2.0", method="ringback/priming")
"""Stands for the first event of the session's own stream. It has no data on the wire."""
_ENDING: Final = JSONRPCNotification(jsonrpc="2.0", method="ringback/ending")
"""Stands for its last event, when Ringback ends it. That has no id: the client keeps the id of the last notification."""


StoreForeignAnswer = Callable[[Scope, Any], Awaitable[bool]]
"""Stores the message if it answers a question that another node asked; returns whether it does."""
_StreamEnds = tuple[MemoryObjectSendStream[EventMessage], MemoryObjectReceiveStream[EventMessage]]


class _CancellableResponse:
    """A response that another request can end."""

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._ended = asyncio.Event()

    async def run(self, respond: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self._scope:
            await respond()

    def set_ended(self) -> None:
        self._ended.set()

    async def cancel(self) -> None:
        """Returns when the response has ended."""
        self._scope.cancel()
        await self._ended.wait()


class _ObservedStreams(dict[RequestId, _StreamEnds]):
    """The open streams, as the SDK's transport keeps them: nothing else says from when on a stream carries events."""

    def __init__(self, on_own_stream_opened: Callable[[], None]) -> None:
        super().__init__()
        self._on_own_stream_opened = on_own_stream_opened

    def __setitem__(self, key: RequestId, value: _StreamEnds) -> None:
        super().__setitem__(key, value)
        if key == GET_STREAM_KEY:
            self._on_own_stream_opened()


class SessionTransport(StreamableHTTPServerTransport):
    """Repeats requests, and keeps what the session's own stream could not carry.

    Uses private names of the SDK, because no public ones exist: `_handle_post_request`, which responds to a message,
    `_mint_priming_event`, `_create_session_message` and `_create_event_data`, which make parts of that response,
    `_read_stream_writer` and `_read_stream`, to the session's dispatcher, and `_request_streams`, the open streams.
    """

    def __init__(
        self,
        session_id: str,
        *,
        sealer: Sealer,
        ids: IdGenerator,
        clock: Clock,
        idle_seconds: float,
        store_foreign_answer: StoreForeignAnswer,
    ) -> None:
        self.session_id = session_id
        self.last_scope: Scope | None = None
        """The latest request, with its caller: what other nodes report about the session is replayed with it. A session may be
        idle for long, so it has no message."""
        self._store_foreign_answer = store_foreign_answer
        self._clock = clock
        self._ids = ids
        self._event_ids = EventIds(sealer, session_id)
        self.events = SessionEventStore(
            self._event_ids,
            log_id=ids.random_bytes(_RANDOM_BYTES).hex(),
            is_own_stream_open=lambda: GET_STREAM_KEY in self._request_streams,
        )
        self._client_request_ids: dict[str, int | str] = {}
        self._deliveries: dict[str, DeliverResponse] = {}
        """By stream id, for requests that wait for their response (`ResponseShortcut`)."""
        self._own_response: _CancellableResponse | None = None
        self._primes_own_stream = False
        self._sending: asyncio.Task[None] | None = None
        super().__init__(
            session_id, event_store=self.events, retry_interval=RETRY_MILLISECONDS, idle_timeout=idle_seconds
        )
        self._request_streams = _ObservedStreams(self._start_sending_unsent)

    @asynccontextmanager
    async def connect(
        self,
    ) -> AsyncGenerator[tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]]:
        async with super().connect() as (_, router):
            incoming = MessageQueue[SessionMessage | Exception](waiting_max=1)
            self._read_stream_writer = self._read_stream = cast("Any", incoming)
            yield incoming, ResponseShortcut(router, self._deliveries)

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request.

        Raises `InvalidCursor` for an unknown Last-Event-ID, `StreamEnded` for that of a response, and `Conflict` for a request
        id in use, or reserved.
        """
        scope["state"][MCP_SESSION_ID_KEY] = self.session_id
        self.last_scope = without_message(scope)
        if scope["method"] == "POST":
            await self._handle_post(scope, receive, send)
        elif scope["method"] == "GET":
            await self._handle_get(scope, receive, send)
        else:
            await super().handle_request(scope, receive, send)

    async def replay_message(self, scope: Scope, message: Mapping[str, Any]) -> None:
        """Handle a message of another process again, with the caller of this request. Its response is dropped."""
        await self.handle_request(*build_replay(scope, self.session_id, message))

    async def _handle_post(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = get_message(scope)
        if await self._store_foreign_answer(scope, message):
            await Response(status_code=HTTPStatus.ACCEPTED)(scope, receive, send)
            return
        request = describe_request(message, self._ids.new_call_id())
        if request is None:
            await super().handle_request(scope, receive, send)
            return
        self._require_unused_id(request.request_id)
        scope["state"][STREAM_REQUEST_KEY] = request
        with self.events.open_stream(str(request.request_id), request):
            await super().handle_request(scope, receive, send)

    def _require_unused_id(self, request_id: int | str) -> None:
        """Raise `Conflict` for the id of a request that waits: streams are kept by id, and its response would go astray.

        The same for the name under which the SDK keeps the session's own stream.
        """
        if request_id == GET_STREAM_KEY:
            raise Conflict(
                f"The id '{GET_STREAM_KEY}' is reserved. Nothing was started. Send the request with another id."
            )
        if str(request_id) in self._request_streams:
            raise Conflict(
                "A request of this session with the same id still waits for its response. Nothing was started. Give each "
                "request its own id; a lost response is in the stream of the first one, with Last-Event-ID."
            )

    async def _handle_get(self, scope: Scope, receive: Receive, send: Send) -> None:
        event_id = Headers(scope=scope).get(LAST_EVENT_ID_HEADER)
        position = self._event_ids.parse(event_id) if event_id else None
        match position:
            case EventPosition(StreamRequest(), is_last=True):
                raise StreamEnded("This stream has ended with the response that you have received.")
            case EventPosition(StreamRequest() as request):
                await self._repeat_request(request, scope, receive, send)
                return
            case EventPosition(OwnStream() as stream, number):
                if self._own_response is not None:
                    await self._own_response.cancel()  # its client has come back before the loss was noticed here
                self.events.send_again_after(stream, number)
            case _:
                pass
        without_id = {**scope, "headers": _remove_headers(scope, LAST_EVENT_ID_HEADER.encode())}
        version = Headers(scope=scope).get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)
        await self._serve_own_stream(partial(super().handle_request, without_id, receive, send), version)

    async def _serve_own_stream(self, respond: Callable[[], Coroutine[Any, Any, None]], version: str) -> None:
        if self._own_response is not None:
            await respond()  # refused: a session has one stream
            return
        self._primes_own_stream = is_version_at_least(version, _PRIMED_VERSION)
        self._own_response = response = _CancellableResponse()
        try:
            await run_with_helper(response.run(respond), self._close_own_stream_after_limit())
        finally:
            self._own_response = None
            response.set_ended()

    async def _close_own_stream_after_limit(self) -> None:
        """Close the stream after `FOLLOW_SECONDS_MAX`, so that a returning client is authenticated again."""
        await self._clock.sleep(FOLLOW_SECONDS_MAX)
        if (ends := self._request_streams.pop(GET_STREAM_KEY, None)) is None:
            return
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            if self._primes_own_stream:
                ends[0].send_nowait(EventMessage(_ENDING))
        ends[0].close()  # only this end, so that what the stream holds is still sent

    def _start_sending_unsent(self) -> None:
        stream = self._request_streams[GET_STREAM_KEY][0]
        if self._primes_own_stream:
            stream.send_nowait(EventMessage(_PRIMING, self.events.create_priming_id()))
        self._sending = asyncio.create_task(self._send_unsent(stream))

    async def _send_unsent(self, stream: MemoryObjectSendStream[EventMessage]) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the stream was lost again
            for entry in self.events.list_unsent():
                await stream.send(entry.event)
                entry.is_sent = True

    async def _repeat_request(self, request: StreamRequest, scope: Scope, receive: Receive, send: Send) -> None:
        if request.params is None:
            raise unknown_event_id()
        internal_id = f"resumed-{self._ids.random_bytes(_RANDOM_BYTES).hex()}"
        message = {"jsonrpc": "2.0", "id": internal_id, "method": request.method, "params": request.params}
        scope["state"] |= {STREAM_REQUEST_KEY: request, IS_RESUMED_KEY: True}
        set_message(scope["state"], message)
        kept = _remove_headers(scope, LAST_EVENT_ID_HEADER.encode(), *(name for name, _ in _POST_HEADERS))
        posted = {**scope, "method": "POST", "headers": [*kept, *_POST_HEADERS]}
        self._client_request_ids[internal_id] = request.request_id
        try:
            with self.events.open_stream(internal_id, request):
                await super().handle_request(posted, _create_receive(jsontext.dumps(message), receive), send)
        finally:
            del self._client_request_ids[internal_id]

    async def _handle_post_request(self, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        """Override the SDK's response to a message: it serves what opens a session, is no request, or is invalid.

        The media types of each POST have been checked (`incoming_messages`).
        """
        message = _read_request(scope) if STREAM_REQUEST_KEY in scope["state"] else None
        if (
            message is None
            or message.method == _OPENING_METHOD
            or self._read_stream_writer is None
            or self._get_session_id(request) != self.session_id
        ):
            await super()._handle_post_request(scope, request, receive, send)
            return
        version = request.headers.get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)
        priming_event = await self._mint_priming_event(str(message.id), version)
        response = RequestEvents(
            receive,
            send,
            session_id=self.session_id,
            priming_event=priming_event,
            may_be_json=IS_RESUMED_KEY not in scope["state"],
        )
        with anyio.CancelScope() as response_scope:
            timer = response.attend_later(response_scope)
            try:
                session_message = self._create_session_message(message, request, str(message.id), version)
                await self._send_events(session_message, str(message.id), response)
                await response.end()
            finally:
                timer.cancel()
                response.stop_attending()

    async def _send_events(self, message: SessionMessage, stream_id: str, response: RequestEvents) -> None:
        """Pass the message to the session's dispatcher, and send what it puts on the stream, up to the response."""
        events = MessageQueue[EventMessage](waiting_max=REQUEST_STREAM_BUFFER_SIZE)
        self._request_streams[stream_id] = ends = cast("_StreamEnds", (events, events))
        self._deliveries[stream_id] = deliver = partial(self._deliver_response, events)
        try:
            with suppress(anyio.ClosedResourceError):  # the session ended
                await cast("MessageQueue[SessionMessage]", self._read_stream_writer).send(message)
                async for event in events:
                    if isinstance(event.message, JSONRPCResponse | JSONRPCError):
                        await response.send_response(self._create_event_data(event))
                        break
                    await response.send_event(self._create_event_data(event))
        finally:
            if self._request_streams.get(stream_id) is ends:
                del self._request_streams[stream_id]
            if self._deliveries.get(stream_id) is deliver:
                del self._deliveries[stream_id]
            events.close()

    async def _deliver_response(
        self, events: MessageQueue[EventMessage], response: JSONRPCResponse | JSONRPCError
    ) -> None:
        event_id = await self.events.store_event(str(response.id), response)
        with suppress(anyio.ClosedResourceError):  # the client has disconnected
            await events.send(EventMessage(response, event_id))

    def _create_event_data(self, event_message: EventMessage) -> SSEEvent:
        message = event_message.message
        if message is _PRIMING:
            return {"id": event_message.event_id or "", "data": "", "retry": OWN_STREAM_RETRY_MILLISECONDS}
        if message is _ENDING:
            return {"data": "", "retry": ENDED_STREAM_RETRY_MILLISECONDS}
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id in self._client_request_ids:
            message = message.model_copy(update={"id": self._client_request_ids[str(message.id)]})
            event_message = EventMessage(message, event_message.event_id)
        return super()._create_event_data(event_message)


def _read_request(scope: Scope) -> JSONRPCRequest | None:
    try:
        return JSONRPCRequest.model_validate(get_message(scope), by_name=False)
    except ValidationError:
        return None  # the SDK reports what is wrong with it


def build_replay(scope: Scope, session_id: str, message: Mapping[str, Any]) -> tuple[Scope, Receive, Send]:
    """A request in the session that posts this message, as the SDK's transport handles it."""
    headers = [*_POST_HEADERS, (MCP_SESSION_ID_HEADER.encode(), session_id.encode())]
    state = {**scope["state"], IS_REPLAYED_KEY: True, REQUEST_CLOSED_KEY: asyncio.Event()}
    replayed = {**scope, "method": "POST", "headers": headers, "state": state}
    posted = {"jsonrpc": "2.0", **message}
    set_message(state, posted)
    body = jsontext.dumps(posted)
    return replayed, _create_receive(body, _never_receive), _drop_message


def _remove_headers(scope: Scope, *names: bytes) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in scope["headers"] if name not in names]


def _create_receive(body: bytes, receive: Receive) -> Receive:
    """Receives the body, and then what `receive` does."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_body_first() -> Message:
        return messages.pop() if messages else await receive()

    return receive_body_first


async def _never_receive() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def _drop_message(_message: Message) -> None:
    pass
