"""The five methods on the SDK's request context: who asks, with which error codes, and how frames reach the client.

Events is advertised in `initialize` and `server/discover`, in both spellings, by the outermost middleware: the SDK drops the
top-level key `events` from every handshake and `extensions` from a legacy one, and so do FastMCP's middlewares.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp_types import Notification, RequestParams
from pydantic import BaseModel, ConfigDict

from ringback.extension.events.principals import EventCaller
from ringback.protocol.mcp_events.endpoint import EventEndpoint
from ringback.protocol.mcp_events.errors import ErrorProfile, EventError, error_code, unsupported
from ringback.protocol.mcp_events.names import DeliveryMode, EventMethod, advertise_events, declares_events

SdkContext = ServerRequestContext[Any, Any]
EventHandler = Callable[[SdkContext, Any], Awaitable[HandlerResult]]
_CallMethod = Callable[["ServedEventMethods", SdkContext], Awaitable[HandlerResult]]
_HANDSHAKE_METHODS: Final = frozenset({"initialize", "server/discover"})


class ServedEventParams(RequestParams):
    """Any params: the endpoint validates them, so that its errors have the names of the specification."""

    model_config = ConfigDict(extra="allow")


class _StreamFrame(Notification[dict[str, Any], str]):
    """A notification of a stream; the SDK's own types do not include those of Events."""


class ServedEventMethods:
    """`open_endpoint` raises RuntimeError while the server's events are not open."""

    def __init__(
        self, open_endpoint: Callable[[], EventEndpoint[EventCaller]], find_caller: Callable[[SdkContext], EventCaller]
    ) -> None:
        self._open_endpoint = open_endpoint
        self._find_caller = find_caller

    def bind(self, method: EventMethod) -> EventHandler:
        return functools.partial(self._handle, _METHODS[method])

    async def _handle(self, call: _CallMethod, ctx: SdkContext, _params: ServedEventParams) -> HandlerResult:
        try:
            return await call(self, ctx)
        except EventError as error:
            raise MCPError(error_code(find_profile(ctx), error.name), error.message, error.data) from None

    async def list_events(self, ctx: SdkContext) -> HandlerResult:
        return await self._open_endpoint().list_events(self._find_caller(ctx), ctx.params)

    async def poll_events(self, ctx: SdkContext) -> HandlerResult:
        return await self._open_endpoint().poll_events(self._find_caller(ctx), ctx.params)

    async def stream_events(self, ctx: SdkContext) -> HandlerResult:
        require_stream(ctx)

        async def send_frame(name: str, params: Mapping[str, Any]) -> None:
            frame = cast("Any", _StreamFrame(method=name, params=dict(params)))
            await ctx.session.send_notification(frame, related_request_id=ctx.request_id)

        return await self._open_endpoint().stream_events(
            self._find_caller(ctx),
            ctx.params,
            request_id=cast("int | str", ctx.request_id),
            profile=find_profile(ctx),
            send=send_frame,
        )

    async def subscribe(self, ctx: SdkContext) -> HandlerResult:
        return await self._open_endpoint().subscribe(self._find_caller(ctx), ctx.params, profile=find_profile(ctx))

    async def unsubscribe(self, ctx: SdkContext) -> HandlerResult:
        return await self._open_endpoint().unsubscribe(self._find_caller(ctx), ctx.params)


_METHODS: Final[Mapping[EventMethod, _CallMethod]] = {
    EventMethod.LIST: ServedEventMethods.list_events,
    EventMethod.POLL: ServedEventMethods.poll_events,
    EventMethod.STREAM: ServedEventMethods.stream_events,
    EventMethod.SUBSCRIBE: ServedEventMethods.subscribe,
    EventMethod.UNSUBSCRIBE: ServedEventMethods.unsubscribe,
}


def find_profile(ctx: SdkContext) -> ErrorProfile:
    """The codes of SEP-3415 for a client that declares the extension, those of the design sketch for every other."""
    declared = ctx.session.client_capabilities
    wire = None if declared is None else declared.model_dump(mode="json", by_alias=True, exclude_none=True)
    return ErrorProfile.SEP if declares_events(wire) else ErrorProfile.SKETCH


def require_stream(ctx: SdkContext) -> None:
    """Refuse a stream if the server answers with JSON only: its notifications would be dropped without an error."""
    outbound: Any = getattr(ctx.session, "_request_outbound", None)
    if outbound is not None and getattr(outbound, "sink", outbound) is None:
        raise unsupported(
            "This server answers with JSON only and cannot stream. Poll the events.",
            feature="deliveryMode",
            value=str(DeliveryMode.PUSH),
        )


async def _advertise(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    result = await call_next(ctx)
    if ctx.method not in _HANDSHAKE_METHODS:
        return result
    if isinstance(result, BaseModel):
        result = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    handshake: dict[str, Any] = dict(result or {})
    capabilities = dict(cast("dict[str, Any]", handshake.get("capabilities") or {}))
    advertise_events(capabilities, list_changed=False)
    return {**handshake, "capabilities": capabilities}


def install_handshake(middleware: list[ServerMiddleware[Any]]) -> None:
    """Add the middleware to a server's, once."""
    if _advertise not in middleware:
        middleware.insert(0, _advertise)
