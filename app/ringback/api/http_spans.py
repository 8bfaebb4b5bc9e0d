"""A span for each HTTP request, by the conventions for HTTP servers. It exists only in a service with a tracer.

The span has the template of the path and never the path or the query, which may contain a token. Probes and scrapes have no
span, because they would be most of all spans and say nothing.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.routing import Route
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
_RouteKey = tuple[Callable[..., Any], frozenset[str]]
"""An endpoint, and the names in the path: `/mcp` and `/mcp/{upstream}` have one endpoint."""


class HttpSpanMiddleware:
    def __init__(self, app: ASGIApp, *, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer
        self._templates: dict[_RouteKey, str] | None = None
        """Paths of routes that do not name themselves in the scope; None before the first request."""

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
            self._note_route(span, scope)
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

    def _note_route(self, span: Span, scope: Scope) -> None:
        """The route is known after the request was dispatched; a path without a route leaves the name `GET`."""
        if template := self._find_template(scope):
            span.set_attributes({Attribute.HTTP_ROUTE: template})
            span.rename(f"{_name_method(_known_method(scope))} {template}")

    def _find_template(self, scope: Scope) -> str | None:
        """The path of the route: FastAPI's routes are in the scope, Starlette's are found by their endpoints."""
        if (route := scope.get("route")) is not None:
            return getattr(route, "path_format", None)
        if "endpoint" not in scope:
            return None
        if self._templates is None:
            self._templates = _list_templates(scope)
        return self._templates.get((scope["endpoint"], frozenset(scope["path_params"])))


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


def _list_templates(scope: Scope) -> dict[_RouteKey, str]:
    """Of several paths to one endpoint with the same names, the first is the template."""
    routes = [route for route in reversed(scope["app"].routes) if isinstance(route, Route)]
    return {(route.endpoint, frozenset(route.param_convertors)): route.path_format for route in routes}
