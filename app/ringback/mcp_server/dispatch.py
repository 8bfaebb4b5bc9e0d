"""From a request that the SDK has taken in to the handler of a feature, and back.

It is a middleware of the SDK's server, because only a middleware's answer goes over the wire as it is: what an upstream
answered is passed on with fields that this SDK does not know, and a task of 2025-11-25 is no CallToolResult, so the SDK would
refuse it. What nobody here handles (`initialize`, `ping`, …) goes on to the SDK.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, SERVER_INFO_META_KEY, methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ringback.domain import jsontext
from ringback.domain.errors import RingbackError
from ringback.domain.upstreams import UpstreamRefused
from ringback.mcp_server.auth import caller_of
from ringback.mcp_server.exchange import Endpoint, Exchange
from ringback.mcp_server.gateway import Era, Feature, Method, Result
from ringback.mcp_server.refusals import refusal, unknown_method, upstream_refusal

_ENVELOPE: Final = frozenset({"resultType", "ttlMs", "cacheScope"})


class Dispatch:
    """One endpoint's methods, as a `mcp.server.context.ServerMiddleware`."""

    def __init__(self, endpoint: Endpoint, features: Sequence[Feature], *, server_info: Mapping[str, Any]) -> None:
        self._endpoint = endpoint
        self._methods: dict[tuple[str, Era], Method] = {
            (method.name, era): method for feature in features for method in feature.methods for era in method.eras
        }
        self._known = {name for name, _ in self._methods}
        self._told = {method: handler for feature in features for method, handler in feature.notifications.items()}
        self._server_info = server_info

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None and (hear := self._told.get(ctx.method)):
            await hear(Exchange(caller=caller_of(ctx), endpoint=self._endpoint, context=ctx))
        if ctx.request_id is None or ctx.method not in self._known:
            return await call_next(ctx)
        return await self._answer(ctx)

    async def _answer(self, ctx: ServerRequestContext[Any, Any]) -> Result:
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        method = self._methods.get((ctx.method, "modern" if modern else "legacy"))
        if method is None:
            raise unknown_method(ctx.method)
        _validate(ctx)
        params = method.params.model_validate(dict(ctx.params or {}), by_name=False)
        exchange = Exchange(caller=caller_of(ctx), endpoint=self._endpoint, context=ctx)
        try:
            result = await method.handler(exchange, params)
        except RingbackError as error:
            raise refusal(error) from None
        except UpstreamRefused as error:
            raise upstream_refusal(error) from None
        return self._enveloped(result) if modern else _without_envelope(result)

    def _enveloped(self, result: Result) -> Result:
        """What a result of 2026-07-28 must carry, wherever it came from."""
        meta = {SERVER_INFO_META_KEY: self._server_info, **result.get("_meta", {})}
        return {"resultType": "complete", **result, "_meta": meta}


def _without_envelope(result: Result) -> Result:
    """For a client of before: what only 2026-07-28 has is left out, on every result, and structured content but objects."""
    odd = {"structuredContent"} if not isinstance(result.get("structuredContent", {}), dict) else frozenset[str]()
    return {key: value for key, value in result.items() if key not in _ENVELOPE | odd}


def _validate(context: ServerRequestContext[Any, Any]) -> None:
    """As strict as the SDK is with the requests that it handles itself."""
    if context.method in methods.SPEC_CLIENT_METHODS:
        try:
            methods.validate_client_request(context.method, context.protocol_version, context.params)
        except KeyError:
            raise unknown_method(context.method) from None
    try:
        jsontext.dumps(context.params)
        json.dumps(context.params, allow_nan=False)  # the line above would make `null` of NaN, without a word
    except (TypeError, ValueError):
        # Python's parser takes in what we do not write: refused here, before anything is done (as REST does).
        raise MCPError(
            INVALID_PARAMS,
            "The request holds NaN, an integer beyond 64 bits or a number beyond doubles, half a surrogate pair, or too many "
            "levels.",
        ) from None
