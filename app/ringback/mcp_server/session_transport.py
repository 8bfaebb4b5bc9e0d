"""The transport of one legacy session: it repeats requests that were lost with their stream, or received in another process.

    POST                     an answer to a question of another node is stored in its call (`elicitation_ids`). Otherwise the
                             handler learns the session's id, and the id of the call that it may start
    GET, Last-Event-ID       of a request's stream: the request again, as `event_ids` describes it. tools/call finds the call
                             that the request started, and starts none; any other request is handled again
                             of its response: 405, and nothing is handled. The TypeScript SDK 1.x does not count an error
                             as a response: it resumes every 3 s until it gets a result or a 405
                             of the session's own stream: the notifications after that event, and further ones
    GET                      the session's own stream (`own_stream`)

A repeated request has an internal id within the SDK, because the first handler may still run and respond, too. Its response has
the client's id again.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast
from weakref import ref

import anyio
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
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
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
from ringback.mcp_server.incoming_messages import detach_scope, get_message, set_message
from ringback.mcp_server.message_queue import IncomingQueue, MessageQueue
from ringback.mcp_server.own_stream import SessionOwnStream, StreamEnds, encode_dataless_event
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

RETRY_MILLISECONDS: Final = 6_000
"""When a client reconnects. The Python SDK 1.x tries twice and then waits for ever; a restart takes 4 to 12 s."""
_POST_HEADERS: Final = ((b"accept", b"application/json, text/event-stream"), (b"content-type", b"application/json"))
_RANDOM_BYTES: Final = 16
OPENING_METHOD: Final = "initialize"

_request_events: Final[ContextVar["ref[MessageQueue[EventMessage]] | None"]] = ContextVar(
    "request_events", default=None
)
"""The stream of the request that is handled in this context. The handler goes on when the client has left the stream, and
tasks that it starts may run as long as the session: they must not keep messages in memory."""

StoreForeignAnswer = Callable[[Scope, Any], Awaitable[bool]]
"""Stores the message if it answers a question that another node asked; returns whether it does."""


class SessionTransport(StreamableHTTPServerTransport):
    """Repeats requests.

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
        idle for long, so it has neither message nor headers."""
        self._store_foreign_answer = store_foreign_answer
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
        self._own_stream = SessionOwnStream(self.events, clock)
        super().__init__(
            session_id, event_store=self.events, retry_interval=RETRY_MILLISECONDS, idle_timeout=idle_seconds
        )
        self._request_streams = self._own_stream.streams

    @asynccontextmanager
    async def connect(
        self,
    ) -> AsyncGenerator[tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]]:
        async with super().connect() as (_, router):
            incoming = IncomingQueue()
            self._read_stream_writer = self._read_stream = cast("Any", incoming)
            yield incoming, ResponseShortcut(router, self._deliveries, is_replaced=self._is_replaced)

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request.

        Raises `InvalidCursor` for an unknown Last-Event-ID, `StreamEnded` for that of a response, and `Conflict` for a request
        id in use, or reserved.
        """
        scope["state"][MCP_SESSION_ID_KEY] = self.session_id
        self.last_scope = detach_scope(scope)
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
        self._require_unused_id(message)
        request = describe_request(message, self._ids.new_call_id())
        if request is None:
            await super().handle_request(scope, receive, send)
            return
        scope["state"][STREAM_REQUEST_KEY] = request
        with self.events.open_stream(str(request.request_id), request):
            await super().handle_request(scope, receive, send)

    def _require_unused_id(self, message: Mapping[str, Any]) -> None:
        """Raise `Conflict` for the id of a request that waits: streams are kept by id, and its response would go astray.

        The same for the name under which the SDK keeps the session's own stream. A response has the id of another request.
        """
        if "method" not in message or (request_id := message.get("id")) is None:
            return
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
                await self._own_stream.end_abandoned_response()
                self.events.send_again_after(stream, number)
            case _:
                pass
        without_id = {**scope, "headers": _remove_headers(scope, LAST_EVENT_ID_HEADER.encode())}
        version = Headers(scope=scope).get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)
        await self._own_stream.serve(partial(super().handle_request, without_id, receive, send), version)

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
            or message.method == OPENING_METHOD
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
        self._request_streams[stream_id] = ends = cast("StreamEnds", (events, events))
        self._deliveries[stream_id] = deliver = partial(self._deliver_response, events)
        try:
            with suppress(anyio.ClosedResourceError):  # the session ended
                await self._pass_to_dispatcher(message, events)
                async for event in events:
                    is_response = isinstance(event.message, JSONRPCResponse | JSONRPCError)
                    event_data = self._create_event_data(event)
                    del event  # a large result is not held twice while its client reads it
                    if is_response:
                        await response.send_response(event_data)
                        break
                    await response.send_event(event_data)
        finally:
            if self._request_streams.get(stream_id) is ends:
                del self._request_streams[stream_id]
            if self._deliveries.get(stream_id) is deliver:
                del self._deliveries[stream_id]
            events.close()

    async def _pass_to_dispatcher(self, message: SessionMessage, events: MessageQueue[EventMessage]) -> None:
        token = _request_events.set(ref(events))
        try:
            await cast("MessageQueue[SessionMessage]", self._read_stream_writer).send(message)
        finally:
            _request_events.reset(token)  # a server may handle the next request of the connection in this context

    def _is_replaced(self, request_id: RequestId) -> bool:
        """Whether this id has the stream of another request than that of this context: some clients use an id again."""
        own, ends = _request_events.get(), self._request_streams.get(str(request_id))
        return own is not None and ends is not None and cast("object", ends[0]) is not own()

    async def _deliver_response(
        self, events: MessageQueue[EventMessage], response: JSONRPCResponse | JSONRPCError
    ) -> None:
        event_id = await self.events.store_event(str(response.id), response)
        with suppress(anyio.ClosedResourceError):  # the client has disconnected
            await events.send(EventMessage(response, event_id))

    def _create_event_data(self, event_message: EventMessage) -> SSEEvent:
        if (dataless := encode_dataless_event(event_message)) is not None:
            return dataless
        message = event_message.message
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
