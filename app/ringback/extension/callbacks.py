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
from ringback.extension import rounds
from ringback.extension.asking import CALLBACK, OURS, Asking, asking_of, without_callback
from ringback.extension.embedded import KEY_PREFIX, Embedded
from ringback.extension.outbox import Outbox, Send
from ringback.extension.reporting import Reporting
from ringback.extension.telling import CallbackRefused, Telling, can_be_kept

log = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]

_KEY_BYTES: Final = 16
TIMEOUT_SECONDS: Final = 24 * 3600.0
"""A tool that takes longer than a day is not waited for by any request."""
DRAIN_SECONDS: Final = 10.0


class Ringback(Protocol):
    """Where reports go."""

    @property
    def commits(self) -> bool:
        """Whether a report is waited for: then an answer goes out only after its call's end was tried to be written down."""
        ...

    @property
    def api(self) -> ASGIApp | None:
        """Its REST API, if it is in this process."""
        ...

    def open(self) -> AbstractAsyncContextManager[Send]: ...


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
        ringback: Ringback,
        *,
        upstream: str,
        tools: Collection[str] | None = None,
        callback: CallbackOptions | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._ringback = ringback
        self._upstream = upstream
        self._tools = None if tools is None else frozenset(tools)
        self._callback = callback
        self._timeout_seconds = timeout_seconds
        self._drain_seconds = drain_seconds
        self._clock = clock or SystemClock()
        self._outbox: Outbox | None = None
        self._closing = False
        self._detached: set[asyncio.Task[Any]] = set()
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
        return cls(Reporting(url, api_key=api_key, transport=transport), upstream=upstream, **options)

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
        ringback = Embedded(
            principal=upstream,
            settings={**(settings or {}), "database_url": database_url, "public_url": public_url, "auth": "keys"},
        )
        return cls(ringback, upstream=upstream, **options)

    async def api(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        """The embedded Ringback's REST API, as an ASGI application."""
        app = self._ringback.api or PlainTextResponse("No Ringback is open in this process.", status_code=503)
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
        send = await self._stack.enter_async_context(self._ringback.open())
        self._closing = False
        self._outbox = Outbox(send, clock=self._clock, chance=random.SystemRandom().random)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let what still runs end and what was told arrive, for `drain_seconds` each at most."""
        try:
            await self._end_detached()
            if self._outbox is not None:
                await self._outbox.drain(self._drain_seconds)
        finally:
            self._outbox = None
            await self._stack.aclose()

    async def _end_detached(self) -> None:
        if self._detached:
            await asyncio.wait(self._detached, timeout=self._drain_seconds)
        self._closing = True
        for task in (left := list(self._detached)):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    # -- calls --

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: Context, call_next: CallNext
    ) -> HandlerResult:
        meta = cast("Mapping[str, Any]", params.meta or {})
        key = rounds.key_of(params)
        if key is None and CALLBACK not in meta and self._tools is not None and params.name not in self._tools:
            return await call_next(ctx)
        asking = asking_of(meta)
        telling = self._open(params, asking, key or KEY_PREFIX + secrets.token_hex(_KEY_BYTES))
        if telling is None:
            return await call_next(without_callback(ctx))
        carrying = self._carry(telling, without_callback(ctx), call_next)
        return await (self._beyond_hanging_up(carrying) if _may_hang_up(ctx, meta) else carrying)

    def _open(self, params: CallToolRequestParams, asking: Asking, key: str) -> Telling | None:
        if self._outbox is None:
            raise RuntimeError("These callbacks are not open. Give the server lifespan=callbacks.lifespan.")
        line = self._outbox.open_line()
        if line is None:
            log.warning("call.not_reported", extra={"tool": params.name, "reason": "too many reports are waiting"})
            return None
        report: dict[str, Any] = {
            "key": key,
            "upstream": self._upstream,
            "tool": params.name,
            "timeout_seconds": self._timeout_seconds,
            **asking.labels(),
        }
        if can_be_kept(params.arguments):
            report["arguments"] = params.arguments or {}
        if callback := asking.callback or self._callback:
            report["callback"] = dict(callback)
        return Telling(line, report, asking, waits=self._ringback.commits)

    async def _carry(self, telling: Telling, ctx: Context, call_next: CallNext) -> HandlerResult:
        try:
            await telling.begin()
            result = await call_next(ctx)
        except CallbackRefused:
            telling.leave()
            raise
        except MCPError as problem:
            await telling.end({"error": problem.error.model_dump(mode="json", exclude_none=True)})
            raise
        except asyncio.CancelledError:
            # Nothing may be waited for now. At shutdown nobody knows how far the tool came, and `unknown` is what will be told.
            (telling.leave if self._closing else telling.cancelled)()
            raise
        except Exception:  # the boundary between the tool and whoever is told of it
            await telling.end(
                {"error": {"code": INTERNAL_ERROR, "message": "The server failed while it ran the tool."}}
            )
            raise
        return await telling.answer(result)

    async def _beyond_hanging_up(self, carrying: Coroutine[Any, Any, HandlerResult]) -> HandlerResult:
        """The answer, if the client is still there when the tool ends; the tool ends and is told of in any case."""
        task = asyncio.create_task(carrying)
        self._detached.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._detached.discard(task)
        if not task.cancelled():
            task.exception()  # was told; the client that it was for may have gone


def _may_hang_up(ctx: Context, meta: Mapping[str, Any]) -> bool:
    """Whether a closed connection would end the tool of a client that means to be rung.

    Over 2026-07-28 HTTP a closed stream cancels the request, and nothing else can. Who speaks to Ringback in `_meta` is there
    to hang up. Everywhere else cancelling is said in so many words, and is heard.
    """
    over_http = ctx.request is not None and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return over_http and any(key.startswith(OURS) for key in meta)
