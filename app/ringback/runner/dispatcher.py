"""The SDK's dispatcher of one link, and what of its traffic is ours to hear: streams that were asked for, and questions.

A question is a request of the upstream in the middle of a call (`elicitation/create`, before 2026-07-28). It goes by its id
as a request, and is open until it is answered here or the upstream takes it back.
"""

import asyncio
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import anyio
import anyio.abc
from mcp.shared import subscriptions
from mcp.shared.dispatcher import DispatchContext, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext

from ringback.domain import jsontext
from ringback.domain.inputs import ELICITATION
from ringback.runner.drivers.base import OnQuestion

ACKNOWLEDGE_SECONDS: Final = 5.0
"""For the acknowledgement of a stream, which is its first message; without one, looking now and then does as well."""
TOLD_MAX: Final = 64
"""Notifications that wait on one stream; of more the oldest go, because the last ones tell most."""
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_TASK_STATUS: Final = "notifications/tasks/status"
_RESERVED_META: Final = "io.modelcontextprotocol/"


class LinkDispatcher(JSONRPCDispatcher):
    """Also tells when the stream from the upstream has ended: nothing else notices the death of a child process."""

    def __init__(self, *streams: Any) -> None:
        super().__init__(*streams)
        self.ended = anyio.Event()
        self.streams: dict[str, ToldStream] = {}
        """By the id of the request that asked for it; by its task's, before 2026-07-28."""
        self._on_question: OnQuestion | None = None
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}

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

        try:
            await super().run(handle, on_notify, intercept, task_status=task_status)
        finally:
            self.ended.set()

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
        on_question(name, {"method": ELICITATION, "params": _without_reserved_meta(params)})
        try:
            return dict(await answer)
        except asyncio.CancelledError:
            if context.cancel_requested.is_set():
                on_question(name, None)
            raise
        finally:
            self._answers.pop(name, None)


def _without_reserved_meta(params: Mapping[str, Any]) -> dict[str, Any]:
    """What is between two neighbours (which task a question belongs to) means nothing to whoever answers it."""
    meta = params.get("_meta")
    kept = {
        key: value
        for key, value in (cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}).items()
        if key != "progressToken" and not key.startswith(_RESERVED_META)
    }
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


class ToldStream:
    """Implements `drivers.Told`: what came on one `subscriptions/listen`."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._acknowledged: asyncio.Future[Mapping[str, Any] | None] = asyncio.get_running_loop().create_future()

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
            listening.exception()  # refused, lost or over: to whoever listens it is the same
        self._acknowledge(None)
        self._told.put_nowait(None)

    def _acknowledge(self, honoured: Any) -> None:
        if not self._acknowledged.done():
            self._acknowledged.set_result(cast("dict[str, Any]", honoured) if isinstance(honoured, dict) else None)
