"""Dispatches SDK requests to the handlers of the features.

This is an SDK middleware because the SDK sends only a middleware's result unchanged: a proxied result may have fields unknown
to this SDK, and the SDK would reject a 2025-11-25 task, which is no CallToolResult. The SDK itself handles the methods that no
feature handles (`initialize`, `ping`, …).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import SERVER_INFO_META_KEY, methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ringback.domain.errors import RingbackError
from ringback.domain.upstreams import UpstreamErrorResponse
from ringback.mcp_server.auth import get_caller
from ringback.mcp_server.gateway import Era, Feature, MethodBinding, Result
from ringback.mcp_server.jsonrpc_errors import invalid_params, method_not_found, to_mcp_error, upstream_mcp_error
from ringback.mcp_server.method_spans import trace_method
from ringback.mcp_server.request_context import Endpoint, RequestContext
from ringback.services.limits.quotas import QuotaEnforcer

_MODERN_ONLY_FIELDS: Final = frozenset({"resultType", "ttlMs", "cacheScope"})


class MethodDispatcher:
    """The methods of one endpoint, as a `mcp.server.context.ServerMiddleware`."""

    def __init__(
        self, endpoint: Endpoint, features: Sequence[Feature], *, server_info: Mapping[str, Any], quotas: QuotaEnforcer
    ) -> None:
        self._endpoint = endpoint
        self._quotas = quotas
        self._methods: dict[tuple[str, Era], MethodBinding] = {
            (method.name, era): method for feature in features for method in feature.methods for era in method.eras
        }
        self._method_names = {name for name, _ in self._methods}
        self._traced_methods = self._method_names | methods.SPEC_CLIENT_METHODS
        self._notification_handlers = {
            method: handler for feature in features for method, handler in feature.notification_handlers.items()
        }
        self._server_info = server_info

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            return await self._dispatch(ctx, call_next)
        return await trace_method(ctx, self._traced_methods, lambda: self._dispatch(ctx, call_next))

    async def handle_request(self, ctx: ServerRequestContext[Any, Any]) -> Result:
        """Handle a request whose method a feature handles, without the middlewares of the SDK's server."""
        return await trace_method(ctx, self._traced_methods, lambda: self._handle_request(ctx))

    async def _dispatch(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None and (handle_notification := self._notification_handlers.get(ctx.method)):
            await handle_notification(RequestContext(caller=get_caller(ctx), endpoint=self._endpoint, sdk_context=ctx))
        if ctx.request_id is None:
            return await call_next(ctx)
        if ctx.method in self._method_names:
            return await self._handle_request(ctx)
        try:
            return await call_next(ctx)
        except ValidationError as problem:
            raise invalid_params(problem) from None

    async def _handle_request(self, ctx: ServerRequestContext[Any, Any]) -> Result:
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        method = self._methods.get((ctx.method, "modern" if is_modern else "legacy"))
        if method is None:
            raise method_not_found(ctx.method)
        _validate_request(ctx)
        try:
            params = method.params.model_validate(dict(ctx.params or {}), by_name=False)
        except ValidationError as problem:
            raise invalid_params(problem, root="params") from None
        context = RequestContext(caller=get_caller(ctx), endpoint=self._endpoint, sdk_context=ctx)
        try:
            if is_modern or context.is_replayed:  # the handler of a modern request ends with its connection
                result = await method.handler(context, params)
            else:
                with self._quotas.handle_session_request(context.caller.principal):
                    result = await method.handler(context, params)
        except RingbackError as error:
            raise to_mcp_error(error) from None
        except UpstreamErrorResponse as error:
            raise upstream_mcp_error(error, is_modern=is_modern) from None
        return self._add_modern_fields(result) if is_modern else _strip_modern_fields(result)

    def _add_modern_fields(self, result: Result) -> Result:
        """Add the fields that every modern result needs, where they are missing."""
        meta = {SERVER_INFO_META_KEY: self._server_info, **result.get("_meta", {})}
        return {"resultType": "complete", **result, "_meta": meta}


def _strip_modern_fields(result: Result) -> Result:
    """Remove the fields that only modern results have, and structured content that is not an object."""
    dropped = {"structuredContent"} if not isinstance(result.get("structuredContent", {}), dict) else frozenset[str]()
    return {key: value for key, value in result.items() if key not in _MODERN_ONLY_FIELDS | dropped}


def _validate_request(sdk_context: ServerRequestContext[Any, Any]) -> None:
    """Validate as strictly as the SDK validates the requests that it handles itself."""
    if sdk_context.method in methods.SPEC_CLIENT_METHODS:
        try:
            methods.validate_client_request(sdk_context.method, sdk_context.protocol_version, sdk_context.params)
        except KeyError:
            raise method_not_found(sdk_context.method) from None
        except ValidationError as problem:
            raise invalid_params(problem) from None
