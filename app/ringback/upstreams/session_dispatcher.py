"""The SDK's dispatcher of one session, extended by notification streams, log messages and elicitations.

An elicitation is a request of the upstream during a call (`elicitation/create`, legacy). It is identified by its request id and
stays open until the call answers it or the upstream withdraws it. `elicitation_router` finds the call. Other requests of the
upstream are refused: Ringback has no model for sampling and no files for roots, and MCP 2026-07-28 deprecates both.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import anyio
import anyio.abc
from mcp.shared import subscriptions
from mcp.shared.dispatcher import CallOptions, DispatchContext, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCResponse,
    RequestId,
)

from ringback.domain import jsontext
from ringback.domain.inputs import ELICITATION_METHOD
from ringback.domain.meta import without_reserved_meta
from ringback.protocol.errors import ResponseLost, UpstreamError
from ringback.protocol.mcp_events.names import EventNotification
from ringback.protocol.sessions import HANDSHAKE_METHODS
from ringback.protocol.transport_errors import to_request_error
from ringback.upstreams.elicitation_router import ElicitationRouter, get_receiver
from ringback.upstreams.received_streams import NotificationStream, ReceivedStream
from ringback.upstreams.task_progress import PROGRESS_METHOD, TaskProgress
from ringback.upstreams.transports.direct_posts import DirectPosts, get_message
from ringback.upstreams.transports.large_results import LargeResults
from ringback.upstreams.transports.open_response import UnawaitedResponses
from ringback.upstreams.transports.paced_streams import PacedStreams

OnLogMessage = Callable[[Mapping[str, Any]], None]
_ON_LOG_MESSAGE: Final[ContextVar[OnLogMessage | None]] = ContextVar("ringback_on_message", default=None)
"""The callback for log messages of the request made in this context. Over HTTP, the messages arrive in the same context."""
_LOG_MESSAGE_METHOD: Final = "notifications/message"
_CALL: Final = "tools/call"
_DIRECT_OPTIONS: Final = frozenset({"headers", "on_progress"})
CANCEL_SECONDS: Final = 5.0
"""For sending a cancellation, as in the SDK."""
_CANCELLED_METHOD: Final = "notifications/cancelled"
_TASK_STATUS_METHOD: Final = "notifications/tasks/status"
OPEN_ELICITATIONS_MAX: Final = 64
"""Open elicitations of one session. A call that waits for an answer counts towards `max_concurrent` of its upstream. Over HTTP
the session belongs to one principal, so unanswered questions of one principal leave most of the 256 calls to the others."""
REFUSED_REQUESTS: Final = {
    "sampling/createMessage": (
        "Ringback refuses sampling: no model is connected to it, and MCP 2026-07-28 deprecates sampling. Let the server call "
        "a model itself, or ask the user with elicitation/create."
    ),
    "roots/list": (
        "Ringback refuses roots: it shares no folders of its clients, and MCP 2026-07-28 deprecates roots. Name the folders in "
        "the server's configuration or in the arguments of the tool."
    ),
}
"""Requests of upstreams that no client of Ringback answers, and what their upstream can do instead."""
_TOO_MANY_OPEN: Final = (
    "The question was not asked: too many earlier questions wait for their answers. Answer them, then call again."
)


def _ignore_change() -> None:
    pass


class SessionDispatcher(JSONRPCDispatcher):
    """The SDK's dispatcher, which also sets `ended` at the end of the stream: nothing else detects the exit of a child."""

    def __init__(
        self,
        *streams: Any,
        large_results: LargeResults | None = None,
        paced_streams: PacedStreams | None = None,
        direct: DirectPosts | None = None,
        child_requests: set[RequestId] | None = None,
    ) -> None:
        """`direct` is for HTTP only, `child_requests` for a pipe only (`open_stdio`)."""
        super().__init__(*streams)
        self._large_results = large_results or LargeResults()
        self._direct = direct
        self._child_requests = set[RequestId]() if child_requests is None else child_requests
        self.paced_streams = paced_streams or PacedStreams()
        """The requests whose responses wait for their readers, over HTTP."""
        self._unawaited_responses = UnawaitedResponses()
        self.ended = anyio.Event()
        self.received_count = 0
        """The messages of the upstream so far."""
        self.streams: dict[str, ReceivedStream] = {}
        """By the id of the request that opened the stream; for legacy, by task id."""
        self.on_event_types_changed: Callable[[], None] = _ignore_change
        """Called when the upstream reports changed event types: the SDK drops this notification."""
        self.handshake_result: Mapping[str, Any] = {}
        """The raw result of `initialize` or `server/discover`."""
        self.elicitation_router = ElicitationRouter()
        self._task_progress = TaskProgress()
        self._open_elicitations: set[str] = set()
        self._session_log_listeners: list[OnLogMessage] = []
        """Callbacks for messages outside the context of a request; they are only used if there is just one."""

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            self.received_count += 1
            if self._take_notification(method, params):
                return True
            return on_notify_intercept is not None and on_notify_intercept(method, params)

        async def handle(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            self.received_count += 1
            if method == ELICITATION_METHOD:
                return await self._handle_elicitation(context, params or {})
            if (refusal := REFUSED_REQUESTS.get(method)) is not None:
                raise MCPError(METHOD_NOT_FOUND, refusal)
            return await on_request(context, method, params)

        async def on_notification(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> None:
            if method == _LOG_MESSAGE_METHOD and params is not None and (listener := self._find_log_listener()):
                listener(params)
            if method == PROGRESS_METHOD and (report := self._task_progress.find_report(params)):
                await report()
            await on_notify(context, method, params)

        try:
            await super().run(handle, on_notification, intercept, task_status=task_status)
        finally:
            self.ended.set()

    def _take_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Whether the notification is handled here and the SDK does not get it."""
        if method == _CANCELLED_METHOD:
            self._end_stream(params)
        elif method == EventNotification.LIST_CHANGED and not self._is_on_stream(params):
            self.on_event_types_changed()
            return True
        elif (stream := self._find_stream(method, params)) is not None and params is not None:
            stream.put_notification(method, params)
            return True
        return False

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        options = opts or CallOptions()
        if params is not None and self._direct is not None and self._may_go_directly(self._direct, method, options):
            with self._unawaited_responses.awaiting_response():
                return await self._send_directly(self._direct, method, params, options)
        request_id = options.get("request_id") or self._allocate_id()
        self.elicitation_router.note_request_id(request_id)
        options: CallOptions = {**options, "request_id": request_id}
        with self._unawaited_responses.awaiting_response(request_id), self._large_results.expect_response(request_id):
            result = await super().send_raw_request(method, params, options, _related_request_id=_related_request_id)
        if method in HANDSHAKE_METHODS:
            self.handshake_result = result
        self._task_progress.keep_callback(request_id, options.get("on_progress"), result)
        return result

    def _may_go_directly(self, direct: DirectPosts, method: str, options: CallOptions) -> bool:
        """Only tool calls: other requests are rare, or must keep their order among notifications."""
        return method == _CALL and direct.serves and _DIRECT_OPTIONS.issuperset(options) and not self.ended.is_set()

    async def _send_directly(
        self, direct: DirectPosts, method: str, params: Mapping[str, Any], options: CallOptions
    ) -> dict[str, Any]:
        request_id = self._allocate_id()
        self.elicitation_router.note_request_id(request_id)
        if "on_progress" in options:  # as the SDK does, which uses the request id
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": request_id}}
        try:
            response = await direct.post(request_id, method, params, options.get("headers") or {})
        except asyncio.CancelledError:
            await self._notify_cancelled(request_id)
            raise
        if (message := get_message(response)) is not None:
            self.received_count += 1
            result = _get_result(message)
        else:
            async with direct.hold_response(request_id, response):
                with self._large_results.expect_response(request_id):
                    result = await super().send_raw_request(method, params, {**options, "request_id": request_id})
        self._task_progress.keep_callback(request_id, options.get("on_progress"), result)
        return result

    async def _notify_cancelled(self, request_id: RequestId) -> None:
        """Send a cancellation notification. A legacy upstream needs it; a modern one sees the closed connection."""
        with anyio.move_on_after(CANCEL_SECONDS, shield=True):
            await self.notify(_CANCELLED_METHOD, {"requestId": request_id, "reason": "caller cancelled"})

    def _resolve_pending(self, request_id: RequestId | None, outcome: dict[str, Any] | ErrorData) -> None:
        if request_id is not None and self._shows_response(outcome):
            self.received_count += 1
            self.elicitation_router.note_response(request_id)
        large_results = self._large_results.pop_result(request_id)
        super()._resolve_pending(request_id, outcome if large_results is None else large_results)

    def _shows_response(self, outcome: dict[str, Any] | ErrorData) -> bool:
        """Whether the upstream has responded. Over HTTP, an error that a proxy or we have made shows nothing about its tool."""
        if not isinstance(outcome, ErrorData):
            return True
        failure = to_request_error(outcome)
        return isinstance(failure, UpstreamError) or (self._direct is None and not isinstance(failure, ResponseLost))

    async def _write_error(self, request_id: RequestId, error: ErrorData) -> None:
        """Suppress the error with which the SDK answers open elicitations at its end: it would end their calls.

        A driver that resumes the call in the same session answers instead; else the upstream sees the end of the session.
        """
        if error.code == CONNECTION_CLOSED:
            self._child_requests.discard(request_id)
            return
        await super()._write_error(request_id, error)

    def _is_on_stream(self, params: Mapping[str, Any] | None) -> bool:
        return self._find_stream(EventNotification.LIST_CHANGED, params) is not None

    def _end_stream(self, params: Mapping[str, Any] | None) -> None:
        """End the stream that the upstream ends: on a pipe it does so with this notification (2026-07-28, Subscriptions)."""
        match params:
            case {"requestId": str() as request_id} if (stream := self.streams.get(request_id)) is not None:
                stream.end()
            case _:
                pass

    def _find_stream(self, method: str, params: Mapping[str, Any] | None) -> ReceivedStream | None:
        match params:
            case {"_meta": {subscriptions.SUBSCRIPTION_ID_META_KEY: str() as request_id}}:
                return self.streams.get(request_id)
            case {"taskId": str() as task_id} if method == _TASK_STATUS_METHOD:
                return self.streams.get(task_id)
            case _:
                return None

    @contextmanager
    def receive_task_notifications(self, task_ids: Iterable[str]) -> Generator["NotificationStream"]:
        """Receive the status notifications of these tasks (2025-11-25)."""
        stream = NotificationStream()
        self.streams.update(dict.fromkeys(task_ids, stream))
        try:
            yield stream
        finally:
            for task_id in task_ids:
                self.streams.pop(task_id, None)

    # -- log messages --

    @contextmanager
    def receive_log_messages(self, on_message: OnLogMessage, *, includes_unrelated: bool) -> Generator[None]:
        """Receive log messages of requests made in this block, and with `includes_unrelated` those outside any request."""
        token = _ON_LOG_MESSAGE.set(on_message)
        if includes_unrelated:
            self._session_log_listeners.append(on_message)
        try:
            yield
        finally:
            _ON_LOG_MESSAGE.reset(token)
            if includes_unrelated:
                self._session_log_listeners.remove(on_message)

    def _find_log_listener(self) -> OnLogMessage | None:
        if (on_message := _ON_LOG_MESSAGE.get()) is not None:
            return on_message
        return self._session_log_listeners[0] if len(self._session_log_listeners) == 1 else None

    # -- elicitations --

    async def answer_elicitation(self, request_id: str, answer: Mapping[str, Any], *, is_rejoined: bool) -> None:
        """Answer an elicitation of the call that this task serves.

        With `is_rejoined`, this is the session of that call, and the elicitation may have arrived on an earlier connection.
        """
        receiver = get_receiver()
        if (receiver is None or not receiver.answer(request_id, answer)) and is_rejoined:
            await self._write_result(jsontext.loads(request_id), dict(answer))

    async def _handle_elicitation(
        self, context: DispatchContext[TransportContext], params: Mapping[str, Any]
    ) -> dict[str, Any]:
        request_id = jsontext.dumps(context.request_id).decode()
        if request_id in self._open_elicitations:
            raise MCPError(CONNECTION_CLOSED, "This request is open already.")  # replayed; `_write_error` sends nothing
        receiver = self.elicitation_router.find_receiver(params)
        if len(self._open_elicitations) >= OPEN_ELICITATIONS_MAX:
            raise MCPError(INVALID_REQUEST, _TOO_MANY_OPEN)
        request = {"method": ELICITATION_METHOD, "params": without_reserved_meta(params)}
        self._open_elicitations.add(request_id)
        try:
            return dict(await receiver.wait_for_answer(request_id, request))
        except asyncio.CancelledError:
            if context.cancel_requested.is_set():
                receiver.withdraw(request_id)
            raise
        finally:
            self._open_elicitations.discard(request_id)


def _get_result(message: JSONRPCResponse | JSONRPCError) -> dict[str, Any]:
    if isinstance(message, JSONRPCError):
        raise MCPError(code=message.error.code, message=message.error.message, data=message.error.data)
    return message.result
