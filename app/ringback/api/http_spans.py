"""A span for each HTTP request, by the conventions for HTTP servers. It exists only in a service with a tracer.

The span has the template of the path and never the path or the query, which may contain a token. Probes and scrapes have no
span, because they would be most of all spans and say nothing.
"""

import re
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringback.telemetry.names import HTTP_SERVER_DURATION, OTHER, Attribute, AttributeValue, SpanKind
from ringback.telemetry.spans import (
    REQUEST_SPAN_KEY,
    TRACEPARENT,
    TRACESTATE,
    Span,
    TraceContext,
    Tracer,
    parse_trace_context,
    use_span,
)

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"})
"""The conventions write every other method as `_OTHER`."""
_UNTRACED_PATHS: Final = re.compile(r"/(healthz|readyz|metrics|ui/assets/.*)")
_SERVER_ERROR: Final = 500


class HttpSpanMiddleware:
    def __init__(self, app: ASGIApp, *, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _UNTRACED_PATHS.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        span = self._start_span(scope)
        scope.setdefault("state", {})[REQUEST_SPAN_KEY] = span

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                _note_status(span, message["status"])
            await send(message)

        try:
            with use_span(span):
                await self._app(scope, receive, send_and_note)
        except Exception as error:
            span.set_error(type(error).__name__)
            raise
        finally:
            _note_route(span, scope)
            span.end(HTTP_SERVER_DURATION)

    def _start_span(self, scope: Scope) -> Span:
        method = _known_method(scope)
        attributes: dict[Attribute, AttributeValue] = {
            Attribute.HTTP_REQUEST_METHOD: method,
            Attribute.URL_SCHEME: scope.get("scheme", "http"),
            Attribute.NETWORK_PROTOCOL_VERSION: scope.get("http_version", "1.1"),
        }
        return self._tracer.start_span(
            _name_method(method), SpanKind.SERVER, attributes, parent=read_trace_context(Headers(scope=scope))
        )


def read_trace_context(headers: Headers) -> TraceContext | None:
    """The span of the client; None without a valid one. Several `tracestate` headers are one list (RFC 9110 §5.3)."""
    values = headers.getlist(TRACEPARENT)
    return parse_trace_context(values[0], ",".join(headers.getlist(TRACESTATE))) if len(values) == 1 else None


def _known_method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in METHODS else OTHER


def _name_method(method: str) -> str:
    return "HTTP" if method == OTHER else method


def _note_status(span: Span, status: int) -> None:
    span.set_attributes({Attribute.HTTP_RESPONSE_STATUS_CODE: status})
    if status >= _SERVER_ERROR:
        span.set_error(str(status))


def _note_route(span: Span, scope: Scope) -> None:
    """The route is known after the request was dispatched; a path that has none leaves the name `GET`."""
    route = getattr(scope.get("route"), "path", None)
    if isinstance(route, str) and route:
        span.set_attributes({Attribute.HTTP_ROUTE: route})
        span.rename(f"{_name_method(_known_method(scope))} {route}")
