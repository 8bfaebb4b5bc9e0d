"""The SDK's dispatcher of one link, and what of its traffic is ours to hear: streams that were asked for, and questions.

A question is a request of the upstream in the middle of a call (`elicitation/create`, before 2026-07-28). It goes by its id
as a request, and is open until it is answered here or the upstream takes it back.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, cast

import anyio
import anyio.abc
from mcp.shared import subscriptions
from mcp.shared.dispatcher import CallOptions, DispatchContext, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCError, JSONRPCResponse, RequestId

from ringback.domain import jsontext
from ringback.domain.inputs import ELICITATION
from ringback.domain.meta import without_reserved_meta
from ringback.runner.direct_posts import DirectPosts, message_of
from ringback.runner.drivers.base import OnQuestion
from ringback.runner.large_results import LargeResults

ACKNOWLEDGE_SECONDS: Final = 5.0
"""For the acknowledgement of a stream, which is its first message; without one, looking now and then does as well."""
TOLD_MAX: Final = 64
"""Notifications that wait on one stream; of more the oldest go, because the last ones tell most."""
OnMessage = Callable[[Mapping[str, Any]], None]
_ON_MESSAGE: Final[ContextVar[OnMessage | None]] = ContextVar("ringback_on_message", default=None)
"""Who hears the log messages of the request that is made in this context; over HTTP they arrive in it, too."""
_MESSAGE: Final = "notifications/message"
_CALL: Final = "tools/call"
_DIRECT_OPTIONS: Final = frozenset({"headers", "on_progress"})
CANCEL_SECONDS: Final = 5.0
"""For telling of a cancellation, as in the SDK."""
_GREETINGS: Final = frozenset({"initialize", "server/discover"})
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_TASK_STATUS: Final = "notifications/tasks/status"


class LinkDispatcher(JSONRPCDispatcher):
    """Also tells when the stream from the upstream has ended: nothing else notices the death of a child process."""

    def __init__(self, *streams: Any, large: LargeResults | None = None, direct: DirectPosts | None = None) -> None:
        """`direct` is for HTTP only."""
        super().__init__(*streams)
        self._large = large or LargeResults()
        self._direct = direct
        self.ended = anyio.Event()
        self.streams: dict[str, ToldStream] = {}
        """By the id of the request that asked for it; by its task's, before 2026-07-28."""
        self.greeting: Mapping[str, Any] = {}
        """The result with which the upstream presented itself, as it came."""
        self._on_question: OnQuestion | None = None
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._overhearing: list[OnMessage] = []
        """Those who also hear messages that come in no request's context, if they are alone."""

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            if (stream := self._stream_of(method, params)) is not None and params is not None:
                stream.take(method, params)
                return True
            return on_notify_intercept is not None and on_notify_intercept(method, params)

        async def handle(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            if method == ELICITATION and self._on_question is not None:
                return await self._question(context, params or {}, self._on_question)
            return await on_request(context, method, params)

        async def notified(
            context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
        ) -> None:
            if method == _MESSAGE and params is not None and (on_message := self._hears_messages()) is not None:
                on_message(params)
            await on_notify(context, method, params)

        try:
            await super().run(handle, notified, intercept, task_status=task_status)
        finally:
            self.ended.set()

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
            return await self._send_directly(self._direct, method, params, options)
        request_id = options.get("request_id") or self._allocate_id()
        options: CallOptions = {**options, "request_id": request_id}
        with self._large.expecting(request_id):
            result = await super().send_raw_request(method, params, options, _related_request_id=_related_request_id)
        if method in _GREETINGS:
            self.greeting = result
        return result

    def _may_go_directly(self, direct: DirectPosts, method: str, options: CallOptions) -> bool:
        """Only calls of tools: whatever else is asked is rare, or has to keep its place among notifications."""
        return method == _CALL and direct.serves and _DIRECT_OPTIONS.issuperset(options) and not self.ended.is_set()

    async def _send_directly(
        self, direct: DirectPosts, method: str, params: Mapping[str, Any], options: CallOptions
    ) -> dict[str, Any]:
        request_id = self._allocate_id()
        if "on_progress" in options:  # as the SDK does, which takes it for the id of the request
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": request_id}}
        try:
            response = await direct.post(request_id, method, params, options.get("headers") or {})
        except asyncio.CancelledError:
            await self._tell_cancelled(request_id)
            raise
        if (message := message_of(response)) is not None:
            return _result_of(message)
        async with direct.holding(request_id, response):
            with self._large.expecting(request_id):
                return await super().send_raw_request(method, params, {**options, "request_id": request_id})

    async def _tell_cancelled(self, request_id: RequestId) -> None:
        """Before 2026-07-28 the upstream is told in words; after it, that the connection was closed tells it."""
        with anyio.move_on_after(CANCEL_SECONDS, shield=True):
            await self.notify("notifications/cancelled", {"requestId": request_id, "reason": "caller cancelled"})

    def _resolve_pending(self, request_id: RequestId | None, outcome: dict[str, Any] | ErrorData) -> None:
        large = self._large.take(request_id)
        super()._resolve_pending(request_id, outcome if large is None else large)

    async def _write_error(self, request_id: RequestId, error: ErrorData) -> None:
        """At its end the SDK answers every open question with this error, which would end the call that asked it.

        Whoever goes on with the call in the same session answers; without one, the end of the session tells the upstream.
        """
        if error.code != CONNECTION_CLOSED:
            await super()._write_error(request_id, error)

    def _stream_of(self, method: str, params: Mapping[str, Any] | None) -> "ToldStream | None":
        match params:
            case {"_meta": {subscriptions.SUBSCRIPTION_ID_META_KEY: str() as request_id}}:
                return self.streams.get(request_id)
            case {"taskId": str() as task_id} if method == _TASK_STATUS:
                return self.streams.get(task_id)
            case _:
                return None

    @contextmanager
    def hearing(self, task_ids: Iterable[str]) -> Generator["ToldStream"]:
        """What the upstream tells of these tasks unasked (2025-11-25)."""
        stream = ToldStream()
        self.streams.update(dict.fromkeys(task_ids, stream))
        try:
            yield stream
        finally:
            for task_id in task_ids:
                self.streams.pop(task_id, None)

    # -- log messages --

    @contextmanager
    def overhearing(self, on_message: OnMessage, *, anywhere: bool) -> Generator[None]:
        """Hear the messages of requests that are made in here; with `anywhere` also those that came in no request's context."""
        token = _ON_MESSAGE.set(on_message)
        if anywhere:
            self._overhearing.append(on_message)
        try:
            yield
        finally:
            _ON_MESSAGE.reset(token)
            if anywhere:
                self._overhearing.remove(on_message)

    def _hears_messages(self) -> OnMessage | None:
        if (on_message := _ON_MESSAGE.get()) is not None:
            return on_message
        return self._overhearing[0] if len(self._overhearing) == 1 else None

    # -- questions --

    @contextmanager
    def answering(self, on_question: OnQuestion) -> Generator[None]:
        self._on_question = on_question
        try:
            yield
        finally:
            self._on_question = None

    async def reply(self, name: str, answer: Mapping[str, Any]) -> None:
        """Answer a question; one that was asked before this connection is answered all the same."""
        if (asked := self._answers.pop(name, None)) is not None:
            asked.set_result(answer)
        else:
            await self._write_result(jsontext.loads(name), dict(answer))

    async def _question(
        self, context: DispatchContext[TransportContext], params: Mapping[str, Any], on_question: OnQuestion
    ) -> dict[str, Any]:
        name = jsontext.dumps(context.request_id).decode()
        answer = self._answers[name] = asyncio.get_running_loop().create_future()
        on_question(name, {"method": ELICITATION, "params": without_reserved_meta(params)})
        try:
            return dict(await answer)
        except asyncio.CancelledError:
            if context.cancel_requested.is_set():
                on_question(name, None)
            raise
        finally:
            self._answers.pop(name, None)


class ToldStream:
    """Implements `drivers.Told`: what came on one `subscriptions/listen`."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._acknowledged: asyncio.Future[Mapping[str, Any] | None] = asyncio.get_running_loop().create_future()
        self.failure: BaseException | None = None
        """Why it ended, if not in order."""

    async def honoured(self) -> Mapping[str, Any] | None:
        """The filter as the upstream acknowledged it; None when it did not, or not in time."""
        with anyio.move_on_after(ACKNOWLEDGE_SECONDS):
            return await self._acknowledged
        return None

    async def next(self) -> Mapping[str, Any] | None:
        return await self._told.get()

    def take(self, method: str, params: Mapping[str, Any]) -> None:
        if method == _ACKNOWLEDGED:
            self._acknowledge(params.get("notifications"))
            return
        if self._told.qsize() >= TOLD_MAX:
            self._told.get_nowait()
        self._told.put_nowait(params)

    def end(self, listening: "asyncio.Task[dict[str, Any]]") -> None:
        if not listening.cancelled():
            self.failure = listening.exception()
        self._acknowledge(None)
        self._told.put_nowait(None)

    def _acknowledge(self, honoured: Any) -> None:
        if not self._acknowledged.done():
            self._acknowledged.set_result(cast("dict[str, Any]", honoured) if isinstance(honoured, dict) else None)


def _result_of(message: JSONRPCResponse | JSONRPCError) -> dict[str, Any]:
    if isinstance(message, JSONRPCError):
        raise MCPError(code=message.error.code, message=message.error.message, data=message.error.data)
    return message.result
