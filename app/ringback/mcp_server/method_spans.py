"""A span for each request of an MCP client, by the conventions for MCP servers.

Its parent is the span that the client names in `params._meta` (SEP-414); the span of the HTTP request that carries it is then
linked. A client that names none has the HTTP request, whose own parent is its header `traceparent`.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from ringback.mcp_server.request_context import IS_REPLAYED_KEY, MCP_SESSION_ID_KEY
from ringback.telemetry.names import (
    MCP_SERVER_DURATION,
    NAME_LENGTH_MAX,
    OTHER,
    TOOL_ERROR,
    Attribute,
    AttributeValue,
    SpanKind,
    describe_target,
    name_method_span,
    name_rpc_error,
)
from ringback.telemetry.spans import (
    REQUEST_SPAN_KEY,
    TRACEPARENT,
    TRACESTATE,
    Span,
    parse_trace_context,
    use_span,
)

R = TypeVar("R")


async def trace_method(
    ctx: ServerRequestContext[Any, Any],
    known_methods: Collection[str],
    handle: Callable[[], Awaitable[R]],
) -> R:
    """Handle the request within a span, if its HTTP request has one. A method that is not known has the name `_OTHER`."""
    span = _start_span(ctx, ctx.method if ctx.method in known_methods else OTHER)
    if span is None:
        return await handle()
    refused = frozenset[Attribute]()
    try:
        with use_span(span):
            result = await handle()
            if ctx.method == "tools/call" and _is_error_result(result):
                span.set_error(TOOL_ERROR)
            return result
    except Exception as error:
        refused = frozenset({Attribute.GEN_AI_TOOL_NAME})  # perhaps there is no such tool: clients invent names
        _note_failure(span, error)
        raise
    finally:
        span.end(MCP_SERVER_DURATION, without=refused)


def _start_span(ctx: ServerRequestContext[Any, Any], method: str) -> Span | None:
    state: Mapping[str, Any] = {} if ctx.request is None else ctx.request.scope.get("state", {})
    http_span: Span | None = state.get(REQUEST_SPAN_KEY)
    if http_span is None or IS_REPLAYED_KEY in state:
        return None
    meta: Mapping[str, Any] = ctx.meta or {}
    parent = parse_trace_context(meta.get(TRACEPARENT), meta.get(TRACESTATE, ""))
    attributes = _read_attributes(ctx, method, state)
    return http_span.tracer.start_span(
        name_method_span(method, attributes),
        SpanKind.SERVER,
        attributes,
        parent=http_span.context if parent is None else parent,
        links=() if parent is None else (http_span.context,),
    )


def _read_attributes(
    ctx: ServerRequestContext[Any, Any], method: str, state: Mapping[str, Any]
) -> dict[Attribute, AttributeValue]:
    attributes: dict[Attribute, AttributeValue] = {
        Attribute.MCP_METHOD_NAME: method,
        Attribute.MCP_PROTOCOL_VERSION: ctx.protocol_version,
        Attribute.JSONRPC_REQUEST_ID: str(ctx.request_id)[:NAME_LENGTH_MAX],
        Attribute.NETWORK_TRANSPORT: "tcp",
        Attribute.NETWORK_PROTOCOL_NAME: "http",
    }
    if session_id := state.get(MCP_SESSION_ID_KEY):
        attributes[Attribute.MCP_SESSION_ID] = session_id
    return attributes | describe_target(method, ctx.params or {})


def _is_error_result(result: Any) -> bool:
    return isinstance(result, dict) and result.get("isError") is True  # pyright: ignore[reportUnknownMemberType]


def _note_failure(span: Span, error: Exception) -> None:
    if not isinstance(error, MCPError):
        span.set_error(type(error).__name__)
        return
    code = name_rpc_error(error.error.code)
    span.set_attributes({Attribute.RPC_RESPONSE_STATUS_CODE: code})
    span.set_error(code)
