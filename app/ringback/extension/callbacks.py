"""The extension itself: which calls are told of, what is told, and what the client gets."""

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncGenerator, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

import httpx
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension
from mcp_types import INTERNAL_ERROR, CallToolRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope
from starlette.types import Send as SendMessage

from ringback.client import CallbackOptions
from ringback.domain.clock import Clock, SystemClock
from ringback.extension.call_reporter import CallbackRefused, CallReporter, is_storable, pop_report_key
from ringback.extension.callback_request import (
    CALLBACK_META_KEY,
    RINGBACK_META_PREFIX,
    CallbackRequest,
    parse_callback_request,
    strip_callback,
)
from ringback.extension.embedded_backend import REPORT_KEY_PREFIX, EmbeddedBackend
from ringback.extension.report_outbox import ReportOutbox, SendReport
from ringback.extension.service_backend import ServiceBackend

log = logging.getLogger(__name__)

SdkContext = ServerRequestContext[Any, Any]

_REPORT_KEY_BYTES: Final = 16
CALL_TIMEOUT_SECONDS: Final = 24 * 3600.0
"""A tool that takes longer than a day is not waited for by any request."""
DRAIN_SECONDS: Final = 10.0


class ReportBackend(Protocol):
    """Where reports go."""

    @property
    def commits_reports(self) -> bool:
        """Whether a report is waited for: then an answer goes out only after its call's end was tried to be written down."""
        ...

    @property
    def api(self) -> ASGIApp | None:
        """Its REST API, if it is in this process."""
        ...

    def open_sender(self) -> AbstractAsyncContextManager[SendReport]: ...


class Callbacks(Extension):
    """Rings when tools of this server end. Use it as the server's lifespan, or as an async context manager around it.

    `upstream` is what this server is called in calls and callbacks (1 to 24 of a-z, 0-9 and '-'). `tools` are those whose calls
    are always told of; None means all, and an empty collection only calls that ask for it. `callback` is rung for every such
    call that does not bring one of its own. A call whose end is not known `timeout_seconds` after its beginning ends as
    `unknown`.

    The `ringback/callId` in an answer's `_meta` is a promise: the end of this call is rung. Without it there is none, because
    the Ringback could not be told in time; the answer itself is the tool's in any case.
    """

    identifier = "ringback/callbacks"

    def __init__(
        self,
        ringback: ReportBackend,
        *,
        upstream: str,
        tools: Collection[str] | None = None,
        callback: CallbackOptions | None = None,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._backend = ringback
        self._upstream = upstream
        self._tools = None if tools is None else frozenset(tools)
        self._callback = callback
        self._timeout_seconds = timeout_seconds
        self._drain_seconds = drain_seconds
        self._clock = clock or SystemClock()
        self._outbox: ReportOutbox | None = None
        self._is_closing = False
        self._detached_calls: set[asyncio.Task[Any]] = set()
        """Calls that would go on if their client hung up."""
        self._stack = AsyncExitStack()

    @classmethod
    def reporting(
        cls,
        url: str,
        *,
        upstream: str,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        **options: Any,
    ) -> "Callbacks":
        """Tell a Ringback service at this URL, in the background; the key needs the scopes `adopt` and `webhooks`.

        Reports wait in this process's memory. They are tried again for an hour, and for `drain_seconds` at shutdown; then they
        are logged as lost. If this process is killed, whatever had not arrived is lost: a call whose beginning had arrived
        ends as `unknown` at its timeout and rings so, any other leaves no trace. Use `embedded` where that is not enough.
        """
        return cls(ServiceBackend(url, api_key=api_key, transport=transport), upstream=upstream, **options)

    @classmethod
    def embedded(
        cls,
        *,
        upstream: str,
        database_url: str,
        public_url: str,
        settings: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> "Callbacks":
        """Keep a Ringback in this process, in an SQLite file of its own.

        What a tool answers is committed before its client gets the answer; deliveries run in the background, and the next start
        goes on with what is left of them. Calls that ran when the process was killed end as `unknown` then, and ring so. While
        the file cannot be written, answers go out without a `ringback/callId`, and are tried again as when reporting.

        Callbacks point their receivers to `public_url`, to resume and to pull results: mount `api` there. Its keys come from
        `ringback keys create`, for the principal that is named as `upstream`. Who does not mount it asks for `include_result`.
        `settings` are further ones by their names (`callback_private_cidrs`, …); the others come from `RINGBACK_*` variables.
        """
        ringback = EmbeddedBackend(
            principal=upstream,
            settings={**(settings or {}), "database_url": database_url, "public_url": public_url, "auth": "keys"},
        )
        return cls(ringback, upstream=upstream, **options)

    async def api(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        """The embedded Ringback's REST API, as an ASGI application."""
        app = self._backend.api or PlainTextResponse("No Ringback is open in this process.", status_code=503)
        await app(scope, receive, send)

    # -- its life --

    @asynccontextmanager
    async def lifespan(self, server: object) -> AsyncGenerator[dict[str, Any]]:  # noqa: ARG002 - what the SDK gives
        """For `MCPServer(lifespan=…)` with stdio or streamable HTTP, which enter it once."""
        async with self:
            yield {}

    async def __aenter__(self) -> Self:
        if self._outbox is not None:
            raise RuntimeError("These callbacks are open already. Open them once, around everything that serves them.")
        send = await self._stack.enter_async_context(self._backend.open_sender())
        self._is_closing = False
        self._outbox = ReportOutbox(send, clock=self._clock, random_fraction=random.SystemRandom().random)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let what still runs end and what was told arrive, for `drain_seconds` each at most."""
        try:
            await self._drain_detached_calls()
            if self._outbox is not None:
                await self._outbox.drain(self._drain_seconds)
        finally:
            self._outbox = None
            await self._stack.aclose()

    async def _drain_detached_calls(self) -> None:
        if self._detached_calls:
            await asyncio.wait(self._detached_calls, timeout=self._drain_seconds)
        self._is_closing = True
        for task in (remaining := list(self._detached_calls)):
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)

    # -- calls --

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: SdkContext, call_next: CallNext
    ) -> HandlerResult:
        meta = cast("Mapping[str, Any]", params.meta or {})
        key = pop_report_key(params)
        if key is None and CALLBACK_META_KEY not in meta and self._tools is not None and params.name not in self._tools:
            return await call_next(ctx)
        callback_request = parse_callback_request(meta)
        reporter = self._open_reporter(
            params, callback_request, key or REPORT_KEY_PREFIX + secrets.token_hex(_REPORT_KEY_BYTES)
        )
        if reporter is None:
            return await call_next(strip_callback(ctx))
        reported_call = self._run_reported_call(reporter, strip_callback(ctx), call_next)
        return await (self._run_detached(reported_call) if survives_disconnect(ctx, meta) else reported_call)

    def _open_reporter(
        self, params: CallToolRequestParams, callback_request: CallbackRequest, key: str
    ) -> CallReporter | None:
        if self._outbox is None:
            raise RuntimeError("These callbacks are not open. Give the server lifespan=callbacks.lifespan.")
        channel = self._outbox.open_channel()
        if channel is None:
            log.warning("call.not_reported", extra={"tool": params.name, "reason": "too many reports are waiting"})
            return None
        report: dict[str, Any] = {
            "key": key,
            "upstream": self._upstream,
            "tool": params.name,
            "timeout_seconds": self._timeout_seconds,
            **callback_request.report_labels(),
        }
        if is_storable(params.arguments):
            report["arguments"] = params.arguments or {}
        if callback := callback_request.callback or self._callback:
            report["callback"] = dict(callback)
        return CallReporter(channel, report, callback_request, waits_for_attempt=self._backend.commits_reports)

    async def _run_reported_call(self, reporter: CallReporter, ctx: SdkContext, call_next: CallNext) -> HandlerResult:
        try:
            await reporter.report_start()
            result = await call_next(ctx)
        except CallbackRefused:
            reporter.close()
            raise
        except MCPError as problem:
            await reporter.report_end({"error": problem.error.model_dump(mode="json", exclude_none=True)})
            raise
        except asyncio.CancelledError:
            # Nothing may be waited for now. At shutdown nobody knows how far the tool came, and `unknown` is what will be told.
            (reporter.close if self._is_closing else reporter.report_cancelled)()
            raise
        except Exception:  # the boundary between the tool and whoever is told of it
            await reporter.report_end(
                {"error": {"code": INTERNAL_ERROR, "message": "The server failed while it ran the tool."}}
            )
            raise
        return await reporter.report_result(result)

    async def _run_detached(self, reported_call: Coroutine[Any, Any, HandlerResult]) -> HandlerResult:
        """The answer, if the client is still there when the tool ends; the tool ends and is told of in any case."""
        task = asyncio.create_task(reported_call)
        self._detached_calls.add(task)
        task.add_done_callback(self._discard_detached_call)
        return await asyncio.shield(task)

    def _discard_detached_call(self, task: asyncio.Task[Any]) -> None:
        self._detached_calls.discard(task)
        if not task.cancelled():
            task.exception()  # was told; the client that it was for may have gone


def survives_disconnect(ctx: SdkContext, meta: Mapping[str, Any]) -> bool:
    """Whether a closed connection would end the tool of a client that means to be rung.

    Over 2026-07-28 HTTP a closed stream cancels the request, and nothing else can. Who speaks to Ringback in `_meta` is there
    to hang up. Everywhere else cancelling is said in so many words, and is heard.
    """
    over_http = ctx.request is not None and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return over_http and any(key.startswith(RINGBACK_META_PREFIX) for key in meta)
