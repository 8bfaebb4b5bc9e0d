"""Which tool calls are reported, what is reported, and what the client gets: the part that all frameworks share."""

import asyncio
import logging
import random
import secrets
from collections.abc import Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final, Protocol, Self, cast

import httpx
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult
from mcp_types import INTERNAL_ERROR, CallToolRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope
from starlette.types import Send as SendMessage

from ringback.asyncio_tasks import end_tasks
from ringback.client import CallbackOptions
from ringback.client.arguments import list_texts
from ringback.domain.clock import Clock, SystemClock
from ringback.domain.meta import CALLBACK_META_KEY, RINGBACK_META_PREFIX
from ringback.extension.call_reporter import CallbackRefused, CallReporter, SdkContext, pop_report_key
from ringback.extension.callback_request import CallbackRequest, parse_callback_request, strip_callback
from ringback.extension.embedded_backend import REPORT_KEY_PREFIX, EmbeddedBackend
from ringback.extension.report_outbox import ReportOutbox, SendReport
from ringback.extension.service_backend import ServiceBackend

log = logging.getLogger(__name__)

_REPORT_KEY_BYTES: Final = 16
CALL_TIMEOUT_SECONDS: Final = 24 * 3600.0
"""The default time after which a call without an end becomes `unknown`."""
DRAIN_SECONDS: Final = 10.0


class ReportBackend(Protocol):
    """The destination of reports."""

    @property
    def commits_reports(self) -> bool:
        """Whether a response waits until the end of its call was reported once."""
        ...

    @property
    def api(self) -> ASGIApp | None:
        """Its REST API, if it runs in this process and is open."""
        ...

    def announce_api(self) -> None:
        """The API is served at its public URL, so callbacks contain URLs. Raises ValueError if there is no API or no URL."""
        ...

    def mount_path(self) -> str:
        """The path of the public URL. Raises ValueError as `announce_api` does, or if the URL has no path."""
        ...

    def open_sender(self) -> AbstractAsyncContextManager[SendReport]: ...


class ToolCallReporting:
    """Sends callbacks when tools of this server end. It is open while the server runs.

    `upstream` is the name of this server in calls and callbacks (1 to 24 of a-z, 0-9 and '-'). `tools` are the tools whose
    calls are always reported; None means all, and an empty collection only calls that ask for it. `callback` is the default
    callback of reported calls. A call without an end `timeout_seconds` after its start ends as `unknown`.

    A `ringback/callId` in the `_meta` of a response promises a callback at the end of this call. Without it there is no
    promise, because no webhook and no callback waits for this call, or because the report did not reach Ringback in time; the
    response is the tool's own in both cases.
    """

    identifier = "ringback/callbacks"
    _how_to_open = "Open them around the server: async with callbacks."

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
        self._tools = None if tools is None else frozenset(list_texts(tools, "tools"))
        self._callback = callback
        self._timeout_seconds = timeout_seconds
        self._drain_seconds = drain_seconds
        self._clock = clock or SystemClock()
        self._outbox: ReportOutbox | None = None
        self._is_closing = False
        self._detached_calls: set[asyncio.Task[Any]] = set()
        """Calls that continue after their client disconnects."""
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
    ) -> Self:
        """Report to a Ringback service at this URL in the background; the key needs the scopes `adopt` and `webhooks`.

        Reports wait in this process's memory. They are retried for an hour, and for `drain_seconds` at shutdown; then they are
        logged as lost. If this process is killed, unsent reports are lost: a call whose start arrived ends as `unknown` at its
        timeout and sends its callback then; any other call leaves no trace. Use `embedded` where that is not enough.
        """
        return cls(ServiceBackend(url, api_key=api_key, transport=transport), upstream=upstream, **options)

    @classmethod
    def embedded(
        cls,
        *,
        upstream: str,
        database_url: str | None = None,
        public_url: str | None = None,
        dev: bool = False,
        port: int | None = None,
        settings: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Run a Ringback in this process, with its own SQLite file.

        A tool's result is committed before the client gets the response. Deliveries run in the background, and the next start
        continues them. Calls without an end when the process was killed or stopped end as `unknown` at the next start and send
        their callbacks then, also those that wait for their client's answers between two rounds: only the client has the state
        of such a call, and with the SDK's own key it can send it to the same process only. While the file cannot be written,
        responses have no `ringback/callId`, and the reports are retried as with `reporting`.

        With `mount`, this server serves the REST API at `public_url`, and callbacks name its URLs. Create its keys with
        `ringback keys create`, for the principal named like `upstream`. Without `mount`, callbacks have no URLs: set
        `include_result`. `settings` are further settings by name (`callback_private_cidrs`, …); the others come from
        `RINGBACK_*` variables.

        `dev=True` is for a first try on one machine: a temporary file, no keys, callbacks to loopback over http, and an API
        that answers this machine only. Its callbacks name http://127.0.0.1:8000/ringback; with another `port`, that one. Give
        the port on which your server listens.
        """
        if database_url is None and not dev:
            raise ValueError(
                "Give database_url, for example sqlite:///calls.db. For a first try, give dev=True instead."
            )
        backend = EmbeddedBackend(
            principal=upstream,
            database_url=database_url,
            public_url=public_url,
            dev=dev,
            port=port,
            settings=settings or {},
        )
        return cls(backend, upstream=upstream, **options)

    @property
    def api(self) -> ASGIApp:
        """The embedded Ringback's REST API, as an ASGI application. Serve it at `public_url`; `mount` does."""
        self._backend.announce_api()
        return self._serve_api

    def mount(self, app: Starlette, *, path: str | None = None) -> None:
        """Serve the embedded Ringback's REST API with this Starlette or FastAPI application, at the path of `public_url`.

        Call it before the server starts. `path` is the path within the application, if a proxy changes paths.
        """
        if self._outbox is not None:
            raise RuntimeError("Mount before the server starts: callbacks name the API's URL from the start.")
        mount_path = self._backend.mount_path() if path is None else path
        app.mount(mount_path, self.api)

    async def _serve_api(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        app = self._backend.api or PlainTextResponse("No Ringback runs in this process.", status_code=503)
        await app(scope, receive, send)

    # -- the time in which calls are reported --

    async def __aenter__(self) -> Self:
        if self._outbox is not None:
            raise RuntimeError("These callbacks are already open. Open them once, around all servers that use them.")
        send = await self._stack.enter_async_context(self._backend.open_sender())
        self._is_closing = False
        self._outbox = ReportOutbox(send, clock=self._clock, random_fraction=random.SystemRandom().random)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for running calls to end and for reports to arrive, each for at most `drain_seconds`."""
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
        await end_tasks(list(self._detached_calls))

    # -- calls --

    async def report_tool_call(
        self, params: CallToolRequestParams, ctx: SdkContext, call_next: CallNext
    ) -> HandlerResult:
        """Run the tool with `call_next`, and report its start and end if this call is to be reported."""
        meta = cast("Mapping[str, Any]", params.meta or {})
        key, ctx = pop_report_key(params, ctx)
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

    def require_open(self) -> ReportOutbox:
        """The outbox. Raises RuntimeError if the server was started without these callbacks."""
        if self._outbox is None:
            raise RuntimeError(f"These callbacks are not open. {self._how_to_open}")
        return self._outbox

    def _open_reporter(
        self, params: CallToolRequestParams, callback_request: CallbackRequest, key: str
    ) -> CallReporter | None:
        channel = self.require_open().open_channel()
        if channel is None:
            log.warning("call.not_reported", extra={"tool": params.name, "reason": "too many reports are waiting"})
            return None
        report: dict[str, Any] = {
            "key": key,
            "upstream": self._upstream,
            "tool": params.name,
            "timeout_seconds": self._timeout_seconds,
            "arguments": params.arguments or {},
            **callback_request.report_labels(),
        }
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
            await reporter.report_error(problem)
            raise
        except asyncio.CancelledError:
            # Nothing can be awaited now. At shutdown the state of the tool is unknown, so the call later ends as `unknown`.
            (reporter.close if self._is_closing else reporter.report_cancelled)()
            raise
        except Exception:  # the boundary between the tool's errors and the report
            await reporter.report_end(
                {"error": {"code": INTERNAL_ERROR, "message": "The server failed while it ran the tool."}}
            )
            raise
        return await reporter.report_result(result)

    async def _run_detached(self, reported_call: Coroutine[Any, Any, HandlerResult]) -> HandlerResult:
        """Run the call to its end even if the client disconnects."""
        task = asyncio.create_task(reported_call)
        self._detached_calls.add(task)
        task.add_done_callback(self._discard_detached_call)
        return await asyncio.shield(task)

    def _discard_detached_call(self, task: asyncio.Task[Any]) -> None:
        self._detached_calls.discard(task)
        if not task.cancelled():
            task.exception()  # the error is reported already; the client may have disconnected


def survives_disconnect(ctx: SdkContext, meta: Mapping[str, Any]) -> bool:
    """Whether the call must survive a closed connection.

    A closed stream cancels a modern HTTP request, and it is the only way to cancel one. A client with a `ringback/` key in
    `_meta` may disconnect and still wants the call. Other transports and versions cancel explicitly, and that is honoured.
    """
    over_http = ctx.request is not None and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return over_http and any(key.startswith(RINGBACK_META_PREFIX) for key in meta)
