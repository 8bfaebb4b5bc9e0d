"""Assembles the API."""

import json
import os
from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from ringback import __version__
from ringback.api import openapi_webhooks
from ringback.api.context import ApiConfig
from ringback.api.cors import McpCorsMiddleware
from ringback.api.forwarded_clients import ForwardedClientMiddleware
from ringback.api.http_spans import HttpSpanMiddleware
from ringback.api.large_responses import LargeResponseMiddleware
from ringback.api.llms_endpoint import LlmsTextEndpoint
from ringback.api.login_pages import LoginPageConfig, LoginPages
from ringback.api.middleware import (
    BodyLimitMiddleware,
    HeaderCheckMiddleware,
    ResponseHookMiddleware,
    UnhandledErrorMiddleware,
)
from ringback.api.openapi_endpoint import OpenApiEndpoint
from ringback.api.openapi_rules import apply_rules
from ringback.api.problems import HTTP_METHODS, PROBLEM_SCHEMA, add_problem_handlers
from ringback.api.public_path import PublicPathMiddleware, read_public_path
from ringback.api.request_context import REQUEST_ID_HEADER, RequestContextMiddleware
from ringback.api.routes import (
    audit,
    calls,
    deliveries,
    erasures,
    event_types,
    events,
    insights,
    keys,
    metrics,
    operations,
    portal_links,
    reports,
    results,
    resume,
    status,
    upstream_logins,
    upstreams,
    usage,
    webhooks,
)
from ringback.schemas.schema_examples import EXAMPLES_BY_SCHEMA
from ringback.services.services import Services
from ringback.telemetry.spans import Tracer

CORS_MAX_AGE_SECONDS: Final = 600
"""How long a browser may cache a preflight: the smallest maximum of the common browsers."""

MCP_PATHS: Final = ("/mcp", "/mcp/{upstream}", "/mcp/", "/mcp/{upstream}/")
"""With a slash at the end too: URLs of earlier FastMCP servers had one, and SDK 1.x shows no words of a 404."""
OPERATIONS_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""What a node without the role `api` serves."""

_ALLOWED_HEADERS: Final = (
    *("authorization", "content-type", "idempotency-key"),
    *("if-none-match", "if-range", "range", "last-event-id"),
    *("mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name"),
    *("ringback-client-session-id", "ringback-correlation-id", "ringback-idempotency-key", "ringback-callback-url"),
    *("ringback-callback-secret", "ringback-cancel-key", "traceparent", "tracestate", REQUEST_ID_HEADER),
)
_EXPOSED_HEADERS: Final = (
    *("etag", "location", "retry-after", "idempotent-replayed", "content-range", "accept-ranges"),
    *("mcp-protocol-version", "mcp-session-id", "www-authenticate", REQUEST_ID_HEADER),
)

_NO_TELEMETRY: Final[TelemetryConfig] = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI exports spans, metrics and errors of its own if the process has providers of OpenTelemetry. Its spans have the path
and the query, which may contain a token; those of the service are in `http_spans`."""
_SUMMARY: Final = "Start a tool call, disconnect, and get a callback when it ends."
_DESCRIPTION: Final = (
    "A callback service for MCP: start a tool call on any MCP server, disconnect, and get a signed webhook when it ends. "
    "Every error is a problem document (RFC 9457) whose detail says what to do."
)


ENUM_COMPONENT_NAMES: Final = {
    "AttemptCategory": "Category",
    "CallOutcome": "Outcome",
    "CallStatus": "Status",
    "DeliveryCondition": "When",
    "DeliveryKind": "Kind",
    "RetryProfile": "Profile",
    "WebhookOrigin": "Origin",
}
"""Component names of these enums in the OpenAPI document. They stay when a class is renamed, for generated clients."""


class _RingbackApi(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Add what FastAPI cannot express: stable names of enums, problem documents, callbacks, examples, rules."""
        if self.openapi_schema is None:
            self.openapi_schema = _with_stable_enum_names(super().openapi())
        document = self.openapi_schema
        schemas = document["components"]["schemas"]
        schemas["Problem"] = PROBLEM_SCHEMA
        schemas.update(openapi_webhooks.build_callback_unions(document["webhooks"]))
        for name, shown in EXAMPLES_BY_SCHEMA.items():
            schemas[name]["examples"] = shown
        apply_rules(document)
        return document


def _with_stable_enum_names(document: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(document)
    for class_name, name in ENUM_COMPONENT_NAMES.items():
        text = text.replace(f'"#/components/schemas/{class_name}"', f'"#/components/schemas/{name}"')
        text = text.replace(f'"{class_name}": {{', f'"{name}": {{').replace(
            f'"title": "{class_name}"', f'"title": "{name}"'
        )
    return json.loads(text)


def create_app(
    services: Services,
    *,
    config: ApiConfig,
    mcp: ASGIApp | None = None,
    login_pages: LoginPageConfig | None = None,
    ui_routes: Sequence[BaseRoute] = (),
    tracer: Tracer | None = None,
) -> FastAPI:
    """The API over these services. It has no lifespan: the code that creates the services also closes them.

    With `mcp`, the same application serves MCP clients, with `login_pages` the pages on which people sign in to upstreams, and
    with `ui_routes` the dashboard.
    """
    app = create_documented_app()
    _match_calls_first(app.router.routes)
    if mcp is not None:
        # Before the operations, because routes are tried in their order.
        app.router.routes[:0] = [Route(path, endpoint=mcp) for path in MCP_PATHS]
    app.servers = [{"url": config.public_url}]
    app.router.routes.append(Route("/openapi.json", endpoint=OpenApiEndpoint(app.openapi).__call__, methods=["GET"]))
    app.router.routes.append(Route("/llms.txt", endpoint=LlmsTextEndpoint(config.public_url).__call__, methods=["GET"]))
    if login_pages is not None:
        app.router.routes.extend(LoginPages(services, config, login_pages).make_routes())
    app.router.routes.extend(ui_routes)
    return _connect_app(app, services, config, tracer)


def _match_calls_first(routes: list[BaseRoute]) -> None:
    """Routes are tried in their order, and most requests are about calls. The OpenAPI document keeps its order."""
    endpoints = {route.endpoint for route in calls.router.routes if isinstance(route, APIRoute)}

    def is_about_others(route: BaseRoute) -> bool:
        # Older versions of FastAPI copy the operations of an included router; newer ones have one route for all of them.
        copied = isinstance(route, APIRoute) and route.endpoint in endpoints
        return not copied and getattr(route, "original_router", None) is not calls.router

    routes.sort(key=is_about_others)


def create_operations_app(
    services: Services,
    *,
    config: ApiConfig,
    mcp: ASGIApp | None = None,  # noqa: ARG001 - as `create_app`
    login_pages: LoginPageConfig | None = None,  # noqa: ARG001 - as `create_app`
    ui_routes: Sequence[BaseRoute] = (),  # noqa: ARG001 - as `create_app`
    tracer: Tracer | None = None,
) -> FastAPI:
    """Health, readiness and metrics only: for a node without the role `api`."""
    app = _create_empty_app()
    routes = [*metrics.router.routes, *operations.router.routes]
    app.include_router(
        APIRouter(routes=[route for route in routes if isinstance(route, APIRoute) and route.path in OPERATIONS_PATHS])
    )
    return _connect_app(app, services, config, tracer)


def _connect_app(app: FastAPI, services: Services, config: ApiConfig, tracer: Tracer | None) -> FastAPI:
    """Give the operations their services, and put the middleware around them."""
    app.state.services = services
    app.state.config = config
    # The last one added is the outermost.
    app.add_middleware(ResponseHookMiddleware)
    app.add_middleware(LargeResponseMiddleware, responses=config.unread_responses)
    app.add_middleware(BodyLimitMiddleware, bytes_max=config.request_bytes_max)
    if config.allowed_origins:
        app.add_middleware(
            McpCorsMiddleware,
            allow_origins=list(config.allowed_origins),
            allow_methods=list(HTTP_METHODS),
            allow_headers=list(_ALLOWED_HEADERS),
            expose_headers=list(_EXPOSED_HEADERS),
            max_age=CORS_MAX_AGE_SECONDS,
        )
    app.add_middleware(HeaderCheckMiddleware, config=config)
    app.add_middleware(UnhandledErrorMiddleware)
    if config.trusted_proxies:
        app.add_middleware(
            ForwardedClientMiddleware,
            trusted_proxies=config.trusted_proxies,
            requests_max=config.client_requests_max,
        )
    app.add_middleware(RequestContextMiddleware, random_bytes=os.urandom)
    if tracer is not None:
        app.add_middleware(HttpSpanMiddleware, tracer=tracer)
    if public_path := read_public_path(config.public_url):
        app.add_middleware(PublicPathMiddleware, public_path=public_path)
    return app


def create_documented_app() -> FastAPI:
    """The operations without services, for the OpenAPI document."""
    app = _create_empty_app()
    call_modules = (calls, reports, results, resume)
    for module in (
        webhooks,
        *call_modules,
        events,
        event_types,
        deliveries,
        upstreams,
        upstream_logins,
        insights,
        usage,
        keys,
        portal_links,
        audit,
        erasures,
        metrics,
        status,
        operations,
    ):
        app.include_router(module.router)
    return app


def _create_empty_app() -> _RingbackApi:
    app = _RingbackApi(
        title="Ringback",
        version=__version__,
        summary=_SUMMARY,
        description=_DESCRIPTION,
        license_info={"name": "MIT", "identifier": "MIT"},
        servers=[{"url": "http://127.0.0.1:8090", "description": "Where `ringback serve` listens by default."}],
        openapi_url=None,  # `create_app` serves it
        docs_url=None,  # both pages would load scripts from a content delivery network
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
        webhooks=openapi_webhooks.router,
        generate_unique_id_function=_operation_id,
    )
    add_problem_handlers(app)
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name
