"""A span for each request to an upstream that a call or a client's request makes, by the conventions for MCP clients.

Its context goes upstream in `params._meta` and in the headers of the POST, in the place of the client's, as far as the
upstream's `pass_meta` allows the keys `traceparent` and `tracestate`. Polls have no span: a call may take thousands of them.
Streams have none, because they end with the connection and not with the work. The upstream's session id is no attribute: it may
be all that protects the session.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

from ringback.protocol.errors import RequestFailed, UpstreamError
from ringback.telemetry.names import (
    MCP_CLIENT_DURATION,
    TOOL_ERROR,
    Attribute,
    AttributeValue,
    SpanKind,
    describe_target,
    name_method_span,
    name_rpc_error,
)
from ringback.telemetry.spans import TRACEPARENT, TRACESTATE, Span

UNTRACED_METHODS: Final = frozenset({"ping", "tasks/get", "subscriptions/listen", "events/stream"})


class UpstreamPeer(NamedTuple):
    """The other end of a session."""

    name: str
    """Of the upstream, as configured."""
    protocol_version: str
    is_stdio: bool


def start_upstream_span(parent: Span, method: str, params: Mapping[str, Any], peer: UpstreamPeer) -> Span:
    attributes: dict[Attribute, AttributeValue] = {
        Attribute.MCP_METHOD_NAME: method,
        Attribute.MCP_PROTOCOL_VERSION: peer.protocol_version,
        Attribute.NETWORK_TRANSPORT: "pipe" if peer.is_stdio else "tcp",
        Attribute.UPSTREAM: peer.name,
    }
    target = describe_target(method, params)
    return parent.tracer.start_span(
        name_method_span(method, target), SpanKind.CLIENT, attributes | target, parent=parent.context
    )


def add_trace_context(
    params: Mapping[str, Any], span: Span, forwards_meta_key: Callable[[str], bool]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The params with the span's context in their `_meta`, and the headers with it. The context of the client is removed."""
    members = {key: value for key, value in span.context.to_members().items() if forwards_meta_key(key)}
    meta: Mapping[str, Any] = params.get("_meta") or {}
    others = {key: value for key, value in meta.items() if key not in {TRACEPARENT, TRACESTATE}}
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return ({**rest, "_meta": {**others, **members}} if others or members else rest), members


async def end_with_response(span: Span, request: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """The response to the request, whose end ends the span."""
    try:
        result = await request
    except UpstreamError as failure:
        code = name_rpc_error(failure.error.get("code"))
        span.set_attributes({Attribute.RPC_RESPONSE_STATUS_CODE: code})
        span.set_error(code)
        raise
    except RequestFailed as failure:
        span.set_error(type(failure).__name__)
        raise
    else:
        if result.get("isError") is True:
            span.set_error(TOOL_ERROR)
        return result
    finally:
        span.end(MCP_CLIENT_DURATION)
